"""What stands in front of the app: names, passwords, headers, bodies; ASGI middleware.

What Starlette and uvicorn lack: an answer by one sentence, a bound on what arrives and for how
long, and passwords that cannot be guessed quickly.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers as Given
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedmap.app.quotas import network
from heedmap.errors import as_sentence, sizes

_LOG = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds that the body of any request may take."""
SPEED = 32 * 2**10
"""Bytes a second at which a longer body must arrive beyond that, and a file must be fetched."""
TURN = 0.1
"""Seconds from one password check to the next, whoever sends it."""
FREE = 10
"""Wrong passwords in a row from one address that cost no more than that."""
MAX_WAIT = 60.0
"""The most seconds that an address waits for its next guess."""
_LINE, _LINE_OWN = 50, 8  # passwords that wait to be checked, in all and from one network
_KNOWN = 4096  # addresses that are remembered
_DRAINED = 2**26  # bytes that are read from a refused client, so that it reads the answer

# The page's own scripts are Gradio's, which builds functions from text. No other host may be asked
# for anything, so that nothing that slips in could send anything anywhere.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; frame-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


# --- bodies -----------------------------------------------------------------------------------


class Incoming:
    """What receives a request's body, and knows whether all of it has arrived."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.complete = False

    async def __call__(self) -> Message:
        """The next message."""
        message = await self._receive()
        self.complete |= not message.get("more_body", False)
        return message


async def blocks_of(headers: Given, receive: Receive, *, most: int) -> AsyncIterator[bytes]:
    """The blocks of a request's body, counted as they arrive.

    Raises:
        ClientDisconnect: if the visitor left.
        HTTPException: 411 if the length is not told, 400 if it is told in two ways, 413 if it is
            more than `most`, 408 if it comes too slowly.
    """
    told = headers.get("content-length", "")
    chunked = "transfer-encoding" in headers
    if chunked and told:
        raise HTTPException(400, "The length of what is sent was told in two ways.")
    if chunked or not (told.isascii() and told.isdecimal()):
        raise HTTPException(411, "The length of what is sent must be told.")
    if len(told) >= 20 or int(told) > most:
        raise _too_large(most)
    until = time.monotonic() + GRACE + int(told) / SPEED
    arrived = 0
    while True:
        try:
            message = await asyncio.wait_for(receive(), until - time.monotonic())
        except TimeoutError as error:
            raise HTTPException(408, "What was sent came too slowly.") from error
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        arrived += len(message.get("body", b""))
        if arrived > most:
            raise _too_large(most)
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def body_of(headers: Given, receive: Receive, *, most: int) -> bytes:
    """A request's body as a whole; errors as those of `blocks_of`."""
    return b"".join([block async for block in blocks_of(headers, receive, most=most)])


def client_of(scope: Scope) -> str:
    """The address that a request comes from; "" where the server does not tell."""
    return scope["client"][0] if scope.get("client") else ""


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"That is too large: expected at most {sizes(most)[0]}.")


async def refusal(
    receive: Receive, status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of one sentence, after what is still being sent: whoever sends does not read."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            left = _DRAINED
            while left > 0 and isinstance(receive, Incoming) and not receive.complete:
                left -= len((await receive()).get("body", b""))
    return PlainTextResponse(as_sentence(sentence), status, headers=headers)


# --- headers, names ---------------------------------------------------------------------------


class Headers:
    """What a browser is told with every answer; pages of other servers are told nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with these headers."""

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name in list(headers):
                    if name.startswith("access-control-"):
                        del headers[name]
                headers.setdefault(
                    "content-security-policy", _POLICY
                )  # a result's page has a policy of its own
                headers.update(_HEADERS)
            await send(message)

        await self._app(scope, receive, told if scope["type"] == "http" else send)


class Hosts:
    """Lets in whoever asks this server by one of its names, from a page of its own.

    Like Starlette's TrustedHostMiddleware, with the status that says why (421) and a check of the
    pages' origin.

    Args:
        app: what is behind.
        names: of the server; None for any.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str] | None) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Given(scope=scope)
        host = headers.get("host", "")
        if self._names is not None and _part(f"//{host}", "hostname") not in self._names:
            answer = await refusal(receive, 421, "This server does not answer to that name.")
        elif _is_anothers(headers, host):
            answer = await refusal(
                receive, 403, "Pages of other servers may not ask this one for anything."
            )
        else:
            await self._app(scope, receive, send)
            return
        await answer(scope, receive, send)


def _is_anothers(headers: Given, host: str) -> bool:
    """Whether a page of another server asks; following a link is none of its asking.

    What it cannot read it may still learn from: whether there is a picture of a guessed name.
    """
    if "origin" in headers and _part(headers["origin"].lower(), "netloc") != host.lower():
        return True
    follows = headers.get("sec-fetch-mode") == "navigate"
    follows &= headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not follows


def _part(url: str, name: str) -> str | None:
    """A part of a URL; None of one that cannot be read."""
    try:
        return getattr(urlsplit(url), name)
    except ValueError:
        return None


# --- passwords --------------------------------------------------------------------------------


class Passwords:
    """Lets in whoever knows a password, and makes guessing slow.

    An address that knew one is let in at once as long as it sends the same one. All others wait for
    their turn, of which there are ten a second in all, and after ten wrong ones in a row an address
    waits ever longer, up to a minute.

    Args:
        app: what is behind.
        users: passwords by name; everybody is let in if there are none.
    """

    def __init__(self, app: ASGIApp, users: Mapping[str, str]) -> None:
        self._app = app
        self._users = {_hash(f"{name}:{password}") for name, password in users.items()}
        self._known: OrderedDict[str, list[bytes]] = OrderedDict()
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting: list[str] = []  # networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or refuse it."""
        if scope["type"] == "http" and self._users:
            answer = await self._refused(scope, receive)
            if answer is not None:
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _refused(self, scope: Scope, receive: Receive) -> Response | None:
        said = _said(Given(scope=scope).get("authorization", ""))
        if said is None:
            return await _asked(receive)
        address, digest = network(client_of(scope)), _hash(said)
        known = self._known.get(address, [])
        if any([hmac.compare_digest(one, digest) for one in known]):
            return None
        until = self._wrong.get(address, (0, 0.0))[1]
        if time.monotonic() < until:
            return await _later(receive, until - time.monotonic())
        if len(self._waiting) >= _LINE or self._waiting.count(address) >= _LINE_OWN:
            return await _later(receive, _LINE * TURN)
        self._waiting.append(address)
        try:
            async with self._turn:
                await asyncio.sleep(TURN)
        finally:
            self._waiting.remove(address)
        if any([hmac.compare_digest(digest, right) for right in self._users]):
            _remember(self._known, address, [*known, digest])
            self._wrong.pop(address, None)
            return None
        self._count(address)
        return await _asked(receive)

    def _count(self, address: str) -> None:
        count = self._wrong.get(address, (0, 0.0))[0] + 1
        wait = min(MAX_WAIT, 2.0 ** min(count - FREE, 10)) if count >= FREE else 0.0
        _remember(self._wrong, address, (count, time.monotonic() + wait))
        if count >= FREE and (count == FREE or count % 100 == 0):
            _LOG.warning("%d wrong passwords in a row from %s", count, address)


def _asked(receive: Receive) -> Any:
    told = {"www-authenticate": 'Basic realm="heedmap", charset="UTF-8"'}
    return refusal(receive, 401, "This app asks for a name and a password.", told)


def _later(receive: Receive, seconds: float) -> Any:
    told = {"retry-after": str(int(seconds) + 1)}
    return refusal(receive, 429, "That was tried too often: wait a while.", told)


def _remember(held: OrderedDict[str, Any], address: str, value: Any) -> None:
    held[address] = value
    held.move_to_end(address)
    if len(held) > _KNOWN:
        held.popitem(last=False)


def _said(authorization: str) -> str | None:
    """The name and password of a header, "name:password"; None if there is none."""
    kind, _, said = authorization.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(said, validate=True).decode()
    except ValueError:
        return ""


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
