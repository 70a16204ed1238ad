"""The fields of the tabs: what they hold, and what is read from them."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

import gradio as gr

from heedmap.app import fields
from heedmap.app.options import MOST_LETTERS
from heedmap.app.requests import Placed
from heedmap.errors import ArgumentError
from heedmap.options import DrawOptions, EditOptions
from heedmap.tiny.card import EMBEDDED


def test_empty_fields_leave_all_to_the_model():
    found = fields.shared_values(None, fields.EMPTY)
    assert found == {"model": EMBEDDED, "seed": None, "roomy": True, "options": DrawOptions()}


def test_fields_are_numbers_and_texts():
    values = ("7", "25", "4.5", "96", "128", "rain", ["step", "head"])
    assert fields.shared_values("org/model", values) == {
        "model": "org/model",
        "seed": 7,
        "roomy": False,
        "options": DrawOptions(
            steps=25, guidance=4.5, size=(96, 128), negative="rain", keep=["step", "head"]
        ),
    }


@pytest.mark.parametrize(
    ("said", "roomy", "keep"),
    [
        (["small"], True, DrawOptions.keep),
        (["small", "head"], True, ["head"]),
        (["head", "layer"], False, ["layer", "head"]),
        ([], False, ()),
        (None, False, ()),
    ],
)
def test_what_is_told_apart(said, roomy: bool, keep):
    found = fields.shared_values(None, (*fields.EMPTY[:6], said))
    assert (found["roomy"], found["options"].keep) == (roomy, keep)


@pytest.mark.parametrize(
    ("number", "value", "said"),
    [
        (0, "seven", "the seed"),
        (1, "2.5", "the number of steps"),
        (2, "much", "guidance"),
        (3, "96", "one side of the picture was given"),
        (6, ["layer", "image"], ": expected a list of 'small', 'layer', "),
        (6, "layer", ": expected a list of 'small', "),
        (5, 3, "expected a text"),
    ],
)
def test_what_a_field_cannot_hold_is_one_sentence(number, value, said):
    values = list(fields.EMPTY)
    values[number] = value
    with pytest.raises(ArgumentError, match=said) as error:
        fields.shared_values(None, values)
    assert "\n" not in str(error.value)


def made(make: Any) -> list[Any]:
    async def inside() -> list[Any]:  # outside of a loop Gradio makes some that nobody closes
        with gr.Blocks():
            return make()

    return asyncio.run(inside())


def test_the_fields_are_as_many_as_their_values():
    shown = made(lambda: [*fields.seen_fields(), *fields.shared_fields()])
    assert len(shown) == len(fields.EMPTY)
    kinds = [type(value) for value in fields.EMPTY]
    assert [type(field) for field in shown] == [
        gr.Textbox if kind is str else gr.CheckboxGroup for kind in kinds
    ]
    assert [field.label for field in shown[:2]] == ["Seed", "Steps"]
    texts = [field for field in shown if isinstance(field, gr.Textbox)]
    assert all(field.max_length >= MOST_LETTERS for field in texts)
    places = made(fields.place_fields)
    assert [one.value or "" for one in places] == list(fields.UNPLACED)


def test_the_fields_of_an_edit_begin_with_its_defaults():
    shown = made(fields.edit_fields)
    begin = fields.edit_examples("cat->dog")
    assert len(shown) == len(begin)
    assert [field.value or "" for field in shown[:2]] == begin[:2] and shown[-1].value == begin[-1]
    assert fields.edit_values(*begin) == EditOptions(only="cat->dog")
    assert fields.edit_values("0.5", "0", *begin[2:]) == EditOptions(
        cross=0.5, self_attention=0.0, only="cat->dog"
    )
    assert fields.edit_values(0.5, "", " ", " a, red house ,,", "0.3", True) == EditOptions(
        cross=0.5, threshold=0.3, protect=("a", "red house"), renormalize=True
    )
    for values, said in (
        ((0.5, 0.5, "", "", "x", False), "the threshold is 'x': expected a number"),
        ((0.5, 0.5, "", 3, "", False), "expected a text"),
        ((0.5, 0.5, "", "", "", "yes"), "renormalize is 'yes'"),
    ):
        with pytest.raises(ArgumentError, match=said):
            fields.edit_values(*values)


def test_the_fields_of_a_grid():
    assert len(made(fields.grid_fields)) == 4 and len(made(fields.blend_fields)) == 4
    assert len(fields.blend_examples("")) == 4
    assert fields.grid_values("", "", None, "") == {
        "weights": {}, "count": 1, "strengths": (), "own_strengths": ()
    }  # fmt: skip
    assert fields.grid_values("red=0,1\n\n house=-1:1:3 ", "3", "0,0.5", "0.1:0.9") == {
        "weights": {"red": [0, 1], "house": [-1, 0, 1]},
        "count": 3,
        "strengths": ((0, 0), (0, 0.5)),
        "own_strengths": ((0.1, 0.9),),
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("red", "", "", ""), "the weights are 'red': expected a word and its weights"),
        (("red=1:2", "", "", ""), "the weights are '1:2': expected A:B:N"),
        (("red=0\nred=1", "", "", ""), "'red' is weighted twice: give all of it on one line"),
        (("", "0", "", ""), "the number of seeds is 0"),
        (("", "1e9", "", ""), "the number of seeds"),
        (("", "10001", "", ""), "the number of seeds is 10001"),
        (("", "", "0.5,2", ""), "the strength is '2': expected a part of the run"),
        (("", "", "", "0.9:0.1"), "self-attention is '0.9:0.1': expected a part of the run"),
        (("", "", ["a"], ""), "expected a text"),
        ((5, "", "", ""), "expected a text"),
    ],
)
def test_what_a_grid_cannot_be_is_one_sentence(values, said: str):
    with pytest.raises(ArgumentError, match=said) as error:
        fields.grid_values(*values)
    assert "\n" not in str(error.value)


def test_words_in_their_places():
    assert fields.place_values(*fields.UNPLACED) == ()
    found = fields.place_values(" cat ", "the lower half", "", "dog", "the left half", "0,1,20,30")
    assert found == (Placed("cat", "the lower half"), Placed("dog", (0, 1, 20, 30)))
    for values, said in (
        (("cat", "the moon", ""), "the place is 'the moon'"),
        (("cat", ["x"], ""), "the place is "),
        (("cat", "the left half", "1,2"), "the box is '1,2': expected LEFT,TOP,RIGHT,BOTTOM"),
        ((["cat"], "the left half", ""), "expected a text"),
        (("c" * (MOST_LETTERS + 1), "the left half", ""), "expected at most"),
    ):
        with pytest.raises(ArgumentError, match=said):
            fields.place_values(*values)
