"""Sentences: one line, short, and nothing in them that a terminal would act upon."""

import linecache
import warnings

import numpy as np
import pytest

from heedmap import errors
from heedmap.errors import as_sentence, plural, quoted, reason, signed, warn


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a red house", "'a red house'"),
        (np.str_("a red house"), "'a red house'"),
        ("x" * 60, f"'{'x' * 60}'"),
        ("x" * 61, f"'{'x' * 59}…'"),
        ("\x1b]0;a\x07\n", r"'\x1b]0;a\x07\n'"),
        (None, "None"),
        ([1, 2.5], "[1, 2.5]"),
        ("x" * 10**6, f"'{'x' * 59}…'"),
        ([0] * 27, f"{str([0] * 27)[:79]}…"),
        (int("1" * 80), "1" * 80),
        (int("1" * 81), "1" * 79 + "…"),
        (10**5000, "a int"),
        ([10**5000], "a list"),
    ],
    ids=lambda _: "",
)
def test_values_are_quoted_shortly(value: object, said: str):
    assert quoted(value) == said


def test_values_are_quoted_in_one_line():
    class Odd:
        def __repr__(self) -> str:
            return "a\n  b\r\n\tc"

    assert quoted(Odd()) == "a b c"


def test_what_other_libraries_say_is_told_by_its_first_line():
    assert reason(ValueError(f"{'x' * 500}\nsecond")) == f"ValueError: {'x' * 200}"
    assert reason(KeyError()) == "KeyError"


def test_counts():
    assert [plural(n, "word") for n in (0, 1, 2)] == ["0 words", "1 word", "2 words"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("the seed is 'x': expected a whole number", "The seed is 'x': expected a whole number."),
        ("Wait a while.", "Wait a while."),
        ("which\n one?", "Which one?"),
    ],
)
def test_a_message_that_stands_by_itself(said: str, sentence: str):
    assert as_sentence(said) == sentence


@pytest.mark.parametrize(
    "counts, said",
    [
        ([0, 1, 1023], "0 bytes, 1 byte, 1023 bytes"),
        ([2**10, 64 * 2**20, 3 * 2**30], "1 KiB, 64 MiB, 3 GiB"),
        ([1536, 1600, 10 * 2**20 + 2**19, 1000 * 2**20], "1.5 KiB, 1.56 KiB, 10.5 MiB, 1,000 MiB"),
        ([2**20 - 1, 2**50], "1,024 KiB, 1,024 TiB"),
        # What would take too much by a byte is told to be more.
        ([8921, 8920], "8.712 KiB, 8.711 KiB"),
        ([64 * 2**20 + 1, 64 * 2**20], "64.000001 MiB, 64 MiB"),
        ([2**31 + 1, 2**31, 2**31], "2.000000001 GiB, 2 GiB, 2 GiB"),
    ],
)
def test_sizes_that_differ_are_told_apart(counts: list[int], said: str):
    assert ", ".join(errors.sizes(*counts)) == said


def test_warnings_are_told_when_they_come_and_before_a_failure():
    told: list[str] = []
    with pytest.raises(MemoryError), errors.warnings_heard(told.append) as said:
        warnings.warn("of a library", UserWarning, stacklevel=1)
        assert told == []
        errors.warn("it will take 4 GiB")
        assert told == said == ["it will take 4 GiB"]
        errors.warn("it will take 4 GiB")
        errors.warn("it changed nothing")
        raise MemoryError
    assert told == said == ["it will take 4 GiB", "it changed nothing"]
    with errors.warnings_heard() as quiet:
        errors.warn("again")
    assert quiet == ["again"] and len(told) == 2


def test_a_warning_is_at_the_line_of_who_called():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn("it is late")
    (one,) = seen
    assert str(one.message) == "it is late" and one.filename == __file__
    assert linecache.getline(one.filename, one.lineno).strip() == 'warn("it is late")'


@pytest.mark.parametrize(
    ("value", "form", "said"),
    [
        (-1.5, "g", "−1.5"),
        (2, "g", "2"),
        (-0.004, ".2f", "0.00"),
        (-0.006, ".2f", "−0.01"),
        (1e-9, ".3g", "1e−09"),
        (-0.0, "g", "0"),
    ],
)
def test_a_number_has_a_true_minus_or_none(value, form, said):
    assert signed(value, form) == said
