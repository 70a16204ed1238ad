"""What a grid varies: every form a user may write, as lists of sound values."""

import numpy as np
import pytest

from heedmap.errors import ArgumentError
from heedmap.pipelines.grid_axes import Axes


def axes(weights=None, own=0.4, cross=0.8, seeds=7) -> Axes:
    return Axes.read(weights, own, cross, seeds)


def test_one_value_is_a_list_of_one():
    made = axes({"red": 2})
    assert made.about() == {
        "weights": {"red": (2.0,)},
        "cross": ((0.0, 0.8),),
        "self_attention": ((0.0, 0.4),),
        "seeds": (7,),
    }


def test_a_tuple_is_one_window_and_a_list_several():
    assert axes(cross=(0.2, 0.6)).cross == [(0.2, 0.6)]
    assert axes(cross=[0.2, (0.1, 0.6)]).cross == [(0.0, 0.2), (0.1, 0.6)]
    assert axes(own=np.array([0.25, 0.5])).own == [(0.0, 0.25), (0.0, 0.5)]
    assert axes(seeds=range(3)).seeds == [0, 1, 2]
    (drawn,) = axes(seeds=None).seeds
    assert 0 <= drawn < 2**31


def test_windows_are_filled_where_nobody_said_which():
    usual = ((0.0, 0.2), (0.0, 0.4))
    made = axes(own=None, cross=None).filled(*usual)
    assert (made.cross, made.own) == ([usual[0]], [usual[1]])
    made = axes(own=0.1, cross=[0.3, 0.5]).filled(*usual)
    assert (made.cross, made.own) == ([(0.0, 0.3), (0.0, 0.5)], [(0.0, 0.1)])


def test_every_combination_of_weights_the_last_word_fastest():
    made = axes({"red": [0, 1], "house": (2, 3)})
    assert list(made.each_weight()) == [{"red": a, "house": b} for a in (0, 1) for b in (2, 3)]
    assert list(axes().each_weight()) == [{}]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"weights": [1, 2]}, "expected weights by word"),
        ({"weights": {"red": []}}, "the weights of 'red' is empty"),
        ({"cross": []}, "cross is empty"),
        ({"own": [0.2, 2]}, "self_attention is 2: expected a fraction"),
        ({"seeds": -1}, "the seed is -1"),
    ],
)
def test_what_is_no_axis(given, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        axes(**given)


def test_something_varies_and_nothing_is_there_twice():
    axes(cross=[0.2, 0.4]).check(["a cat"])
    axes().check(["a cat", "a dog"])
    with pytest.raises(ArgumentError, match="nothing varies in this grid"):
        axes({"red": 2}).check(["a cat"])
    with pytest.raises(ArgumentError, match=r"cross has \(0\.0, 0\.2\) twice"):
        axes(cross=[0.2, (0, 0.2)]).check(["a cat"])
    with pytest.raises(ArgumentError, match="target has 'a cat' twice"):
        axes().check(["a cat", "a cat"])
