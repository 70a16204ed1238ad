"""A small kind of folder, saved as the tests of files need it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from making import MARKS
from msgspec import Struct

from heedmap.files.writing import Kind, whole_folder


class Thing(Struct):
    thing: str


KIND = Kind("a thing", "thing.json", Thing, re.compile(r"thing\.json|parts/\d+\.png"))
RUN_JSON = json.dumps(MARKS["run.json"])


posix = pytest.mark.skipif(os.name == "nt", reason="modes and locks of POSIX")


def save(folder: Path, text: str = "one", *, parts: int = 2, force: bool = False) -> Path:
    """A folder of a small kind, whose files all say the same."""
    with whole_folder(folder, KIND, force=force) as partial:
        (partial / "parts").mkdir()
        for number in range(parts):
            (partial / "parts" / f"{number}.png").write_text(text)
        (partial / "thing.json").write_text(json.dumps({"thing": text}))
    return folder


def tree(folder: Path) -> dict[str, str | None]:
    """What is in each file, where each link leads, None for folders."""
    found: dict[str, str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = None if path.is_dir() else path.read_bytes().decode("latin-1")
    return found


def one(text: str, parts: int = 2) -> dict[str, str | None]:
    return {
        "parts": None,
        **{f"parts/{n}.png": text for n in range(parts)},
        "thing.json": json.dumps({"thing": text}),
    }


def notes(folder: Path) -> dict[str, str | None]:
    """What a user puts into a folder, and what it is."""
    (folder / "notes.txt").write_text("five years")
    (folder / "drafts" / "old").mkdir(parents=True)
    (folder / "drafts" / "old" / "a.txt").write_text("a")
    (folder / "empty").mkdir()
    (folder / "parts" / "mine.txt").write_text("b")
    (folder / "link").symlink_to("/nowhere")
    (folder / "linked").symlink_to("drafts", target_is_directory=True)
    return {
        "notes.txt": "five years", "drafts": None, "drafts/old": None, "drafts/old/a.txt": "a",
        "empty": None, "parts/mine.txt": "b", "link": "/nowhere", "linked": "drafts",
    }  # fmt: skip


def new_in(folder: Path, *names: str) -> Path:
    """A scratch folder in another, with new files that say "new"."""
    made = folder / ".heedmap.aaaaaaaa"
    (made / "new").mkdir(parents=True)
    for name in names:
        (made / "new" / name).write_text("new")
    return made


SAVING = """
import json, os, re, sys, time
from pathlib import Path
from msgspec import Struct
from heedmap.files.writing import Destination, Kind, whole_folder
class Thing(Struct):
    thing: str
NAMES = re.compile(r"thing\\.json|parts/\\d+\\.png")
KIND = Kind("a thing", "thing.json", Thing, NAMES)
root, name, text, count, pause, force = sys.argv[1:]

def save(folder, *, force):
    with whole_folder(folder, KIND, force=force) as partial:
        (partial / "parts").mkdir()
        for number in range(4):
            (partial / "parts" / f"{number}.png").write_text(text)
            time.sleep(float(pause))
        (partial / "thing.json").write_text(json.dumps({"thing": text}))

print("ready", flush=True)
for _ in range(int(count)):
    if force == "force":
        save(Path(root, name), force=True)
    else:
        Destination(None, KIND, root=root).put(save, name)
"""


def saving(root: Path, text: str, *, count: int, pause: float = 0, force: bool = False):
    """A process that saves a folder `x` so many times."""
    arguments = [root, "x", text, count, pause, "force" if force else "new"]
    process = subprocess.Popen(
        [sys.executable, "-c", SAVING, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process
