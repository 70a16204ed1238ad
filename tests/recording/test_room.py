"""Whether what a call will keep fits; that it is counted to the byte: test_recorder."""

import pytest
from making import run

from heedmap.errors import ArgumentError
from heedmap.options import GenerateOptions
from heedmap.recording.recorder import WARN, check_heads
from heedmap.recording.tracing import trace


def test_large_recordings_say_so_beforehand(pipe, monkeypatch):
    monkeypatch.setattr("heedmap.recording.recorder.WARN", 1000)
    with pytest.warns(UserWarning, match=r"will take [\d.]+ KiB of memory"), trace(pipe):
        run(pipe, "a house", steps=1)


def test_what_a_trace_may_keep_unless_told_otherwise():
    assert (GenerateOptions.limit, WARN) == (2 * 1024**3, 256 * 1024**2)


def test_heads_of_layers_with_different_numbers_cannot_be_kept_alone():
    check_heads({2}, {"head"})
    with pytest.raises(ArgumentError, match=r"'layer', 'head'"):
        check_heads({2, 3}, {"head"})
