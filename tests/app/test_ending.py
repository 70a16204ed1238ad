"""The app when it is ended: nothing temporary is left."""

import os
import signal
from pathlib import Path

import pytest

from app.serving import serve


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_temporary_results_are_deleted(tmp_path: Path, name: str):
    place = tmp_path / "temporary"
    place.mkdir()
    flags = ["--auth", "name:password"] if name == "SIGTERM" else []
    with serve(tmp_path / "app", *flags, end=getattr(signal, name), TMPDIR=str(place)):
        (folder,) = place.glob("heedmap-*")
        (folder / "session-x").mkdir()
        (folder / "session-x" / "image.png").write_bytes(b"an image")
    assert not [*place.glob("heedmap-*")]
