"""The numbers that a visitor types."""

import pytest

from heedmap.app import numbers
from heedmap.errors import ArgumentError


@pytest.mark.parametrize(
    "text", ["x", "nan", "inf", "1e400", [7], "7 8", "0x7", "−", "1_0", "٨", 10**400]
)
def test_what_is_no_number(text):
    for read in (numbers.whole_number, numbers.real_number):
        with pytest.raises(ArgumentError, match=r"the seed is .*: expected a (whole )?number"):
            read(text, "the seed")


def test_a_long_number_is_not_read_in_part():
    for long in ("1" + "0" * 400, 10**5000):
        for read in (numbers.whole_number, numbers.real_number):
            with pytest.raises(ArgumentError, match=r"it is .*: expected a (whole )?number"):
                read(long, "it")


def test_a_hundred_signs_are_read():
    assert numbers.whole_number("7".rjust(100, "0"), "it") == 7
    assert numbers.real_number("0.5".ljust(100, "0"), "it") == 0.5
    for read in (numbers.whole_number, numbers.real_number):
        with pytest.raises(ArgumentError, match=r"^it is '0+…': expected a (whole )?number$"):
            read("7".rjust(101, "0"), "it")


def test_numbers_that_may_be_left_out():
    assert [numbers.whole_number(text, "it") for text in ("", None, " ", "7", " 7 ", "-7", 7)] == [
        *(None, None, None, 7, 7, -7, 7)
    ]
    assert numbers.whole_number(str(2**63 - 1), "it") == 2**63 - 1  # no float on the way
    assert [numbers.real_number(text, "it") for text in ("", "0.5", "4", 0.8)] == [
        None,
        0.5,
        4,
        0.8,
    ]
    with pytest.raises(ArgumentError, match=r"the seed is '7.5': expected a whole number"):
        numbers.whole_number("7.5", "the seed")
