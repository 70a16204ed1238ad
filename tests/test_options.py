"""Options: their defaults, and what their constructors accept and refuse."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from heedmap.errors import ArgumentError
from heedmap.options import USUAL, EditOptions, EditPurpose, GenerateOptions


def test_defaults_are_those_of_prompt_to_prompt():
    """Of arXiv 2208.01626 for a swap: 0.8 and 0.4 of the run, 32 × 32."""
    edit = EditOptions()
    assert (edit.cross, edit.self_attention, edit.self_cells) == (None, None, 1024)
    assert USUAL["swap"] == USUAL[None] == (0.8, 0.4)


def test_every_purpose_has_windows_and_none_is_wider_than_a_swaps():
    assert set(USUAL) == {None, *get_args(EditPurpose)}
    for cross, own in USUAL.values():
        assert 0 <= cross <= 0.8 and 0 <= own <= 0.4


def test_values_become_pythons_own():
    made = GenerateOptions(steps=np.int64(3), guidance=np.float32(2), keep={"step"})
    assert (made.steps, made.guidance, made.keep) == (3, 2.0, ("step",))
    assert type(made.steps) is int and type(made.guidance) is float
    assert GenerateOptions(keep="all").keep == ("layer", "step", "head")
    edit = EditOptions(cross=0.5, words={"cat": (0.2, np.float64(0.5))}, protect="dog", only="a->b")
    assert edit.cross == (0.0, 0.5) and edit.words == {"cat": (0.2, 0.5)}
    assert edit.protect == ("dog",)
    assert dataclasses.replace(edit, batch=3).cross == edit.cross


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 0},
        {"steps": 2.5},
        {"steps": True},
        {"guidance": float("nan")},
        {"guidance": -1},
        {"negative": 3},
        {"keep": ["word"]},
        {"keep": "layer"},
        {"tokens": "some"},
        {"branches": ["both"]},
        {"limit": 0},
    ],
)
def test_sampling_that_cannot_be_is_refused(given):
    with pytest.raises(ArgumentError):
        GenerateOptions(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "both"},
        {"cross": 2},
        {"cross": (0.5, 0.2)},
        {"cross": "0.5"},
        {"self_attention": float("nan")},
        {"words": [("cat", 0.5)]},
        {"words": {"cat": -1}},
        {"self_cells": -1},
        {"renormalize": "yes"},
        {"protect": 3, "only": "a->b"},
        {"protect": "cat"},
        {"threshold": 0.5},
        {"threshold": 2, "only": "a->b"},
        {"blend_from": 1, "only": "a->b"},
        {"batch": 1},
    ],
)
def test_edits_that_cannot_be_are_refused(given):
    with pytest.raises(ArgumentError):
        EditOptions(**given)
