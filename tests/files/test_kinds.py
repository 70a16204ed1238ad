"""The files of each kind of folder: what a stranger's list may name, and what it may not."""

import json
from pathlib import Path

import pytest
from making import CELL, MARKS, REPORT, SETTINGS

from files.saving import KIND, one, posix, save, tree
from heedmap.errors import HeedmapWarning
from heedmap.files import kinds
from heedmap.files.writing import Kind, TakenError, remove_folder, whole_folder


def test_names_that_a_stranger_lists_lead_nowhere(tmp_path: Path):
    outside = tmp_path / "1-mine.png"
    outside.write_text("mine")
    folder = tmp_path / "deep" / "x"
    listed = ["notes.txt", "../../1-mine.png", str(outside), "words/../../../1-mine.png", None, 7]
    listed += ["words/0-a.png", "words/1-b.gif", "words/deep/1-c.png"]
    for name in ("notes.txt", "words/0-a.png", "words/1-b.gif", "words/deep/1-c.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    words = [{"file": name} for name in listed] + ["odd", None]
    about = {"format": 1, "settings": SETTINGS, "words": words}
    (folder / "run.json").write_text(json.dumps(about))
    with whole_folder(folder, kinds.RUN, force=True) as partial:
        (partial / "run.json").write_text("{}")
    assert tree(folder) == {
        "notes.txt": "mine", "run.json": "{}", "words": None, "words/1-b.gif": "mine",
        "words/deep": None, "words/deep/1-c.png": "mine",
    }  # fmt: skip
    assert outside.read_text() == "mine"


def test_of_the_names_of_a_kind_only_those_that_were_written_are_replaced(tmp_path: Path):
    kind = Kind(
        KIND.what, KIND.mark, KIND.schema, KIND.names, lambda _: {"thing.json", "parts/0.png"}
    )
    folder = save(tmp_path / "x", parts=1)
    with whole_folder(folder, kind, force=True) as partial:
        (partial / "thing.json").write_text('{"thing": "two"}')
    (folder / "parts").mkdir()
    (folder / "parts" / "7.png").write_text("mine")
    before = tree(folder)
    with (
        pytest.raises(TakenError, match=r"holds parts/7\.png, which heedmap did not write"),
        whole_folder(folder, kind, force=True),
    ):
        raise AssertionError("it was let in")
    assert tree(folder) == before
    assert not remove_folder(folder, kind) and tree(folder) == before


@posix
def test_files_whose_names_only_begin_as_heedmaps_stay(tmp_path: Path):
    folder = save(tmp_path / "x")
    mine = {"thing.json.bak": "mine", "thing.json~": "mine", "parts/0.png.orig": "mine"}
    for name, text in mine.items():
        (folder / name).write_text(text)
    save(folder, "two", force=True)
    assert tree(folder) == {**one("two"), **mine}
    assert not remove_folder(folder, KIND)


def test_what_a_mark_does_not_list_was_not_written(tmp_path: Path):
    """A run without a sheet, and a cell without a mask: such files are a user's."""
    about = {"format": 1, "settings": SETTINGS, "files": ["image.png"]}
    (tmp_path / "run.json").write_text(json.dumps(about))
    assert kinds.RUN.written is not None and kinds.GRID.written is not None
    assert kinds.RUN.written(tmp_path) == {"image.png"}
    cells = [{**CELL, "blended": False}, {**CELL, "blended": True}, CELL]
    grid = {"format": 1, "about": {}, "cells": cells, "files": ["grid.png"]}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    found = kinds.GRID.written(tmp_path)
    assert [f"cells/00{n}/blend.png" in found for n in (1, 2, 3)] == [False, True, True]
    assert "grid.png" in found and "grid.csv" not in found


# What a user's own file of that name might hold, with all the keys of heedmap's.
FOREIGN = [
    ("run.json", {"format": 1, "settings": {}}),
    ("run.json", {"format": 1, "settings": {**SETTINGS, "size": "large"}}),
    ("run.json", {"format": 1, "settings": [1]}),
    ("pair.json", {"format": 1, "about": {}}),
    ("pair.json", {"format": 1, "about": {**REPORT, "change": None}}),
    ("grid.json", {"format": 1, "about": {}, "cells": []}),
    ("grid.json", {"format": 1, "about": {}, "cells": [{}]}),
    ("ablate.json", {**MARKS["ablate.json"], "tokens": []}),
    ("ablate.json", {**MARKS["ablate.json"], "word": 7}),
    ("inspect.json", {"run": 5, "folder": "y", "selection": {}, "words": []}),
    ("inspect.json", {"run": "x", "folder": "y", "selection": {}, "words": "all"}),
    ("segment.json", {**MARKS["segment.json"], "threshold": "half"}),
    ("segment.json", {**MARKS["segment.json"], "phrases": [{"name": "house"}]}),
]
OF_MARK = {
    kind.mark: kind
    for kind in (
        *(kinds.RUN, kinds.PAIR, kinds.GRID, kinds.ABLATION, kinds.SELECTION, kinds.SEGMENTS),
    )
}


@pytest.mark.parametrize(("mark", "held"), FOREIGN)
def test_a_mark_of_the_right_keys_alone_makes_no_folder_ours(tmp_path: Path, mark, held):
    kind, folder = OF_MARK[mark], tmp_path / "x"
    folder.mkdir()
    for name in ("image.png", "maps.safetensors", "sheet.png", "grid.png", "index.html"):
        (folder / name).write_text("mine")
    (folder / mark).write_text(json.dumps(held))
    before = tree(tmp_path)
    with (
        pytest.raises(TakenError, match=f"x exists and is not {kind.what}: nothing was written"),
        whole_folder(folder, kind, force=True),
    ):
        raise AssertionError("it was let in")
    assert not remove_folder(folder, kind) and not kinds.written_in(folder, kind)
    assert tree(tmp_path) == before
    (folder / mark).write_text(json.dumps(MARKS[mark]))
    assert kind.holds(folder)


@pytest.mark.parametrize("held", [None, {}, {"format": 1, "settings": {}}])
@pytest.mark.parametrize(
    ("mark", "inner"),
    [("pair.json", "source"), ("pair.json", "edited"), ("grid.json", "cells/001"),
     ("grid.json", "sources/7"), ("ablate.json", "run"), ("ablate.json", "columns"),
     ("ablate.json", "unread")],
)  # fmt: skip
def test_nor_one_within_an_edit_or_a_grid(tmp_path: Path, mark, inner, held):
    folder = tmp_path / "x"
    (folder / inner).mkdir(parents=True)
    (folder / mark).write_text(json.dumps(MARKS[mark]))
    (folder / inner / "image.png").write_text("mine")
    if held is not None:
        (folder / inner / "run.json").write_text(json.dumps(held))
    before = tree(tmp_path)
    with (
        pytest.raises(TakenError, match=f"x holds {inner}/.*, which heedmap did not write"),
        whole_folder(folder, OF_MARK[mark], force=True),
    ):
        raise AssertionError("it was let in")
    assert tree(tmp_path) == before
    (folder / inner / "run.json").write_text(json.dumps(MARKS["run.json"]))
    with whole_folder(folder, OF_MARK[mark], force=True) as partial:
        (partial / mark).write_text("{}")
    assert tree(folder) == {mark: "{}"}


def test_what_is_of_an_older_result_is_named_but_no_file_and_no_link(tmp_path: Path, recwarn):
    folder = tmp_path / "x"
    (folder / "mine" / "deep").mkdir(parents=True)
    (folder / "mine" / "inspect").write_text("a file of the user's")
    (folder / "explain").symlink_to(folder / "mine", target_is_directory=True)
    kinds.tell_older(folder, folder)
    assert not recwarn.list
    for count in range(1, 6):
        (folder / "cells" / f"00{count}" / "inspect").mkdir(parents=True)
        with pytest.warns(HeedmapWarning) as told:
            kinds.tell_older("x", folder)
        said = str(told[0].message)
        assert said.count("inspect") == min(count, 3) and len(told) == 1
        assert f" {'is' if count == 1 else 'are'} of what was replaced: delete" in said
