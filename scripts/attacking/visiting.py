"""A server in a process of its own, and visitors of it, each from an address of its own.

All on this machine: every address of 127.0.0.0/8 is one of it, so that each visitor of the app, who
is told from others by address, can have one.
"""

import base64
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psutil

USER = "ann:" + "correct horse"
JOIN, STREAM = "/gradio_api/queue/join", "/gradio_api/queue/data"
UNPLACED: list[Any] = ["", "the left half", "", "", "the right half", ""]
EMPTY: list[Any] = ["", "", "", "", "", "", ["layer"], *UNPLACED]
"""Seed, steps, guidance, width, height, negative prompt, kept axes, and words in their places."""
_STARTS = 120.0  # seconds


class Server:
    """`heedmap app` on a free port, with a password and a temporary folder of its own.

    Args:
        folder: an empty one: results, temporary files and the log go there.
        options: more for the command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.out, self.scratch, self.log = folder / "out", folder / "tmp", folder / "log"
        self.home = folder / "home"
        self.scratch.mkdir(parents=True)
        self.home.mkdir()
        self._options = options

    def __enter__(self) -> Self:
        env = {**os.environ, "HEEDMAP_AUTH": USER, "TMPDIR": str(self.scratch),
               "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}  # fmt: skip
        env.pop("GRADIO_TEMP_DIR", None)
        command = [sys.executable, "-m", "heedmap.cli", "app", "--port", "0", "--out",
                   str(self.out), *self._options]  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, cwd=self.home, start_new_session=True
            )
        until = time.monotonic() + _STARTS
        while True:
            found = re.search(r"heedmap is at http://[^:]+:(\d+)", self.said())
            if found:
                break
            if not self.alive or time.monotonic() > until:
                self._process.kill()
                raise RuntimeError(f"the server did not start:\n{self.said()}")
            time.sleep(0.1)
        self.port = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    @property
    def memory(self) -> float:
        """Resident memory of the process and its children, in MB."""
        process = psutil.Process(self._process.pid)
        every = [process, *process.children(recursive=True)]
        return sum(one.memory_info().rss for one in every) / 2**20

    def said(self) -> str:
        """What it wrote to its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")


class Visitor:
    """A client of a server, with an address of its own.

    Args:
        port: of the server.
        address: of the visitor, in 127.0.0.0/8.
        user: name and password, "name:password"; empty for none.
        session: its name to Gradio; one by chance if None.

    Attributes:
        number: by which the app knows whose results are whose; no other visitor has it.
    """

    def __init__(
        self, port: int, address: str = "127.0.0.1", user: str = USER, session: str | None = None
    ) -> None:
        self.port, self.address = port, address
        self.session = session or secrets.token_hex(6)
        self.number = secrets.token_hex(16)
        self.headers = {"Host": f"127.0.0.1:{port}", "Cookie": f"heedmap-visitor={self.number}"}
        if user:
            said = base64.b64encode(user.encode()).decode()
            self.headers["Authorization"] = f"Basic {said}"

    def connection(self, timeout: float = 30) -> http.client.HTTPConnection:
        """A connection from this visitor's address."""
        return http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=timeout, source_address=(self.address, 0)
        )

    def wire(self, timeout: float = 30) -> socket.socket:
        """The same, bare."""
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=timeout, source_address=(self.address, 0)
        )

    def ask(
        self, path: str, body: bytes | None = None, *, method: str | None = None,
        timeout: float = 30, **headers: str,
    ) -> tuple[int, bytes, dict[str, str]]:  # fmt: skip
        """Status, body and headers of an answer; the path goes out as it is."""
        with contextlib.closing(self.connection(timeout)) as wire:
            wire.putrequest(
                method or ("GET" if body is None else "POST"), path, skip_host=True,
                skip_accept_encoding=True,
            )  # fmt: skip
            given = {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
            if body is not None:
                given.setdefault("Content-Length", str(len(body)))
            for name, value in given.items():
                wire.putheader(name, value)
            wire.endheaders(body)
            answer = wire.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read(), told

    def config(self) -> dict[str, Any]:
        """What Gradio tells of its page."""
        return json.loads(self.ask("/config")[1])

    def function(self, target: str) -> int:
        """The number of a function: of the button of that name, or of an event of that kind."""
        config = self.config()
        labels = {one["id"]: one["props"].get("value") for one in config["components"]}
        for one in config["dependencies"]:
            if any(target in (labels.get(part), kind) for part, kind in one["targets"]):
                return one["id"]
        raise LookupError(f"the page has nothing like {target!r}")

    def join(self, function: int, data: list[Any], said: Any = None) -> tuple[int, bytes]:
        """Press a button: status and body of the answer."""
        told = {"data": data, "fn_index": function, "session_hash": self.session}
        body = json.dumps(told if said is None else {**told, "event_data": said}).encode()
        return self.ask(JOIN, body, Content_Type="application/json")[:2]

    def messages(self, timeout: float = 60) -> Iterator[dict[str, Any]]:
        """What is said to this session, until its stream closes."""
        with contextlib.closing(self.connection(timeout)) as wire:
            wire.request("GET", f"{STREAM}?session_hash={self.session}", headers=self.headers)
            answer = wire.getresponse()
            if answer.status != 200:
                raise ConnectionError(f"the stream was refused: {answer.status}")
            for line in answer:
                if line.startswith(b"data:"):
                    message = json.loads(line[5:])
                    yield message
                    if message.get("msg") == "close_stream":
                        return

    def event(self, function: int, data: list[Any], said: Any = None, timeout: float = 60) -> str:
        """Press a button, and all that is said of it until it ends."""
        status, answer = self.join(function, data, said)
        if status != 200:
            return f"refused {status}: {answer.decode(errors='replace')[:200]}"
        return json.dumps(list(self.messages(timeout)), ensure_ascii=False)

    def opened(self, function: int, archive: bytes) -> str:
        """Upload an archive and open it: all that is said of it."""
        status, answer, _ = self.ask("/uploads", archive)
        if status != 200:
            return f"refused {status}: {answer.decode(errors='replace')[:200]}"
        return self.event(function, [], json.loads(answer))

    def shown(self, said: str) -> bytes:
        """The page that is shown of a result: by its address, or within what was said."""
        found = re.search(r"\./((?:pages|results)/[\w/-]+)\\?[\"']", said)
        return self.ask(f"/{found[1]}")[1] if found else said.encode()


def archive_of(folder: Path) -> bytes:
    """A saved result as a zip."""
    from attacking import zips

    return zips.pack(folder, [])
