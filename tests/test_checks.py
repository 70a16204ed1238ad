"""What an argument must be: numbers of Python and numpy, texts, and names."""

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


def test_numbers_are_those_of_python_and_numpy():
    for whole in (3, np.int8(3), np.uint64(3)):
        value = check_int("n", whole, least=1, most=3)
        assert value == 3 and type(value) is int
    for number in (0.5, np.float16(0.5), np.float64(0.5), Fraction(1, 2)):
        value = check_float("n", number)
        assert value == 0.5 == check_fraction("n", number) and type(value) is float
    # As "-0" it would stand in what a page says, and in its commands.
    assert str(check_float("n", np.float32(-0.0))) == "0.0"


@pytest.mark.parametrize(
    "value", [True, np.True_, None, "3", 1j, [3], np.array(3), math.nan, math.inf], ids=repr
)
def test_other_values_are_refused_as_numbers(value):
    for check in (check_float, check_fraction, check_int):
        with pytest.raises(ArgumentError, match="steps"):
            check("steps", value)


@given(st.integers(), st.integers(-9, 9), st.integers(-9, 9))
def test_ranges_include_their_ends(value, least, most):
    for check in (check_int, check_float):
        if least <= value <= most:
            assert check("n", value, least=least, most=most) == value
        else:
            with pytest.raises(ArgumentError):
                check("n", value, least=least, most=most)


def test_texts_are_checked_for_type_and_length():
    assert check_text("title", np.str_("ab"), most=2) == "ab"
    for value in (3, "abc", "\ud800"):
        with pytest.raises(ArgumentError, match="title"):
            check_text("title", value, most=2)


def test_unknown_names_are_refused():
    check_one_of("scale", "raw", {"word": 1, "raw": 2})
    for value in ("loud", None, ["raw"]):
        with pytest.raises(ArgumentError, match="scale"):
            check_one_of("scale", value, ["word", "raw"])
    for names in (iter(["a", "c"]), np.array(["a", "c"])):
        assert check_subset("keep", names, "abc") == ("a", "c")
    assert check_subset("keep", set(), "abc") == ()
    assert check_subset("keep", "all", "abc") == ("a", "b", "c")
    for value, least in (("a", 0), (3, 0), (["a", "d"], 0), ((), 1)):
        with pytest.raises(ArgumentError, match="keep"):
            check_subset("keep", value, "abc", least=least)


def test_sets_have_no_order():
    for ordered in ([3, 1], np.array([3, 1]), {3: "a", 1: "b"}.keys(), iter([3, 1])):
        assert as_ordered_list(ordered) == [3, 1]
    for other in ({3, 1}, "ab", None, 3):
        assert as_ordered_list(other) is None
    assert sorted(as_list({3, 1}) or ()) == [1, 3]
