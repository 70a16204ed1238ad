"""Sentences of errors and warnings: one line, short, and at the caller's line."""

import linecache
import subprocess
import sys
import warnings

import pytest

from heedmap import errors


def test_errors_of_libraries_are_cut_to_their_first_line():
    assert errors.reason(ValueError(f"{'x' * 500}\nsecond")) == f"ValueError: {'x' * 200}"
    assert errors.reason(KeyError()) == "KeyError"


def test_a_message_becomes_a_sentence():
    assert errors.as_sentence("the seed is 'x'") == "The seed is 'x'."
    assert errors.as_sentence("which\n one?") == "Which one?"


def test_warnings_are_passed_on_at_once():
    heard: list[str] = []
    with pytest.raises(MemoryError), errors.record_warnings(heard.append) as messages:
        warnings.warn("of a library", UserWarning, stacklevel=1)
        errors.warn("it will take 4 GiB")
        assert heard == messages == ["it will take 4 GiB"]
        errors.warn("it will take 4 GiB")
        errors.warn("it changed nothing")
        raise MemoryError
    assert heard == messages == ["it will take 4 GiB", "it changed nothing"]


def test_a_warning_points_to_the_callers_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        errors.warn("it is late")
    (warning,) = caught
    assert warning.filename == __file__
    line = linecache.getline(warning.filename, warning.lineno)
    assert line.strip() == 'errors.warn("it is late")'


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(-1.5, "g", "−1.5"), (-0.004, ".2f", "0.00"), (-0.006, ".2f", "−0.01"), (1e-9, "g", "1e−09")],
)
def test_numbers_have_a_true_minus_sign(value, form, text):
    assert errors.format_number(value, form) == text


def test_errors_are_found_in_their_module_and_at_the_top():
    code = "import heedmap as hm; assert hm.errors.WordError is hm.WordError"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_counts_and_sizes_have_units():
    assert [errors.plural(n, "word") for n in (0, 1, 2)] == ["0 words", "1 word", "2 words"]
    sizes = [errors.format_bytes(count) for count in (0, 1536, 3 * 2**30)]
    assert sizes == ["0 bytes", "1.5 KiB", "3 GiB"]
