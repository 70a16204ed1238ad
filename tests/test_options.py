"""Options: which of a user's keyword arguments they are, and what holds where nothing is said."""

import dataclasses
from typing import get_args

import pytest

from heedmap.options import USUAL, DrawOptions, EditOptions, EditPurpose, GenerateOptions


def test_each_class_takes_its_own_and_leaves_the_rest():
    given = {"cross": 0.5, "only": "a->b", "steps": 3, "keep": ("step",), "eta": 0.1}
    edit, draw = EditOptions.taken(given), DrawOptions.taken(given)
    assert (edit.cross, edit.only, edit.threshold) == (0.5, "a->b", 0.25)
    assert (draw.steps, draw.keep, draw.limit) == (3, ("step",), 2 * 1024**3)
    assert given == {"eta": 0.1}
    assert GenerateOptions.taken({"steps": 2, "tokens": "all"}).tokens == "all"


def test_what_holds_where_nothing_is_said():
    """Those of prompt-to-prompt (arXiv 2208.01626) for a swap: 0.8 and 0.4 of the run, 32 × 32."""
    edit, draw = EditOptions(), GenerateOptions()
    assert (edit.cross, edit.self_attention, edit.self_cells) == (None, None, 1024)
    assert USUAL["swap"] == USUAL[None] == (0.8, 0.4)
    assert (edit.blend_from, edit.threshold, edit.batch, edit.kind) == (0.2, 0.25, None, None)
    assert (draw.keep, draw.tokens, draw.branches) == (("layer",), "prompt", ("conditional",))
    unsaid = (draw.steps, draw.guidance, draw.size, draw.negative)
    assert unsaid == (None,) * 4 and draw.arguments == {}


def test_every_purpose_has_windows_and_none_is_wider_than_a_swaps():
    assert set(USUAL) == {None, *get_args(EditPurpose)}
    for cross, own in USUAL.values():
        assert 0 <= cross <= 0.8 and 0 <= own <= 0.4


def test_options_by_name_are_taken_again():
    draw = GenerateOptions(steps=3, tokens="all", arguments={"eta": 0.1})
    named = draw.named()
    assert named["eta"] == 0.1 and "arguments" not in named
    taken = GenerateOptions.taken(named)
    assert dataclasses.replace(taken, arguments=named) == draw
    edit = EditOptions(cross=0.5, only="a->b")
    assert EditOptions.taken(edit.named()) == edit


def test_they_are_not_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EditOptions().cross = 0.1  # pyright: ignore[reportAttributeAccessIssue]
