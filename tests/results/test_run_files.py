"""The parts of a run's folder: read where the run lists them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import made_run, made_trust, noting, settings_of
from PIL import Image

from heedmap import Run
from heedmap.errors import RunError
from heedmap.files.pictures import digest_of
from heedmap.files.schemas import RunFile
from heedmap.results.run_files import is_placed, trust_in

SOFT = Image.new("RGB", (128, 128), (40, 80, 120))


def with_given(**more: Any) -> Run:
    """A run that was drawn from a picture, as the source of an edit."""
    noted = {"size": [300, 200], "sha256": digest_of(SOFT)}
    run = noting(made_run(), given=noted, batch_place=[0, 2], **more)
    return Run(run.image, run.maps, run.settings, given=SOFT)


def told(folder: Path, **changed: Any) -> None:
    """Change what a run says of itself."""
    path = folder / "run.json"
    held = json.loads(path.read_text(encoding="utf-8"))
    held["settings"] |= changed
    path.write_text(json.dumps(held), encoding="utf-8")


def test_the_picture_that_was_edited_is_read_back(tmp_path: Path):
    saved = Run.load(with_given().save(tmp_path / "x", overlays=False))
    assert saved.given is not None and np.array_equal(np.asarray(saved.given), np.asarray(SOFT))


def test_another_picture_in_its_place_is_seen(tmp_path: Path):
    folder = with_given().save(tmp_path / "x", overlays=False)
    Image.new("RGB", (128, 128), (40, 80, 121)).save(folder / "given.png")
    with pytest.raises(RunError):
        Run.load(folder)
    SOFT.resize((64, 64)).save(folder / "given.png")
    with pytest.raises(RunError):
        Run.load(folder)


def test_a_picture_that_no_settings_tell_of_is_refused(tmp_path: Path):
    folder = with_given().save(tmp_path / "x", overlays=False)
    held = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    del held["settings"]["given"]
    (folder / "run.json").write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(RunError):
        Run.load(folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_place": None},  # an edit and its source are drawn together
        {"located": {"size": [128, 128], "sha256": "x"}},  # looked at, and edited
    ],
)
def test_what_cannot_have_been_is_refused(tmp_path: Path, changed: dict[str, Any]):
    folder = with_given().save(tmp_path / "x", overlays=False)
    told(folder, **changed)
    with pytest.raises(RunError):
        Run.load(folder)


GIVEN = {"size": [300, 200], "sha256": digest_of(SOFT)}
LOOKED: dict[str, Any] = {"located": {"size": [128, 128], "sha256": "x"}}
EDIT = {"source": "at sea", "cross": [0.0, 0.8], "self": [0.0, 0.4]}
WEIGHED = [{"kind": "reweight", "word": "house", "weight": 2.0, "renormalize": False}]


@pytest.mark.parametrize(
    ("noted", "placed"),
    [
        ({}, True), ({"edits": WEIGHED}, True),
        ({"edit": EDIT}, True),
        ({"given": GIVEN}, False), ({"given": GIVEN, "edit": EDIT}, False),
        # A number below how many there were; that of an edit is none of the first.
        ({"batch_place": [0, 1]}, True), ({"batch_place": [1, 2]}, True),
        ({"batch_place": [0, 0]}, False), ({"batch_place": [1, 1]}, False),
        ({"batch_place": [2, 1]}, False), ({"batch_place": [0, 2], "given": GIVEN}, True),
        ({"batch_place": [0, 2], "edit": EDIT}, False),
        ({"batch_place": [1, 2], "edit": EDIT}, True),
        ({"batch_place": [1, 2], "edit": EDIT, "given": GIVEN}, True),
        ({"batch_place": [2, 2], "edit": EDIT, "given": GIVEN}, False),
        # What drew nothing was no edit, and alone.
        (LOOKED, True), (LOOKED | {"edit": EDIT}, False), (LOOKED | {"given": GIVEN}, False),
        (LOOKED | {"batch_place": [0, 1]}, False), (LOOKED | {"edits": WEIGHED}, False),
    ],
)  # fmt: skip
def test_the_places_that_a_run_can_have_had(noted: dict[str, Any], placed: bool):
    assert is_placed(settings_of(**noted)) is placed


@pytest.mark.parametrize(
    "noted",
    [
        {"located": {"size": [300, 200], "sha256": "0" * 64}},
        {"given": {"size": [300, 200], "sha256": "0" * 64}},
        {"edit": {"source": "x", "cross": [0, 1], "self": [0, 1]}},
    ],
)
def test_what_no_word_can_be_left_out_of_says_nothing_of_trust(tmp_path: Path, noted: Any):
    table, trust = made_run().maps.tokens, {"house": made_trust()}
    plain, other = (
        RunFile(files=(), settings=settings_of(**one), trust=trust) for one in ({}, noted)
    )
    assert trust_in(tmp_path, plain, table) == trust
    with pytest.raises(RunError, match="trust"):
        trust_in(tmp_path, other, table)
    silent = RunFile(files=(), settings=settings_of(**noted))
    assert not trust_in(tmp_path, silent, table)
