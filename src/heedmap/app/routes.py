"""What the app lets in and out, before Gradio sees it: hosts, passwords, paths, bodies.

An application of Starlette around Gradio's, which `gradio_filter` guards. Results go out by their
name in the store, and uploads come in as plain bytes: no path and no name of a file is ever taken
from a visitor.
"""

import asyncio
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from heedmap import explorer
from heedmap.app import archives, middleware
from heedmap.app.gradio_filter import GradioFilter, PageCall
from heedmap.app.middleware import Headers, Hosts, Incoming, Passwords, client_of, refusal
from heedmap.app.quotas import Quota, StreamQuota
from heedmap.app.result_store import ResultStore
from heedmap.app.sessions import Sessions
from heedmap.app.upload_pages import UploadPages
from heedmap.app.uploads import Uploads
from heedmap.errors import HeedmapError, RunError

_FORWARDED = re.compile(rb"(x-)?forwarded", re.IGNORECASE)
_STREAMS, _STREAMS_OWN = 200, 60  # half of all `connections`: an open page has up to two
_PACKED, _PACKED_OWN = 8, 2  # zips that are made at a time, in all and for one visitor
_SENT, _SENT_OWN = 16, 4  # that are being sent
# A page does what it needs by itself and nothing else, also where it is opened without its frame.
_PAGE_POLICY = (
    f"sandbox {explorer.SANDBOX}; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


class Routes:
    """The app as a server shows it.

    Args:
        inner: Gradio's application.
        store: the results.
        uploads: where uploads wait until they are opened.
        pages: those of the uploads.
        calls: what the page may ask of Gradio, by its number.
        users: passwords by name; everybody is let in if there are none.
        hosts: names under which the server may be asked, or None for any. A server for this machine
            alone must not answer to a page of the web that calls itself by this machine's address.
        sessions: told which sessions there are, whose they are, and which of their pages are open.
    """

    def __init__(
        self,
        inner: Any,
        store: ResultStore,
        uploads: Uploads,
        pages: UploadPages,
        *,
        calls: Mapping[int, PageCall],
        users: Mapping[str, str],
        hosts: Sequence[str] | None,
        sessions: Sessions,
    ) -> None:
        self._store, self._uploads, self._pages = store, uploads, pages
        self._packing = Quota(_PACKED, own=_PACKED_OWN)
        self._sending = StreamQuota(_SENT, own=_SENT_OWN)
        self._streams = StreamQuota(_STREAMS, own=_STREAMS_OWN)
        self._app = Starlette(
            routes=[
                Route("/uploads", self._take_upload, methods=["POST"]),
                Route("/results/{name}.zip", self._give_result, methods=["GET"]),
                Route("/results/{name}/page", self._show_result, methods=["GET"]),
                Route("/pages/{token}", self._show_page, methods=["GET"]),
                Mount("/", GradioFilter(inner, sessions, self._streams, calls)),
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
        token = await self._uploads.take(client_of(request.scope), request.headers, request.receive)
        return JSONResponse({"token": token})

    async def _give_result(self, request: Request) -> Response:
        folder = self._folder(request)
        with ExitStack() as held:
            file = held.enter_context(tempfile.TemporaryFile())
            with self._packing.take(client_of(request.scope)):
                await asyncio.to_thread(archives.zip_result, folder, file)
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
            return self._store.folder(request.path_params["name"])
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
        sending: StreamQuota | None = None,
    ) -> None:
        size = file.seek(0, 2)
        file.seek(0)
        told = {"content-length": str(size), "cache-control": "private, no-store", **headers}
        super().__init__(iter(lambda: file.read(2**18), b""), headers=told, media_type=kind)
        self._held, self._size, self._sending = held, size, sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = self._sending.take(client_of(scope)) if self._sending else nullcontext()
        with self._held, suppress(TimeoutError):
            async with place, asyncio.timeout(middleware.GRACE + self._size / middleware.SPEED):
                await super().__call__(scope, receive, send)


def _page(path: Path) -> Response:
    with ExitStack() as held:
        try:
            file = held.enter_context(path.open("rb"))
        except OSError as error:
            raise HTTPException(404, "This page is not there any more: make it again.") from error
        told = {"content-security-policy": _PAGE_POLICY}
        return _File(file, "text/html", told, held.pop_all())


async def _left(request: Request, error: Exception) -> Response:
    """An answer that nobody is there to read."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    """One sentence, after what the visitor still sends: whoever sends does not read."""
    if isinstance(error, HTTPException):
        return await refusal(request.receive, error.status_code, error.detail, error.headers)
    return await refusal(request.receive, 400, str(error))
