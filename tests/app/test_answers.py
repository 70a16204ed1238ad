"""Files as answers: released at the end, and able to do nothing."""

import asyncio
import io
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from starlette.exceptions import HTTPException

from heedmap.app.answers import FileAnswer, shut_off


def sent(answer: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        told.append(message)

    async def receive() -> Any:
        await asyncio.sleep(60)

    scope = {"type": "http", "client": ("127.0.0.1", 1), "extensions": {}}
    asyncio.run(answer(scope, receive, send))
    return told


def test_a_file_is_sent_whole_and_let_go():
    file, held = io.BytesIO(b"x" * 600_000), ExitStack()
    held.callback(file.close)
    told = sent(FileAnswer(file, "image/png", {"x-mine": "1"}, held))
    headers = dict(told[0]["headers"])
    assert headers[b"content-length"] == b"600000" and headers[b"x-mine"] == b"1"
    assert headers[b"cache-control"] == b"private, no-store"
    assert b"".join(one.get("body", b"") for one in told[1:]) == b"x" * 600_000
    assert file.closed


def test_what_is_shown_can_do_nothing(tmp_path: Path):
    (tmp_path / "x.html").write_text("<p>")
    answer = shut_off(tmp_path / "x.html", "text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-downloads; default-src 'none'")
    assert "allow-same-origin" not in policy and "connect-src" not in policy
    sent(answer)
    os.mkfifo(tmp_path / "pipe")  # not waited for: all visitors would wait, too
    for gone in (tmp_path / "no.html", tmp_path, tmp_path / "pipe"):
        with pytest.raises(HTTPException) as error:
            shut_off(gone, "text/html")
        assert error.value.status_code == 404
