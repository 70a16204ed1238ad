"""The fields of the tabs: what they hold, and what is read from them."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

import gradio as gr

from heedmap.app import fields
from heedmap.app.options import MOST_LETTERS
from heedmap.errors import ArgumentError
from heedmap.options import DrawOptions, EditOptions
from heedmap.tiny.card import EMBEDDED


def test_empty_fields_leave_all_to_the_model():
    found = fields.shared_values(None, fields.EMPTY)
    assert found == {"model": EMBEDDED, "seed": None, "options": DrawOptions()}


def test_fields_are_numbers_and_texts():
    values = ("7", "25", "4.5", "96", "128", "rain", ["step", "head"])
    assert fields.shared_values("org/model", values) == {
        "model": "org/model",
        "seed": 7,
        "options": DrawOptions(
            steps=25, guidance=4.5, size=(96, 128), negative="rain", keep=("step", "head")
        ),
    }


@pytest.mark.parametrize(
    ("number", "value", "said"),
    [
        (0, "seven", "the seed"),
        (1, "2.5", "the number of steps"),
        (2, "much", "guidance"),
        (3, "96", "one side of the picture was given"),
        (6, ["layer", "image"], ": expected a list of 'layer', "),
        (6, "layer", ": expected a list of 'layer', "),
        (5, 3, "expected a text"),
    ],
)
def test_what_a_field_cannot_hold_is_one_sentence(number, value, said):
    values = list(fields.EMPTY)
    values[number] = value
    with pytest.raises(ArgumentError, match=said) as error:
        fields.shared_values(None, values)
    assert "\n" not in str(error.value)


def test_the_fields_are_as_many_as_their_values():
    async def made() -> list[Any]:  # outside of a loop Gradio makes some that nobody closes
        with gr.Blocks():
            return fields.shared_fields()

    shown = asyncio.run(made())
    assert len(shown) == len(fields.EMPTY)
    kinds = [type(value) for value in fields.EMPTY]
    assert [type(field) for field in shown] == [
        gr.Textbox if kind is str else gr.CheckboxGroup for kind in kinds
    ]
    texts = [field for field in shown if isinstance(field, gr.Textbox)]
    assert all(field.max_length >= MOST_LETTERS for field in texts)


def test_the_fields_of_an_edit_begin_with_its_defaults():
    async def made() -> list[Any]:
        with gr.Blocks():
            return fields.edit_fields()

    shown = asyncio.run(made())
    begin = fields.edit_examples("cat->dog")
    assert len(shown) == len(begin)
    assert [field.value or "" for field in shown[:2]] == begin[:2]
    assert fields.edit_values(*begin) == EditOptions(only="cat->dog")
    assert fields.edit_values("0.5", "0", "", "") == EditOptions(cross=0.5, self_attention=0.0)
    assert fields.edit_values(0.5, "", " ", "0.3") == EditOptions(cross=0.5, threshold=0.3)
    with pytest.raises(ArgumentError, match="the threshold is 'x': expected a number"):
        fields.edit_values(0.5, 0.5, "", "x")
