"""What an argument must be: numbers of Python and numpy, and one sentence for all else."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedmap.checks import (
    as_list,
    as_ordered_list,
    check_float,
    check_fraction,
    check_int,
    check_one_of,
    check_subset,
    check_text,
)
from heedmap.errors import ArgumentError

NO_NUMBERS = [
    True, False, np.True_, None, "3", b"3", 1j, [3], (3,), {3}, np.array(3), np.array([1, 2]),
    np.ones((9, 9)), slice(3), Ellipsis, int,
]  # fmt: skip


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_whole_numbers_are_those_of_python_and_numpy(value):
    found = check_int("n", value, least=1, most=3)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize("value", [0.5, np.float16(0.5), np.float64(0.5), Fraction(1, 2)])
def test_numbers_are_those_of_python_and_numpy(value):
    found = check_float("n", value)
    assert found == 0.5 and type(found) is float
    assert check_fraction("n", value) == 0.5


def test_minus_zero_becomes_zero():
    """As "-0" it would stand in what a page says, and in its commands."""
    for value in (-0.0, np.float32(-0.0)):
        assert str(check_float("n", value)) == "0.0" == str(check_fraction("n", value))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_values_that_are_no_numbers_are_refused(value):
    for check in (check_float, check_fraction, check_int):
        with pytest.raises(ArgumentError):
            check("steps", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ArgumentError):
        check_float("guidance", value)


@given(st.integers(), st.integers(-9, 9), st.integers(-9, 9))
def test_ranges_include_their_ends(value, least, most):
    for check in (check_int, check_float):
        if least <= value <= most:
            assert check("n", value, least=least, most=most) == value
        else:
            with pytest.raises(ArgumentError):
                check("n", value, least=least, most=most)


def test_texts_are_checked_for_type_and_length():
    assert check_text("title", np.str_("a")) == "a"
    with pytest.raises(ArgumentError):
        check_text("title", 3, "a cat")
    assert check_text("title", "ab", most=2) == "ab"
    with pytest.raises(ArgumentError):
        check_text("title", "abc", most=2)


def test_unknown_names_are_refused():
    check_one_of("scale", "raw", {"word": 1, "raw": 2})
    for odd in ("loud", None, 3, ["raw"], np.array(["raw", "word"])):
        with pytest.raises(ArgumentError):
            check_one_of("scale", odd, ["word", "raw"])
    assert check_subset("keep", iter(["a", "c"]), "abc") == ("a", "c")
    assert check_subset("keep", set(), "abc") == ()
    assert check_subset("keep", "all", "abc") == ("a", "b", "c")
    found = check_subset("keep", np.array(["a", "c"]), "abc")
    assert found == ("a", "c") and {type(one) for one in found} == {str}
    for odd in ("a", 3, ["a", "d"], [["a"]]):
        with pytest.raises(ArgumentError):
            check_subset("keep", odd, "abc")
    with pytest.raises(ArgumentError):
        check_subset("keep", (), "a", least=1)


def test_sets_have_no_order():
    for ordered in ([3, 1], (3, 1), np.array([3, 1]), {3: "a", 1: "b"}.keys(), iter([3, 1])):
        assert as_ordered_list(ordered) == [3, 1]
    for other in ({3, 1}, frozenset([3, 1]), "ab", None, 3):
        assert as_ordered_list(other) is None
    assert sorted(as_list({3, 1}) or ()) == [1, 3]
