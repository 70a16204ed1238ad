"""What Gradio is asked: only what the page needs, and only in words that a schema lets through.

Of Gradio's addresses those that the page needs are open, and what is sent to them is read here
first, by the schemas of `messages`: none of it can name a file.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedmap.app import messages
from heedmap.app.middleware import body_of, client_of
from heedmap.app.quotas import StreamQuota
from heedmap.app.sessions import Sessions

_SHOWN = re.compile(
    r"/(config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|pwa_icon)?"
    r"|/(assets|static)/[\w./@-]{1,200}"  # no disk allows longer names
    r"|/gradio_api/(info|startup-events|theme\.css|queue/data|heartbeat/\w{1,64})/?",
    re.ASCII,  # a letter is a byte
)
_STREAM, _PULSE = "/gradio_api/queue/data", "/gradio_api/heartbeat/"
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


class PageCall(NamedTuple):
    """A call that the page may make to Gradio: whether it is queued, and how many fields it has."""

    queued: bool
    fields: int


class GradioFilter:
    """Gradio, asked only for what the page needs and told only what a schema lets through.

    Args:
        inner: Gradio's application.
        sessions: told which sessions there are, whose they are, and which of their pages are open.
        streams: places at answers that last until a page is closed.
        calls: what the page may ask of Gradio, by its number.
    """

    def __init__(
        self,
        inner: ASGIApp,
        sessions: Sessions,
        streams: StreamQuota,
        calls: Mapping[int, PageCall],
    ) -> None:
        self._inner, self._sessions = inner, sessions
        self._streams, self._calls = streams, calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on to Gradio, or refuse it."""
        path, method = scope["path"], scope["method"]
        if ".." in path or len(path) > _LONGEST:
            raise _nothing()
        if method in ("GET", "HEAD") and _SHOWN.fullmatch(path):
            if not path.startswith((_STREAM, _PULSE)):
                await self._inner(scope, receive, send)
                return
            await self._stream(scope, receive, send)
            return
        schema = _TOLD.get(path.rstrip("/")) if method == "POST" else None
        if schema is None:
            raise _nothing()
        said = await body_of(Request(scope).headers, receive, most=_TALK)
        told = messages.parsed(schema, said)
        if told is None or not self._known(told, path.rstrip("/")):
            raise HTTPException(422, "That is nothing that this page asks.")
        joins = path.rstrip("/") == _JOIN
        if joins and self._sessions.asks(client_of(scope)) >= _EVENTS_OWN:
            raise HTTPException(429, "You have asked for much already: wait for some of it.")
        if isinstance(told, messages.Event):
            if joins and self._sessions.is_deaf(told.session_hash):
                raise HTTPException(429, "Nobody reads what you were answered: load the page anew.")
            self._sessions.welcome(told.session_hash, client_of(scope))
        # What was read is passed on, not what was sent: two readers may differ.
        body = messages.encoded(told)
        length = (b"content-length", str(len(body)).encode())
        kept = [pair for pair in scope["headers"] if pair[0] not in (b"content-length",)]
        await self._inner({**scope, "headers": [*kept, length]}, _replayed(body, receive), send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a stream that lasts until the page is closed, or loses its place."""
        path = scope["path"].rstrip("/")
        if path == _STREAM:
            session = Request(scope).query_params.get("session_hash", "")
            # Gradio would find out in the middle of its answer.
            if not self._sessions.can_listen(session):
                raise HTTPException(404, "There is nothing to listen to.")
            opened = self._sessions.listening.opened(session)
        else:
            opened = self._sessions.present.opened(path.rpartition("/")[2])
        answer = _Answer(send)
        with suppress(TimeoutError), opened:
            async with self._streams.take(client_of(scope)):
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


def _nothing() -> HTTPException:
    return HTTPException(404, "There is nothing here.")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read already, and then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
