"""The app when it is ended: nothing temporary is left."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import httpx
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


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_job_at_work_is_cancelled(tmp_path: Path):
    call = "/gradio_api/call/generate"
    fields = ["heedmap-tiny", "a cat", "1", "20", "", "384", "", [], "all", ""]
    with ExitStack() as stack, serve(tmp_path) as url:
        asked = httpx.post(url + call, json={"data": fields}, timeout=60).json()
        follow = httpx.stream("GET", f"{url}{call}/{asked['event_id']}", timeout=60)
        lines = stack.enter_context(follow).iter_lines()
        assert any("Step" in line for line in lines)
    assert not [*tmp_path.rglob("run.json")]
