"""The page of the app: what its fields hold, and what Gradio is left of them."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

import gradio as gr

from heedmap.app import tabs
from heedmap.app.limits import MOST_LETTERS
from heedmap.errors import ArgumentError
from heedmap.models import pipelines
from heedmap.options import DrawOptions
from heedmap.text.alignment import pair_words, swap_of
from heedmap.text.tokens import tokenize
from heedmap.text.weights import parse_weights
from heedmap.tiny import captions


def test_empty_fields_leave_all_to_the_model():
    found = tabs._shared_values(None, tabs._EMPTY)
    assert found == {"model": pipelines.EMBEDDED, "seed": None, "options": DrawOptions()}


def test_fields_are_numbers_and_texts():
    values = ("7", "25", "4.5", "96", "128", "rain", ["step", "head"])
    assert tabs._shared_values("org/model", values) == {
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
        (6, ["layer", "image"], "cannot be told apart"),
        (6, "layer", "cannot be told apart"),
        (5, 3, "expected a text"),
    ],
)
def test_what_a_field_cannot_hold_is_one_sentence(number, value, said):
    values = list(tabs._EMPTY)
    values[number] = value
    with pytest.raises(ArgumentError, match=said) as error:
        tabs._shared_values(None, values)
    assert "\n" not in str(error.value)


def test_the_fields_are_as_many_as_their_values():
    async def made() -> list[Any]:  # outside of a loop Gradio makes some that nobody closes
        with gr.Blocks():
            return tabs._shared_fields()

    fields = asyncio.run(made())
    assert len(fields) == len(tabs._EMPTY)
    kinds = [type(value) for value in tabs._EMPTY]
    assert [type(field) for field in fields] == [
        gr.Textbox if kind is str else gr.CheckboxGroup for kind in kinds
    ]
    texts = [field for field in fields if isinstance(field, gr.Textbox)]
    assert all(field.max_length >= MOST_LETTERS for field in texts)


def test_the_examples_are_of_the_world_that_the_embedded_model_draws():
    prompts = [
        *tabs.PICTURES,
        *(text for source, target, _ in tabs.EDITS for text in (source, target)),
    ]
    known = captions.vocabulary()
    for prompt in prompts:
        assert set(parse_weights(prompt).text.replace(",", "").split()) <= known, prompt


def test_the_edits_on_the_buttons_are_edits():
    tokenizer = pipelines.tokenizer()
    for source, target, only in tabs.EDITS:
        if not target:  # the same words, weighted
            assert parse_weights(source).spans
            continue
        found = pair_words(tokenize(source, tokenizer), tokenize(target, tokenizer))
        changed = [(a.text, b.text) for a, b in found.pairs if a and b and a.text != b.text]
        assert len(changed) == 1
        assert not only or swap_of(only) == tuple(changed)
