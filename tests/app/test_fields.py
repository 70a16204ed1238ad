"""The fields of the tabs: what they hold, and what is read from them."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

import gradio as gr

from heedmap.app import fields
from heedmap.app.labels import FIELD_LABELS, sentence_for
from heedmap.app.options import MOST_LETTERS
from heedmap.app.requests import PLACES, Placed
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
        (0, "seven", "“Seed” is 'seven': expected a whole number"),
        (1, "2.5", "“Steps” is '2.5': expected a whole number"),
        (2, "much", "“Guidance” is 'much': expected a number"),
        (3, "96", "one of “Width” and “Height” is empty: expected both, or none"),
        (4, "1e999", "“Height” is '1e999': expected a whole number"),
        (
            6,
            ["layer", "image"],
            "“Tell apart on the page” is 'image': expected small, layer, step or head",
        ),
        (6, "layer", "“Tell apart on the page” is 'layer': expected a list"),
        (5, 3, "“Negative prompt” is 3: expected a text"),
    ],
)
def test_what_a_field_cannot_hold_is_one_sentence(number, value, said):
    values = list(fields.EMPTY)
    values[number] = value
    with pytest.raises(ArgumentError) as error:
        fields.shared_values(None, values)
    assert sentence_for(error.value) == said


def made(make: Any) -> list[Any]:
    async def inside() -> list[Any]:  # outside of a loop Gradio makes some that nobody closes
        with gr.Blocks():
            return make()

    return asyncio.run(inside())


def test_every_field_says_what_it_takes():
    """Under its label a sentence; it is as long as a list may be, and as wide as what it holds."""
    places, edit, grid, shared = map(
        made, (fields.place_fields, fields.edit_fields, fields.grid_fields, fields.shared_fields)
    )
    assert [field.value or "" for field in places] == list(fields.UNPLACED)
    labels = [field.label for field in (*places, *edit, *grid, *shared)]
    assert not {"Textbox", "Dropdown", None} & set(labels)
    for field in (*places, *edit[:2], *grid):
        assert field.info and field.info[0].isupper() and field.info.endswith(".")
    texts = [one for one in (*places, *edit, *grid, *shared) if isinstance(one, gr.Textbox)]
    lines = {FIELD_LABELS[name]: 4 for name in ("weights", "negative")}
    free = {FIELD_LABELS[name] for name in ("only", "protect")}
    for one in texts:
        assert one.label in free or one.max_lines == lines.get(one.label, 1)
    sizes = [one for one in shared if "pixels" in (getattr(one, "placeholder", None) or "")]
    assert len(sizes) == 2
    for one in (*sizes, *edit[:2]):
        assert one.min_width >= 9 * len(one.placeholder)
    for one in places[1::3]:
        assert one.min_width >= 9 * max(map(len, PLACES)) + 60  # and the arrow of its menu


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
        ((2, 0.5, "", "", "", False), "“Strength: cross-attention” is '2': expected a part of "),
        ((0.5, "x", "", "", "", False), "“Self-attention” is 'x': expected a part of the run"),
        ((0.5, 0.5, 3, "", "", False), "“Only where” is 3: expected a text"),
        ((0.5, 0.5, "", "", "x", False), "“Threshold” is 'x': expected a number"),
        ((0.5, 0.5, "", 3, "", False), "“Protect” is 3: expected a text"),
        ((0.5, 0.5, "", "", "", "no"), "“Renormalize” is 'no': expected yes or no"),
    ):
        with pytest.raises(ArgumentError) as error:
            fields.edit_values(*values)
        assert sentence_for(error.value).startswith(said)


def test_a_window_is_read_as_on_the_command_line():
    found = fields.edit_values("0.2:0.8", " 0.4 ", "", "", "", False)
    assert (found.cross, found.self_attention) == ((0.2, 0.8), 0.4)


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
        (("red", "", "", ""), "“Weights of a word” is 'red': expected a word and its weights"),
        (("red=1:2", "", "", ""), "“Weights of a word” is '1:2': expected A:B:N"),
        (("red=0\nred=1", "", "", ""), "“Weights of a word” has 'red' twice: give all of it"),
        (("", "0", "", ""), "“Seeds” is 0: expected a whole number from 1 to 10000"),
        (("", "1e9", "", ""), "“Seeds” is '1e9': expected a whole number"),
        (("", "10001", "", ""), "“Seeds” is 10001"),
        (("", "", "0.5,2", ""), "“Strength: cross-attention” is '2': expected a part of the run"),
        (("", "", "", "0.9:0.1"), "“Self-attention” is '0.9:0.1': expected a part of the run"),
        (("", "", ["a"], ""), "“Strength: cross-attention” is a: expected a text"),
        ((5, "", "", ""), "“Weights of a word” is 5: expected a text"),
    ],
)
def test_what_a_grid_cannot_be_is_one_sentence(values, said: str):
    with pytest.raises(ArgumentError) as error:
        fields.grid_values(*values)
    assert sentence_for(error.value).startswith(said)


def test_words_in_their_places():
    assert fields.place_values(*fields.UNPLACED) == ()
    found = fields.place_values(" cat ", "the lower half", "", "dog", "the left half", "0,1,20,30")
    assert found == (Placed("cat", "the lower half"), Placed("dog", (0, 1, 20, 30)))
    for values, said in (
        (("cat", "the moon", ""), "“Where” is 'the moon': expected the left half, the right "),
        (("cat", ["x"], ""), "“Where” is x: expected the left half"),
        (("cat", "the left half", "1,2"), "“Or a box, in pixels” is '1,2': expected LEFT,TOP,"),
        ((["cat"], "the left half", ""), "“Keep a word in its place” is cat: expected a text"),
        ((*fields.UNPLACED[:3], 5, "the left half", ""), "“Another word” is 5: expected a text"),
        (("c" * (MOST_LETTERS + 1), "the left half", ""), "“Keep a word in its place” has 2001"),
    ):
        with pytest.raises(ArgumentError) as error:
            fields.place_values(*values)
        assert sentence_for(error.value).startswith(said)
