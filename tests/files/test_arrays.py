"""Arrays of a file, one by one; whole files are in tests/maps/test_recordings.py."""

import io
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from heedmap.files.arrays import LARGEST, Arrays


@pytest.fixture
def written(tmp_path: Path):
    arrays = {
        "one": np.arange(6, dtype=np.float32).reshape(2, 3),
        "most": np.array([LARGEST, -LARGEST], np.float32) * np.float32(0.999),
        "nan": np.array([0, np.nan], np.float32),
        "inf": np.array([np.inf, 0], np.float32),
        "double": np.zeros(3),
    }
    save_file(arrays, tmp_path / "x", metadata={"heedmap": "told"})
    with (tmp_path / "x").open("rb") as file:
        yield Arrays(file)


def test_what_is_there_is_read(written: Arrays):
    assert (written.about, written.names) == (b"told", {"one", "most", "nan", "inf", "double"})
    np.testing.assert_array_equal(written.sound("one", (2, 3)), [[0, 1, 2], [3, 4, 5]])
    assert written.sound("most", (2,)).max() < LARGEST


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("one", (3, 2), "another shape or type"),
        ("one", (6,), "another shape or type"),
        ("double", (3,), "another shape or type"),
        ("nan", (2,), "NaN, infinite or far too large"),
        ("inf", (2,), "NaN, infinite or far too large"),
    ],
)
def test_what_is_not_sound_is_refused(written: Arrays, name: str, shape, why: str):
    with pytest.raises(ValueError, match=why):
        written.sound(name, shape)


def test_a_stream_that_is_no_file_of_the_system_is_refused():
    with pytest.raises(OSError, match="fileno"):
        Arrays(io.BytesIO(b"\x02" + b"\0" * 7 + b"{}"))
