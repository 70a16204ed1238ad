"""What the app lets in and out, before Gradio sees it: hosts, passwords, paths, bodies.

An application of Starlette around Gradio's, which `gradio_filter` guards. Results go out by their
name on the visitor's own shelf (`gallery`), and uploads come in as plain bytes: no path and no name
of a file is ever taken from a visitor.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from heedmap.app.answers import shut_off
from heedmap.app.gallery import Gallery
from heedmap.app.gradio_filter import GradioFilter, PageCall
from heedmap.app.labels import sentence_for
from heedmap.app.middleware import Headers, Hosts, Incoming, Passwords, client_of, refusal
from heedmap.app.quotas import StreamQuota
from heedmap.app.result_store import ResultStore
from heedmap.app.sessions import Sessions
from heedmap.app.upload_pages import UploadPages
from heedmap.app.uploads import Uploads
from heedmap.app.visitors import Visitors
from heedmap.errors import HeedmapError

_FORWARDED = re.compile(rb"(x-)?forwarded", re.IGNORECASE)
_STREAMS, _STREAMS_OWN = 200, 60  # half of all `connections`: an open page has up to two


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
        self._uploads, self._pages = uploads, pages
        self.gallery = Gallery(store)
        self._streams = StreamQuota(_STREAMS, own=_STREAMS_OWN)
        self._app = Starlette(
            routes=[
                Route("/uploads", self._take_upload, methods=["POST"]),
                *self.gallery.routes(),
                Route("/pages/{token}", self._show_page, methods=["GET"]),
                Mount("/", GradioFilter(inner, sessions, self._streams, calls)),
            ],
            middleware=[
                Middleware(Headers),
                Middleware(Hosts, names=hosts),
                Middleware(Passwords, users=users),
                *([] if store.shared else [Middleware(Visitors)]),
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

    async def _show_page(self, request: Request) -> Response:
        """The page of what a visitor sent."""
        try:
            return shut_off(self._pages.path(request.path_params["token"]), "text/html")
        except HeedmapError as error:
            raise HTTPException(404, sentence_for(error)) from error


async def _left(request: Request, error: Exception) -> Response:
    """An answer that nobody is there to read."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    """One sentence, after what the visitor still sends: whoever sends does not read."""
    if isinstance(error, HTTPException):
        return await refusal(request.receive, error.status_code, error.detail, error.headers)
    return await refusal(request.receive, 400, sentence_for(error))
