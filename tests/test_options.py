"""Options: defaults, what the constructors accept and refuse, and the reading of texts."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from heedmap import parsing
from heedmap.errors import ArgumentError
from heedmap.options import (
    DEFAULT_JOINT_WINDOWS,
    DEFAULT_WINDOWS,
    EditKeywords,
    EditOptions,
    EditPurpose,
    GenerateKeywords,
    GenerateOptions,
)


def test_defaults_are_those_of_prompt_to_prompt():
    """Of arXiv 2208.01626 for a swap: 0.8 and 0.4 of the run, 32 × 32."""
    edit = EditOptions()
    assert (edit.cross_replace, edit.self_replace, edit.max_self_cells) == (None, None, 1024)
    assert DEFAULT_WINDOWS["swap"] == DEFAULT_WINDOWS[None] == (0.8, 0.4)
    assert set(DEFAULT_WINDOWS) == set(DEFAULT_JOINT_WINDOWS) == {None, *get_args(EditPurpose)}


def test_type_checkers_know_each_option():
    for kind, names in ((GenerateOptions, GenerateKeywords), (EditOptions, EditKeywords)):
        options = {one.name for one in dataclasses.fields(kind)} - {"arguments"}
        assert options <= names.__optional_keys__


def test_values_become_plain_python():
    made = GenerateOptions(steps=np.int64(3), guidance=np.float32(2), keep={"step"})
    assert (made.steps, made.guidance, made.keep) == (3, 2.0, ("step",))
    assert type(made.steps) is int and type(made.guidance) is float
    assert GenerateOptions(keep="all").keep == ("layer", "step", "head")
    edit = EditOptions(cross_replace=np.float64(0.5), protect="dog", only="a->b")
    assert edit.cross_replace == (0.0, 0.5)
    assert edit.protect == ("dog",)
    assert dataclasses.replace(edit, batch=3).cross_replace == edit.cross_replace


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (GenerateOptions, {"steps": 0}),
        (GenerateOptions, {"guidance": float("nan")}),
        (GenerateOptions, {"negative": 3}),
        (GenerateOptions, {"keep": ["word"]}),
        (GenerateOptions, {"tokens": "some"}),
        (EditOptions, {"cross_replace": (0.5, 0.2)}),
        (EditOptions, {"renormalize": "yes"}),
        (EditOptions, {"protect": "cat"}),
        (EditOptions, {"threshold": 0.5}),
        (EditOptions, {"blend_from": 1, "only": "a->b"}),
    ],
)
def test_values_out_of_range_are_refused(kind: type, given: dict):
    with pytest.raises(ArgumentError, match=next(iter(given))):
        kind(**given)


# --- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parsing.parse_integer, " 3", 3),
        (parsing.parse_integers, "0, 2", [0, 2]),
        (parsing.parse_number, "0.5", 0.5),
        (parsing.parse_names, "up, mid,", ["up", "mid"]),
        (parsing.parse_keep, "head, layer,step", ("head", "layer", "step")),
        (parsing.parse_pixel, "40, 72", (40, 72)),
        (parsing.parse_place, "40,72", (40, 72)),
        (parsing.parse_place, "0,0, 64,128.5", (0, 0, 64, 128.5)),
        (parsing.parse_place, "red house", "red house"),
        (parsing.parse_size, "512x768", (512, 768)),
        (parsing.parse_size, "8×16", (8, 16)),
        (parsing.parse_word, "red house", "red house"),
        (parsing.parse_word, "# 02 ", 2),
        (parsing.parse_window, "0.8", (0, 0.8)),
        (parsing.parse_windows, "0,0.2, 0.1:0.9", [(0, 0), (0, 0.2), (0.1, 0.9)]),
        (parsing.parse_box, "a=b=0, 0,64,128.5", ("a=b", (0, 0, 64, 128.5))),
        (parsing.parse_word_weights, "red=-2,3", ("red", [-2, 3])),
        (parsing.parse_word_weights, "a=b=0,0.5", ("a=b", [0, 0.5])),
        (parsing.parse_word_weights, " red house = 1.5 ", ("red house", [1.5])),
        (parsing.parse_argument, "eta=0.5", ("eta", 0.5)),
        (parsing.parse_argument, "a=True", ("a", True)),
        (parsing.parse_argument, "a=(0.1, 0.6)", ("a", (0.1, 0.6))),
        (parsing.parse_argument, 'a={"scale": 2}', ("a", {"scale": 2})),
        (parsing.parse_argument, "prompt_2=a cat = b", ("prompt_2", "a cat = b")),
        (parsing.parse_argument, 'prompt_2="3"', ("prompt_2", "3")),
    ],
)
def test_texts_are_read_as_values(read, text: str, value: object):
    assert read(text) == value


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("0:3", [0, 1, 2]),
        ("7:", [7, 8, 9]),
        (":2", [0, 1]),
        ("4", [4]),
        ("-1", [9]),
        ("-3:-1", [7, 8]),
    ],
)
def test_ranges_are_read_as_slices(text: str, taken: list[int]):
    assert list(range(10))[parsing.parse_range(text)] == taken


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (parsing.parse_integer, ["", "many"]),
        (parsing.parse_number, ["x", "nan"]),
        (parsing.parse_keep, ["layer,time"]),
        (parsing.parse_pixel, ["7,", "1,2,3"]),
        (parsing.parse_place, ["7,", "1,2,3", "7"]),
        (parsing.parse_size, ["", "x512", "8x8x8"]),
        (parsing.parse_word, ["#x"]),
        (parsing.parse_range, ["", ":", "1:2:3", "1.5"]),
        (parsing.parse_windows, ["0,2", "0.9:0.1"]),
        (parsing.parse_box, ["cat", "cat=1,2,3", "cat=0,0,nan,3"]),
        (parsing.parse_word_weights, ["red", "red=1:2", "red=nan"]),
        (parsing.parse_argument, ["eta", "=1", "true-cfg=1"]),
    ],
)
def test_unreadable_texts_are_refused(read, texts: list[str]):
    for text in texts:
        with pytest.raises(ArgumentError):
            read(text)


def test_values_are_grouped_by_word():
    assert parsing.by_word([("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    with pytest.raises(ArgumentError):
        parsing.by_word([("a", 1), ("a", 2)])
