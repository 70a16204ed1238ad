"""What was saved, as the disk tells it: before, after and in between."""

import os
from pathlib import Path

from heedmap.files.placing import Places


def test_a_file_counts_when_it_is_there(tmp_path: Path):
    places, path = Places(), tmp_path / "x"
    places.begin(path)
    assert places.saved() == []
    path.mkdir()
    assert places.saved() == []  # no file
    path.rmdir()
    path.write_text("x")
    assert places.saved() == [path]


def test_what_was_there_before_was_not_saved_now(tmp_path: Path):
    places, path = Places(), tmp_path / "x"
    path.write_text("old")
    places.begin(path)
    assert places.saved() == []
    (tmp_path / "new").write_text("new")
    os.replace(tmp_path / "new", path)
    assert places.saved() == [path]
    path.unlink()
    assert places.saved() == []


def test_a_folder_counts_when_it_holds_what_is_meant(tmp_path: Path):
    places = Places(lambda folder: (folder / "mark").exists())
    some, other = tmp_path / "a", tmp_path / "b"
    for path in (some, other):
        places.begin(path)
        path.mkdir()
    assert places.saved() == []
    (other / "mark").touch()
    assert places.saved() == [other]


def test_an_empty_folder_that_is_filled_where_it_is(tmp_path: Path):
    """Its name and its inode stay."""
    places = Places(lambda folder: (folder / "mark").exists())
    places.begin(tmp_path)
    (tmp_path / "mark").touch()
    assert places.saved() == [tmp_path]
