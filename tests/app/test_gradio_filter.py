"""What reaches Gradio, with a Gradio that only notes what it is told."""

import asyncio
import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from starlette.exceptions import HTTPException

from heedmap.app import gradio_filter
from heedmap.app.gradio_filter import PageCall
from heedmap.app.quotas import StreamQuota
from heedmap.app.sessions import Sessions

CALLS = {3: PageCall(queued=True, fields=2), 4: PageCall(queued=False, fields=1)}
JOIN, PREDICT = "/gradio_api/queue/join", "/gradio_api/run/predict"


class Gradio:
    """Notes the paths and the bodies that reach it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes, dict[bytes, bytes]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        self.heard.append((scope["path"], body, dict(scope["headers"])))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def sessions(*asking: str) -> Sessions:
    """Those of a page of which these addresses have an event in Gradio's line."""
    made = Sessions()
    events = {
        str(n): SimpleNamespace(request=SimpleNamespace(client=SimpleNamespace(host=host)))
        for n, host in enumerate(asking)
    }
    waiting = defaultdict(asyncio.Queue, a=asyncio.Queue())
    made._queue = SimpleNamespace(event_ids_to_events=events, pending_messages_per_session=waiting)
    return made


def ask(
    path: str, body: bytes = b"", *, method: str = "", client: str = "10.0.0.1",
    known: Sessions | None = None, query: bytes = b"",
) -> tuple[int, Gradio]:  # fmt: skip
    """The status, and what Gradio has heard."""
    inner, sent = Gradio(), []
    talk = gradio_filter.GradioFilter(inner, known or sessions(), StreamQuota(9, own=9), CALLS)
    length = str(len(body)).encode()
    scope = {
        "type": "http", "method": method or ("POST" if body else "GET"), "path": path,
        "query_string": query, "client": (client, 1),
        "headers": [(b"content-length", length), (b"x-mine", b"1")],
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        asyncio.run(talk(scope, receive, send))
    except HTTPException as error:
        assert not inner.heard
        return error.status_code, inner
    return sent[0]["status"], inner


def event(number: int = 3, *data: object, **more: object) -> bytes:
    said = {"fn_index": number, "data": list(data), "session_hash": "a", **more}
    return json.dumps(said).encode()


# --- what is shown ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", "/assets/a-b_c/d@1.js", "/static/x.png", "/gradio_api/info",
     "/gradio_api/startup-events", "/assets/" + "a" * 200],
)  # fmt: skip
def test_what_a_page_needs(path: str, method: str):
    status, inner = ask(path, method=method)
    assert status == 200 and [one[0] for one in inner.heard] == [path]


@pytest.mark.parametrize(
    "path",
    [
        "", "//", "/configs", "/config/x", "x/config", "/assets", "/assets/", "/assets/../config",
        "/assets/a/..", "/assets/..a", "/static/a%b", "/static/a\nb", "/config\n", "/static/a?b",
        "/assets/" + "a" * 201, "/gradio_api/file=x", "/gradio_api/heartbeat/" + "a" * 65,
        "/gradio_api/heartbeat/a/b", "/gradio_api/queue/join", "/gradio_api/queue/status",
    ],
)  # fmt: skip
def test_what_no_page_needs(path: str):
    assert ask(path)[0] == 404
    assert ask(path, method="HEAD")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_what_is_shown_is_only_asked_for(method: str):
    for path in ("/", "/config", "/assets/x", "/gradio_api/heartbeat/a", "/gradio_api/queue/data"):
        assert ask(path, method=method)[0] == 404


# --- what is told -----------------------------------------------------------------------------


def test_gradio_hears_what_was_read_and_not_what_was_sent():
    said = b'{"fn_index": 9, "data": [1, "x"], "session_hash": "a", "fn_index": 3, "root": [7]}'
    for path in (JOIN, JOIN + "/"):
        status, inner = ask(path, said)
        assert status == 200
        ((_, body, headers),) = inner.heard
        assert json.loads(body) == {
            "fn_index": 3, "data": [1, "x"], "session_hash": "a", "event_data": None,
            "trigger_id": None,
        }  # fmt: skip
        assert headers == {b"content-length": str(len(body)).encode(), b"x-mine": b"1"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PREDICT, event(3, 1, "x")),  # what waits in line is not asked for beside it
        (JOIN, event(4, 1)),
        (JOIN, event(3, 1)),
        (JOIN, event(3, 1, "x", 2)),
        (JOIN, event(3)),
        (JOIN, event(5, 1, "x")),
        (PREDICT, event(4)),
        (PREDICT, event(4, {"path": "/etc/passwd"})),
        (JOIN, event(3, 1, "x", session_hash="a/b")),
        (JOIN, event(3, 1, "x", session_hash="a" * 65)),
        (JOIN, event(3, 1, "x", session_hash="a\n")),
        (JOIN, event(3, 1, "x", trigger_id=-1)),
        (JOIN, event(3, 1, "x" * 20_001)),
        (JOIN, event(3, 1, ["x"] * 17)),
        (JOIN, event(3, 1, "x", event_data={"token": "0" * 33})),
        (JOIN, event(3, 1, "x", event_data={"token": "0" * 32 + "\n"})),
        ("/gradio_api/cancel", b'{"session_hash": "a", "fn_index": 0, "event_id": "../x"}'),
        ("/gradio_api/cancel", b'{"session_hash": "a/b", "fn_index": 0, "event_id": "x"}'),
        ("/gradio_api/reset", b'{"event_id": "x\\n"}'),
        ("/gradio_api/reset", b'{"event_id": {"path": "x"}}'),
    ],
)
def test_what_no_page_tells(path: str, body: bytes):
    assert ask(path, body)[0] == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PREDICT, event(4, 1)),
        (JOIN, event(3, "x" * 20_000, ["x"] * 16)),
        (JOIN, event(3, 1, "x", session_hash="a" * 64, event_data={"token": "0" * 32})),
        ("/gradio_api/cancel", b'{"session_hash": "a", "fn_index": 0, "event_id": "x1"}'),
        ("/gradio_api/reset", b'{"event_id": "x1"}'),
    ],
)
def test_what_a_page_tells(path: str, body: bytes):
    assert ask(path, body)[0] == 200


def test_what_is_told_is_short():
    fits = event(3, 1, "x") + b" " * 2**17
    assert ask(JOIN, fits[: 2**17])[0] == 200
    assert ask(JOIN, fits[: 2**17 + 1])[0] == 413


@pytest.mark.parametrize(
    ("client", "asking", "status"),
    [
        ("10.0.0.1", ["10.0.0.1"] * 31, 200),
        ("10.0.0.1", ["10.0.0.1"] * 32, 429),
        ("10.0.0.1", ["10.0.0.2"] * 99, 200),
        ("2001:db8::1", [f"2001:db8::{n:x}" for n in range(32)], 429),
        ("2001:db8:0:1::1", [f"2001:db8::{n:x}" for n in range(32)], 200),
    ],
)
def test_of_one_network_so_many_events_wait(client: str, asking: list[str], status: int):
    assert ask(JOIN, event(3, 1, "x"), client=client, known=sessions(*asking))[0] == status
    # What does not wait there is asked at any time.
    assert ask(PREDICT, event(4, 1), client=client, known=sessions(*asking))[0] == 200


@pytest.mark.parametrize(
    ("query", "status"), [(b"session_hash=a", 200), (b"session_hash=b", 404), (b"", 404)]
)
def test_who_listens_is_one_of_whom_there_is_something(query: bytes, status: int):
    assert ask("/gradio_api/queue/data", query=query)[0] == status
