"""The parts of a run's folder: read where the run lists them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import made_run, noting
from PIL import Image

from heedmap import Run
from heedmap.errors import RunError
from heedmap.io.writing import digest_of

SOFT = Image.new("RGB", (128, 128), (40, 80, 120))


def with_given(**more: Any) -> Run:
    """A run that was drawn from a picture, as the source of an edit."""
    noted = {"size": [300, 200], "sha256": digest_of(SOFT)}
    run = noting(made_run(), given=noted, batch_place=[0, 2], **more)
    return Run(run.image, run.maps, run.settings, given=SOFT)


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
