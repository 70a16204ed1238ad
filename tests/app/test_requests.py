"""What is asked for: places in pictures of any size, and how many edits a grid has."""

import math

import pytest

from heedmap.app.requests import PLACES, EditRequest, GridRequest, Placed


@pytest.mark.parametrize(
    ("place", "size", "box"),
    [
        ("the left half", (128, 128), (0, 0, 64, 128)),
        ("the right half", (128, 96), (64, 0, 128, 96)),
        ("the upper half", (128, 96), (0, 0, 128, 48)),
        ("the lower half", (512, 768), (0, 384, 512, 768)),
        ((1.0, 2.0, 30.0, 40.0), (128, 128), (1, 2, 30, 40)),
    ],
)
def test_a_place_is_a_box_of_the_picture(place, size, box):
    assert Placed("cat", place).box(size) == box


def test_two_halves_are_the_picture():
    for one, other in (("the left half", "the right half"), ("the upper half", "the lower half")):
        areas = [
            (right - left) * (bottom - top)
            for left, top, right, bottom in (PLACES[one], PLACES[other])
        ]
        assert sum(areas) == 1


def test_prompts_and_edits_are_counted():
    assert EditRequest(source="a (red:2) house").prompts == ("a (red:2) house",) * 2
    assert EditRequest(source="a", target="").prompts == ("a", "")
    asked = GridRequest(source="a", targets=("b", "c"), weights={"red": [0, 1, 2]}, count=2)
    assert asked.prompts == ("a", "b", "c")
    assert math.prod(map(len, asked.axes)) == 12
    assert math.prod(map(len, GridRequest(source="a").axes)) == 1
