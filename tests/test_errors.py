"""Sentences: one line, short, and nothing in them that a terminal would act upon."""

import linecache
import subprocess
import sys
import warnings

import pytest

from heedmap import errors
from heedmap.errors import as_sentence, format_number, plural, reason, warn


def test_errors_of_libraries_are_cut_to_their_first_line():
    assert reason(ValueError(f"{'x' * 500}\nsecond")) == f"ValueError: {'x' * 200}"
    assert reason(KeyError()) == "KeyError"


def test_counts_are_singular_or_plural():
    assert [plural(n, "word") for n in (0, 1, 2)] == ["0 words", "1 word", "2 words"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("the seed is 'x': expected a whole number", "The seed is 'x': expected a whole number."),
        ("Wait a while.", "Wait a while."),
        ("which\n one?", "Which one?"),
    ],
)
def test_a_message_becomes_a_sentence(said: str, sentence: str):
    assert as_sentence(said) == sentence


def test_warnings_are_passed_on_at_once():
    told: list[str] = []
    with pytest.raises(MemoryError), errors.record_warnings(told.append) as said:
        warnings.warn("of a library", UserWarning, stacklevel=1)
        assert told == []
        errors.warn("it will take 4 GiB")
        assert told == said == ["it will take 4 GiB"]
        errors.warn("it will take 4 GiB")
        errors.warn("it changed nothing")
        raise MemoryError
    assert told == said == ["it will take 4 GiB", "it changed nothing"]
    with errors.record_warnings() as quiet:
        errors.warn("again")
    assert quiet == ["again"] and len(told) == 2


def test_a_warning_points_to_the_callers_line():
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
def test_numbers_have_a_true_minus_sign(value, form, said):
    assert format_number(value, form) == said


def test_sizes_have_binary_units():
    assert [errors.format_bytes(count) for count in (0, 1536, 3 * 2**30)] == [
        "0 bytes", "1.5 KiB", "3 GiB",
    ]  # fmt: skip


def test_errors_are_found_in_their_module_and_at_the_top():
    code = "import heedmap as hm; assert hm.errors.WordError is hm.WordError"
    subprocess.run([sys.executable, "-c", code], check=True)
