"""A running app and what is asked of it, and waiting for what comes about in other threads."""

import asyncio
import base64
import contextlib
import html
import http.client
import io
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heedmap.app.jobs import Job, State
from heedmap.app.middleware import Incoming
from heedmap.app.options import Limits, Options
from heedmap.app.result_store import Shelf
from heedmap.tiny.card import EMBEDDED

PROMPT = "a red house"
READ = ("*.json", "*.safetensors", "image.png", "steps.png")
"""The files of a run that are read."""
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'>"
SHARED: list[Any] = ["7", "2", "", "", "", "", ["layer"]]
FIELDS: list[Any] = [EMBEDDED, *SHARED, "", "the left half", "", "", "the right half", ""]
EDIT_FIELDS: list[Any] = [EMBEDDED, 0.8, 0.4, "", "", "", False, *SHARED]
GRID_FIELDS: list[Any] = [EMBEDDED, "", "", "", "", "", "", "", False, *SHARED]


def ended(job: Job) -> State:
    """The last state of a job."""
    *_, last = job.states(pause=0.01)
    return last


def until(holds: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def zipped(members: dict[str, bytes], **attributes: int) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for key, value in attributes.items():
                setattr(entry, key, value)
            archive.writestr(entry, data)
    file.seek(0)
    return file


def zip_of(folder: Path) -> bytes:
    """What is read of a result, as a zip."""
    kept = [path for end in READ for path in folder.rglob(end)]
    return zipped({str(path.relative_to(folder)): path.read_bytes() for path in kept}).getvalue()


class Served:
    """A running app, asked over HTTP as a browser asks it."""

    def __init__(self, out: Path, users: dict[str, str], **options: Any) -> None:
        from heedmap.app.application import Application, bind
        from heedmap.app.connections import Server, configured

        self.app = Application(
            Options(out=out, users=users, limits=Limits(upload=2**20, waiting=2), **options)
        )
        self.out, self.socket = out, bind("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.server = Server(configured(self.app.routes))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.auth = ":".join(next(iter(users.items()))) if users else ""
        self.visitor = secrets.token_hex(16)

    @property
    def cookie(self) -> str:
        """By which the visitor who asks is known."""
        return f"heedmap-visitor={self.visitor}"

    @property
    def shelf(self) -> Shelf:
        """Where that visitor's results are."""
        return self.app.worker.store.shelf(self.visitor)

    def __enter__(self) -> "Served":
        self.thread.start()
        until(lambda: self.server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.app.close()
        self.server.should_exit = True
        self.thread.join(10)
        self.socket.close()

    def ask(
        self, path: str, data: bytes | None = None, auth: str | None = None, **headers: str
    ) -> tuple[int, bytes, Any]:
        """Status, body and headers of an answer; the path goes out as it is."""
        auth = self.auth if auth is None else auth
        if auth:
            headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"
        headers.setdefault("Cookie", self.cookie)
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers


def asked_from(
    server: Served, address: str, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    """Status and body of an answer to a visitor from another address of this machine."""
    wire = http.client.HTTPConnection(
        "127.0.0.1", server.port, timeout=20, source_address=(address, 0)
    )
    auth = f"Basic {base64.b64encode(server.auth.encode()).decode()}"
    kind = {"Authorization": auth, "Content-Type": "application/json", "Cookie": server.cookie}
    with contextlib.closing(wire):
        wire.request("GET" if body is None else "POST", path, body, kind)
        answer = wire.getresponse()
        return answer.status, answer.read()


def event(
    server: Served, target: str, data: list[Any], session: str, said: Any = None
) -> Iterator[dict[str, Any]]:
    """The messages of an event: that of the button of that name, or of another kind of event."""
    number = dependency(server, target)["id"]
    body = {"data": data, "fn_index": number, "session_hash": session, "event_data": said}
    status, answer, _ = server.ask(
        "/gradio_api/queue/join", data=json.dumps(body).encode(),
        **{"Content-Type": "application/json"},
    )  # fmt: skip
    assert status == 200, answer
    auth = f"Basic {base64.b64encode(server.auth.encode()).decode()}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/gradio_api/queue/data?session_hash={session}",
        headers={"Authorization": auth, "Cookie": server.cookie},
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                message = json.loads(line[5:])
                yield message
                if message["msg"] == "close_stream":
                    return


def dependency(server: Served, target: str) -> dict[str, Any]:
    """What Gradio tells of an event: of the button of that name, or of that kind."""
    config = json.loads(server.ask("/config")[1])
    labels = {one["id"]: one["props"].get("value") for one in config["components"]}
    return next(
        one for one in config["dependencies"]
        if any(target in (labels.get(part), kind) for part, kind in one["targets"])
    )  # fmt: skip


def opening(server: Served, session: str, file: bytes) -> str:
    """All that is said when a zip is opened."""
    status, answer, _ = server.ask("/uploads", data=file)
    assert status == 200, answer
    said = json.dumps(
        list(event(server, "upload", [], session, json.loads(answer))), ensure_ascii=False
    )
    assert "Traceback" not in said
    return html.unescape(said)


def generating(server: Served, session: str, prompt: Any, *others: Any) -> str:
    """All that a job's messages say."""
    return drawn(server, "Generate", session, [prompt, *(others or FIELDS)])


def drawn(server: Served, tab: str, session: str, fields: list[Any]) -> str:
    """All that the messages of a job say, which is begun by the button of that name."""
    said = json.dumps(list(event(server, tab, fields, session)), ensure_ascii=False)
    assert "Traceback" not in said and "<img src=x" not in said and "<script" not in said
    return html.unescape(said)


def sends(*blocks: bytes | None, pause: float = 0.0) -> Incoming:
    """What receives these blocks; None for the visitor's leaving."""
    left = list(blocks)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        block = left.pop(0)
        if block is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": block, "more_body": bool(left)}

    return Incoming(receive)
