"""What the app lets in and out, before Gradio sees it: hosts, passwords, paths, sizes.

A plain ASGI application around Gradio's. Only those of Gradio's addresses are open that the page
needs; none of them reads a file of the machine but Gradio's own. Results go out by their name on
the shelf, and uploads come in as plain bytes: no path and no name of a file is ever taken from a
visitor.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heedmap.app import archives
from heedmap.app.shelf import Shelf
from heedmap.errors import HeedmapError, RunError

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]

_OPEN = re.compile(
    r"/(config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|pwa_icon)?"
    r"|/(assets|static)/[\w./@-]+"
    r"|/gradio_api/(info|startup-events|theme\.css|queue/(join|data)|run/predict|cancel|reset"
    r"|heartbeat/\w+)/?"
)
_RESULT = re.compile(r"/results/([\w-]+)\.zip")
_UPLOADS = "/uploads"
_TALK = 2**20  # bytes of a request that is no upload: fields, not files
_TOGETHER = 2  # uploads at a time
_KEPT = 8  # uploads that wait to be opened
# The page's own scripts are Gradio's, which builds functions from text; nothing is ever asked of
# another host, so that nothing that slips in could send anything anywhere.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; frame-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}


class Refused(Exception):
    """A request that is answered with a status and one sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


class Gate:
    """The app as a server shows it.

    Args:
        inner: Gradio's application.
        shelf: the results.
        uploads: where uploads wait until they are opened.
        upload: bytes that an upload may have.
        users: passwords by name; everybody is let in if there are none.
        hosts: names under which the server may be asked, or None for any. A server of this machine
            must not answer to a page of the web that calls itself by this machine's address.
    """

    def __init__(
        self, inner: Asgi, shelf: Shelf, uploads: Path, upload: int, *,
        users: Mapping[str, str], hosts: Sequence[str] | None,
    ) -> None:  # fmt: skip
        self._inner, self._shelf, self._uploads, self._upload = inner, shelf, uploads, upload
        self._users = {name: _hash(password) for name, password in users.items()}
        self._hosts = hosts
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send)
        try:
            await self._answer(scope, receive, send)
        except Refused as refused:
            await _drain(receive, most=self._upload + _TALK)
            await _text(send, refused.status, refused.sentence, refused.headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        method, path = scope["method"], scope["path"]
        self._check_host(headers, method)
        await self._check_user(headers)
        if method == "POST" and path == _UPLOADS:
            await self._take_upload(headers, receive, send)
        elif method == "GET" and (result := _RESULT.fullmatch(path)):
            await self._give_result(result[1], send)
        elif method in ("GET", "HEAD", "POST") and _OPEN.fullmatch(path) and ".." not in path:
            _check_length(headers, method, _TALK)
            await self._inner(scope, receive, send)
        else:
            raise Refused(404, "There is nothing here.")

    def _check_host(self, headers: Mapping[str, str], method: str) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and _hostname(f"//{host}") not in self._hosts:
            raise Refused(421, "This server does not answer to that name.")
        origin = headers.get("origin")
        if method == "POST" and origin is not None and urlsplit(origin).netloc != host:
            raise Refused(403, "Pages of other servers may not ask this one for anything.")

    async def _check_user(self, headers: Mapping[str, str]) -> None:
        if not self._users:
            return
        kind, _, said = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                decoded = base64.b64decode(said, validate=True).decode()
            except ValueError:
                decoded = ""
            name, _, password = decoded.partition(":")
            right = self._users.get(name, _hash(secrets.token_hex()))
            if hmac.compare_digest(right, _hash(password)):
                return
            await asyncio.sleep(1)  # guessing shall be slow
        raise Refused(
            401, "This app asks for a name and a password.",
            **{"www-authenticate": 'Basic realm="heedmap", charset="UTF-8"'},
        )  # fmt: skip

    async def _take_upload(self, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        """Save the body under a name drawn by chance, and answer with that name."""
        _check_length(headers, "POST", self._upload)
        if self._busy >= _TOGETHER:
            raise Refused(503, "Others are uploading: try again in a while.")
        self._busy += 1
        token = secrets.token_hex(16)
        path = self._uploads / token
        try:
            with path.open("xb") as file:
                async for block in _body(receive):
                    file.write(block)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            self._busy -= 1
        waiting = sorted(self._uploads.iterdir(), key=lambda one: one.stat().st_mtime_ns)
        for old in waiting[:-_KEPT]:
            old.unlink(missing_ok=True)
        await _whole(send, 200, "application/json", json.dumps({"token": token}).encode())

    async def _give_result(self, name: str, send: Send) -> None:
        try:
            folder = self._shelf.folder(name)
        except RunError as error:
            raise Refused(404, str(error)) from error
        with tempfile.TemporaryFile() as file:
            await asyncio.to_thread(archives.pack, folder, file)
            size = file.tell()
            file.seek(0)
            told = {
                "content-type": "application/zip",
                "content-length": str(size),
                "content-disposition": f'attachment; filename="heedmap-{name}.zip"',
                "cache-control": "private, no-store",
            }
            await send(_start(200, told))
            while block := await asyncio.to_thread(file.read, 2**18):
                await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def upload_path(uploads: Path, token: str) -> Path:
    """Where an upload is, by the name that it was given.

    Raises:
        HeedmapError: if there is none.
    """
    path = uploads / token if re.fullmatch("[0-9a-f]{32}", token) else None
    if path is None or not path.is_file():
        raise HeedmapError("The upload is not there any more: choose the file again.")
    return path


def _check_length(headers: Mapping[str, str], method: str, most: int) -> None:
    """Refuse a body that is too long, or whose length is not told: servers read no more than it."""
    if method != "POST":
        return
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(411, "The length of what is sent must be told.")
    if int(length) > most:
        raise Refused(413, f"That is too large: expected at most {most / 2**20:g} MB.")


# --- ASGI -------------------------------------------------------------------------------------


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    """The blocks of a request's body."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the visitor left")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _drain(receive: Receive, most: int) -> None:
    """Read a body to its end, or so many bytes of it: a visitor who still sends reads no answer."""
    with contextlib.suppress(ConnectionResetError):
        async for block in _body(receive):
            most -= len(block)
            if most < 0:
                return


def _with_headers(send: Send) -> Send:
    async def told(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", []) if pair[0].lower() not in _HEADERS]
            message = {**message, "headers": [*kept, *_HEADERS.items()]}
        await send(message)

    return told


def _start(status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


async def _text(send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    await _whole(send, status, "text/plain; charset=utf-8", text.encode(), headers)


async def _whole(
    send: Send, status: int, kind: str, body: bytes, headers: Mapping[str, str] | None = None
) -> None:
    told = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    await send(_start(status, told))
    await send({"type": "http.response.body", "body": body})


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _hash(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
