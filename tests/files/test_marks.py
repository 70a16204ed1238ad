"""The mark of a folder, and all that lies in one."""

import os
import re
from pathlib import Path

import pytest
from msgspec import Struct

from heedmap.files.marks import Kind, read_object, walk


class Thing(Struct):
    thing: int
    format: int


KIND = Kind("a thing", "thing.json", Thing, re.compile("thing.json"))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('{"thing": 1, "format": 1}', True),
        ('{"thing": 1, "format": 1, "more": []}', True),
        ('{"thing": 1}', False),
        ('{"thing": "1", "format": 1}', False),
        ('{"thing": "\\ud800", "format": 1}', False),
        ('{"thing": 1, "\\ud800": 1}', False),
        ("[]", False),
        ("{", False),
        ("", False),
    ],
)
def test_a_folder_is_known_by_what_its_mark_holds(tmp_path: Path, text, holds):
    assert not KIND.holds(tmp_path)
    (tmp_path / "thing.json").write_text(text)
    assert KIND.holds(tmp_path) is holds


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_a_link_is_no_mark_and_is_not_followed(tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mark").write_text('{"thing": 1, "format": 1}')
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "thing.json").symlink_to(tmp_path / "other" / "mark")
    (tmp_path / "here" / "deep").symlink_to(tmp_path / "other")
    assert not KIND.holds(tmp_path / "here")
    assert sorted(name for name, _ in walk(tmp_path / "here")) == ["deep", "thing.json"]


def test_folders_come_before_what_they_hold(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("")
    assert [name for name, _ in walk(tmp_path)] == ["a", "a/b", "a/b/c"]


def test_a_mark_that_is_larger_than_any_is_none(tmp_path: Path):
    """It would be read as a whole, to see whether it is one."""
    path = tmp_path / "run.json"
    for size, fine in ((16 * 2**20, True), (16 * 2**20 + 1, False)):
        path.write_bytes(b'{"a": "' + b"x" * (size - 9) + b'"}')
        assert path.stat().st_size == size
        assert (read_object(path) is not None) is fine
