"""What the app lets in and out, before Gradio sees it: hosts, passwords, paths, bodies.

An application of Starlette around Gradio's. Of Gradio's addresses only those that the page needs
are open, and what is sent to them is read here first, by the schemas of `messages`: none of it can
name a file. Results go out by their name on the shelf, and uploads come in as plain bytes: no path
and no name of a file is ever taken from a visitor.
"""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedmap import explorer
from heedmap.app import archives, doors, messages
from heedmap.app.doors import Headers, Hosts, Incoming, Passwords, body_of, refusal
from heedmap.app.keeping import Guests
from heedmap.app.pages import Pages
from heedmap.app.places import Places, Streams
from heedmap.app.results import Shelf
from heedmap.app.uploads import Uploads
from heedmap.errors import HeedmapError, RunError

_SHOWN = re.compile(
    r"/(config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|pwa_icon)?"
    r"|/(assets|static)/[\w./@-]{1,200}"  # no disk allows longer names
    r"|/gradio_api/(info|startup-events|theme\.css|queue/data|heartbeat/\w{1,64})/?",
    re.ASCII,  # a letter is a byte
)
_FORWARDED = re.compile(rb"(x-)?forwarded", re.IGNORECASE)
_STREAM, _PULSE = "/gradio_api/queue/data", "/gradio_api/heartbeat/"
_STREAMS, _STREAMS_OWN = 200, 60  # half of the connections of `wire`: an open page has up to two
_PREDICT, _JOIN = "/gradio_api/run/predict", "/gradio_api/queue/join"
_TOLD = {
    _JOIN: messages.Event,
    _PREDICT: messages.Event,
    "/gradio_api/cancel": messages.Cancel,
    "/gradio_api/reset": messages.Reset,
}
_EVENTS_OWN = 32  # that are not done yet, from one network; Gradio takes 256 in all
_LONGEST = 1000  # characters of an address
_TALK = 2**17  # bytes of what is sent to Gradio: fields, not files
_PACKED, _PACKED_OWN = 8, 2  # zips that are made at a time, in all and for one visitor
_SENT, _SENT_OWN = 16, 4  # that are being sent
# A page does what it needs by itself and nothing else, also where it is opened without its frame.
_PAGE_POLICY = (
    f"sandbox {explorer.SANDBOX}; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


class Gate:
    """The app as a server shows it.

    Args:
        inner: Gradio's application.
        shelf: the results.
        uploads: where uploads wait until they are opened.
        pages: those of the uploads.
        calls: what the page may ask of Gradio, by its number.
        users: passwords by name; everybody is let in if there are none.
        hosts: names under which the server may be asked, or None for any. A server for this machine
            alone must not answer to a page of the web that calls itself by this machine's address.
        guests: told which sessions there are, whose they are, and which of their pages are open.
    """

    def __init__(
        self,
        inner: Any,
        shelf: Shelf,
        uploads: Uploads,
        pages: Pages,
        *,
        calls: "Mapping[int, Call]",
        users: Mapping[str, str],
        hosts: Sequence[str] | None,
        guests: Guests,
    ) -> None:
        self._shelf, self._uploads, self._pages = shelf, uploads, pages
        self._packing = Places(_PACKED, own=_PACKED_OWN)
        self._sending = Streams(_SENT, own=_SENT_OWN)
        self._streams = Streams(_STREAMS, own=_STREAMS_OWN)
        self._app = Starlette(
            routes=[
                Route("/uploads", self._take_upload, methods=["POST"]),
                Route("/results/{name}.zip", self._give_result, methods=["GET"]),
                Route("/results/{name}/page", self._show_result, methods=["GET"]),
                Route("/pages/{token}", self._show_page, methods=["GET"]),
                Mount("/", _Talk(inner, guests, self._streams, calls)),
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
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Gradio would believe whatever name a visitor gives to this server.
        kept = [pair for pair in scope["headers"] if not _FORWARDED.match(pair[0])]
        await self._app({**scope, "headers": kept}, Incoming(receive), send)

    async def _take_upload(self, request: Request) -> Response:
        """Save the body under a name drawn by chance, and answer with that name."""
        token = await self._uploads.take(_client(request.scope), request.headers, request.receive)
        return JSONResponse({"token": token})

    async def _give_result(self, request: Request) -> Response:
        folder = self._folder(request)
        with ExitStack() as held:
            file = held.enter_context(tempfile.TemporaryFile())
            with self._packing.take(_client(request.scope)):
                await asyncio.to_thread(archives.pack, folder, file)
            told = {"content-disposition": f'attachment; filename="heedmap-{folder.name}.zip"'}
            return _File(file, "application/zip", told, held.pop_all(), self._sending)

    async def _show_result(self, request: Request) -> Response:
        """The page of a result, as it was saved."""
        return _page(self._folder(request) / "index.html")

    async def _show_page(self, request: Request) -> Response:
        """The page of what a visitor sent."""
        try:
            return _page(self._pages.path(request.path_params["token"]))
        except HeedmapError as error:
            raise HTTPException(404, str(error)) from error

    def _folder(self, request: Request) -> Path:
        try:
            return self._shelf.folder(request.path_params["name"])
        except RunError as error:
            raise HTTPException(404, str(error)) from error


class _File(StreamingResponse):
    """A file as an answer; whatever is held for it is released, however the answer ends.

    Whoever fetches it more slowly than an upload may arrive gets only a part of it, and so does
    whoever fetches the most files while many are fetched.
    """

    def __init__(
        self,
        file: IO[bytes],
        kind: str,
        headers: Mapping[str, str],
        held: ExitStack,
        sending: Streams | None = None,
    ) -> None:
        size = file.seek(0, 2)
        file.seek(0)
        told = {"content-length": str(size), "cache-control": "private, no-store", **headers}
        super().__init__(_blocks(file), headers=told, media_type=kind)
        self._held, self._size, self._sending = held, size, sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = self._sending.take(_client(scope)) if self._sending else nullcontext()
        with self._held, suppress(TimeoutError):
            async with place, asyncio.timeout(doors.GRACE + self._size / doors.SPEED):
                await super().__call__(scope, receive, send)


def _page(path: Path) -> Response:
    with ExitStack() as held:
        try:
            file = held.enter_context(path.open("rb"))
        except OSError as error:
            raise HTTPException(404, "This page is not there any more: make it again.") from error
        told = {"content-security-policy": _PAGE_POLICY}
        return _File(file, "text/html", told, held.pop_all())


class Call(NamedTuple):
    """A call that the page may make to Gradio: whether it is queued, and how many fields it has."""

    queued: bool
    fields: int


class _Talk:
    """Gradio, asked only for what the page needs and told only what a schema lets through."""

    def __init__(
        self, inner: ASGIApp, guests: Guests, streams: Streams, calls: Mapping[int, Call]
    ) -> None:
        self._inner, self._guests = inner, guests
        self._streams, self._calls = streams, calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if ".." in path or len(path) > _LONGEST:
            raise HTTPException(404, "There is nothing here.")
        if method in ("GET", "HEAD") and _SHOWN.fullmatch(path):
            if not path.startswith((_STREAM, _PULSE)):
                await self._inner(scope, receive, send)
                return
            await self._stream(scope, receive, send)
            return
        schema = _TOLD.get(path.rstrip("/")) if method == "POST" else None
        if schema is None:
            raise HTTPException(404, "There is nothing here.")
        said = await body_of(Request(scope).headers, receive, most=_TALK)
        told = messages.read(schema, said)
        if told is None or not self._known(told, path.rstrip("/")):
            raise HTTPException(422, "That is nothing that this page asks.")
        joins = path.rstrip("/") == _JOIN
        if joins and self._guests.asks(_client(scope)) >= _EVENTS_OWN:
            raise HTTPException(429, "You have asked for much already: wait for some of it.")
        if isinstance(told, messages.Event):
            if joins and self._guests.is_deaf(told.session_hash):
                raise HTTPException(429, "Nobody reads what you were answered: load the page anew.")
            self._guests.welcome(told.session_hash, _client(scope))
        # What was read is passed on, not what was sent: two readers may differ.
        body = messages.written(told)
        length = (b"content-length", str(len(body)).encode())
        kept = [pair for pair in scope["headers"] if pair[0] not in (b"content-length",)]
        await self._inner({**scope, "headers": [*kept, length]}, _replayed(body, receive), send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a stream that lasts until the page is closed, or loses its place."""
        path = scope["path"].rstrip("/")
        if path == _STREAM:
            session = Request(scope).query_params.get("session_hash", "")
            # Gradio would find out in the middle of its answer.
            if not self._guests.can_listen(session):
                raise HTTPException(404, "There is nothing to listen to.")
            opened = self._guests.listening.opened(session)
        else:
            opened = self._guests.present.opened(path.rpartition("/")[2])
        answer = _Answer(send)
        with suppress(TimeoutError), opened:
            async with self._streams.take(_client(scope)):
                await self._inner(scope, receive, answer)
        await answer.end()

    def _known(self, told: Any, path: str) -> bool:
        """Whether a call is one that the page makes, with its fields and in the queue it needs."""
        if not isinstance(told, messages.Event):
            return True
        call = self._calls.get(told.fn_index)
        return call is not None and call == (path == _JOIN, len(told.data))


class _Answer:
    """Sends an answer, and can end it in the middle."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = self._ended = False

    async def __call__(self, message: Message) -> None:
        self._begun = True
        self._ended |= message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def end(self) -> None:
        """Say that nothing more comes, unless that was said already."""
        if not self._begun:
            raise HTTPException(503, "Too many pages are open: close some.")
        if not self._ended:
            await self({"type": "http.response.body"})


def _client(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read already, and then whatever comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _blocks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while block := await asyncio.to_thread(file.read, 2**18):
        yield block


async def _left(request: Request, error: Exception) -> Response:
    """An answer that nobody is there to read."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    """One sentence, after what the visitor still sends: whoever sends does not read."""
    if isinstance(error, HTTPException):
        return await refusal(request.receive, error.status_code, error.detail, error.headers)
    return await refusal(request.receive, 400, str(error))
