"""What the app lets in and out, before Gradio sees it: hosts, passwords, paths, bodies.

An application of Starlette around Gradio's. Only those of Gradio's addresses are open that the page
needs, and what they are told is read here first, by the schemas of `messages`: none of it can name
a file. Results go out by their name on the shelf, and uploads come in as plain bytes: no path and
no name of a file is ever taken from a visitor.
"""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedmap.app import archives, messages
from heedmap.app.doors import Headers, Hosts, Incoming, Passwords, body_of, refusal
from heedmap.app.shelf import Shelf
from heedmap.app.uploads import Uploads
from heedmap.errors import HeedmapError, RunError

_SHOWN = re.compile(
    r"/(config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|pwa_icon)?"
    r"|/(assets|static)/[\w./@-]+"
    r"|/gradio_api/(info|startup-events|theme\.css|queue/data|heartbeat/\w{1,64})/?"
)
_STREAM = "/gradio_api/queue/data"
_TOLD = {
    "/gradio_api/queue/join": messages.Event,
    "/gradio_api/run/predict": messages.Event,
    "/gradio_api/cancel": messages.Cancel,
    "/gradio_api/reset": messages.Reset,
}
_TALK = 2**20  # bytes of what Gradio is told: fields, not files


class Gate:
    """The app as a server shows it.

    Args:
        inner: Gradio's application.
        shelf: the results.
        uploads: where uploads wait until they are opened.
        users: passwords by name; everybody is let in if there are none.
        hosts: names under which the server may be asked, or None for any. A server of this machine
            must not answer to a page of the web that calls itself by this machine's address.
        listeners: told which pages are listening.
    """

    def __init__(
        self, inner: Any, shelf: Shelf, uploads: Uploads, *, users: Mapping[str, str],
        hosts: Sequence[str] | None, listeners: "Listeners",
    ) -> None:  # fmt: skip
        self._shelf, self._uploads = shelf, uploads
        self._app = Starlette(
            routes=[
                Route("/uploads", self._take_upload, methods=["POST"]),
                Route("/results/{name}.zip", self._give_result, methods=["GET"]),
                Mount("/", _Talk(inner, listeners)),
            ],
            middleware=[
                Middleware(Headers),
                Middleware(Hosts, names=hosts),
                Middleware(Passwords, users=users),
            ],
            exception_handlers={
                HTTPException: _refused,
                HeedmapError: _refused,
                ClientDisconnect: _left,
            },
            lifespan=inner.router.lifespan_context,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        incoming = Incoming(receive) if scope["type"] == "http" else receive
        await self._app(scope, incoming, send)

    async def _take_upload(self, request: Request) -> Response:
        """Save the body under a name drawn by chance, and answer with that name."""
        token = await self._uploads.take(
            request.client.host if request.client else "", request.headers, request.receive
        )
        return JSONResponse({"token": token})

    async def _give_result(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            folder = self._shelf.folder(name)
        except RunError as error:
            raise HTTPException(404, str(error)) from error
        file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the last of it is sent
        await asyncio.to_thread(archives.pack, folder, file)
        told = {
            "content-length": str(file.tell()),
            "content-disposition": f'attachment; filename="heedmap-{name}.zip"',
            "cache-control": "private, no-store",
        }
        file.seek(0)
        return StreamingResponse(_blocks(file), headers=told, media_type="application/zip")


class Listeners:
    """Which pages are listening: those with an open stream of messages."""

    def __init__(self) -> None:
        self._streams: dict[str, int] = {}

    def __contains__(self, session: str) -> bool:
        return session in self._streams

    @contextmanager
    def listening(self, session: str) -> Iterator[None]:
        """While a stream of this session is open."""
        self._streams[session] = self._streams.get(session, 0) + 1
        try:
            yield
        finally:
            self._streams[session] -= 1
            if not self._streams[session]:
                del self._streams[session]


class _Talk:
    """Gradio, asked for what the page needs and told nothing but what a schema lets through."""

    def __init__(self, inner: ASGIApp, listeners: Listeners) -> None:
        self._inner, self._listeners = inner, listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if ".." in path:
            raise HTTPException(404, "There is nothing here.")
        if method in ("GET", "HEAD") and _SHOWN.fullmatch(path):
            if path.rstrip("/") != _STREAM:
                await self._inner(scope, receive, send)
                return
            session = Request(scope).query_params.get("session_hash", "")
            with self._listeners.listening(session[:64]):
                await self._inner(scope, receive, send)
            return
        schema = _TOLD.get(path.rstrip("/")) if method == "POST" else None
        if schema is None:
            raise HTTPException(404, "There is nothing here.")
        said = await body_of(Request(scope).headers, receive, most=_TALK)
        try:
            told = schema.model_validate_json(said)
        except ValidationError as error:
            raise HTTPException(422, "That is nothing that this page asks.") from error
        # What was read is what goes on, not what was sent: two readers may differ.
        body = told.model_dump_json().encode()
        length = (b"content-length", str(len(body)).encode())
        kept = [pair for pair in scope["headers"] if pair[0] not in (b"content-length",)]
        await self._inner({**scope, "headers": [*kept, length]}, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What receives a body that was read already, and then whatever comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _blocks(file: Any) -> AsyncIterator[bytes]:
    try:
        while block := await asyncio.to_thread(file.read, 2**18):
            yield block
    finally:
        file.close()


async def _left(request: Request, error: Exception) -> Response:
    """Nobody is there to read it."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    """One sentence, after what the visitor still sends: whoever sends reads no answer."""
    if isinstance(error, HTTPException):
        return await refusal(request.receive, error.status_code, error.detail, error.headers)
    return await refusal(request.receive, 400, str(error))
