"""Sentences of errors and warnings: one line, short, and at the caller's line."""

import linecache
import subprocess
import sys
import warnings

import pytest

from heedmap import errors


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


def test_errors_are_found_in_their_module_and_at_the_top():
    code = "import heedmap as hm; assert hm.errors.WordError is hm.WordError"
    subprocess.run([sys.executable, "-c", code], check=True)
