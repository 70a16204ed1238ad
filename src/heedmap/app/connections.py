"""Connections, below all requests: nobody can hold one by half a request or an unread answer.

uvicorn waits forever for the head of a request, for a body that nobody wants any more, and for a
visitor who does not read. Here each connection is checked every second.
"""

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedmap.app.quotas import greediest, network

HEAD = 10.0
"""Seconds from a connection's beginning, or its last answer, to the end of its next head."""
STALL = 30.0
"""Seconds in which a visitor must read some of what was sent: some kilobytes a second."""
MOST = 400
"""Connections in all: fewer than the files that a process may have open on most machines."""
OWN = 120
"""Connections of one address: all visitors of a proxy share one, and a browser has up to six."""
_SENT = 2**17  # bytes that the system takes ahead: reading is noticed in portions of this size
_LOOK = 1.0  # seconds from one look at a connection to the next
_END = 0.5  # seconds that answers have when the server ends; uvicorn itself waits longer

_FULL = b"Too many connections: try again in a while."
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_FULL), _FULL)
)


class Connection(H11Protocol):
    """A connection that ends some day.

    Where there are too many, one gives way. Of those that wait for a request's head, it is the one
    that has waited longest, among those of whoever has most; where all are at work, the oldest of
    whoever has most, unless the new one's address has as many.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Find a place for it."""
        super().connection_made(transport)
        self.began = self.loop.time()
        self.since: float | None = self.began  # without a request; None while it has one
        bare = transport.get_extra_info("socket")
        if bare is not None:
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT)
        self.address = network(self.client[0] if self.client else "")
        self._unread, self._moved = 0, self.loop.time()
        self._next_look = self.loop.call_later(_LOOK, self._look)
        if not self._find_place():
            transport.write(_REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._next_look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something arrived."""
        former = self.cycle
        super().data_received(data)
        self._note_request(former)

    def on_response_complete(self) -> None:
        """An answer has ended; the next request may have arrived before."""
        former = self.cycle
        self.since = self.loop.time()
        super().on_response_complete()
        self._note_request(former)

    def resume_writing(self) -> None:
        """The visitor has read."""
        self._moved = self.loop.time()
        super().resume_writing()

    def _should_upgrade(self) -> bool:
        return False  # nothing here speaks anything else

    def _note_request(self, former: Any) -> None:
        if self.cycle is not former and not self.cycle.response_complete:
            self.since = None

    def _look(self) -> None:
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._moved = now
        self._unread = unread
        idle = not unread and self.since is not None and now - self.since > HEAD
        if idle or now - self._moved > STALL:
            self.transport.abort()
        else:
            self._next_look = self.loop.call_later(_LOOK, self._look)

    def _find_place(self) -> bool:
        others = [
            one for one in self.connections if isinstance(one, Connection) and one is not self
        ]
        own = [one for one in others if one.address == self.address]
        crowd = own if len(own) >= OWN else others if len(others) >= MOST else None
        if crowd is None:
            return True
        waiting = [one for one in crowd if one.since is not None]
        if not waiting and (crowd is own or _most(others) <= len(own) + 1):
            return False
        former = _eldest(waiting or others)
        former.since = None  # it is on its way out: the next one takes another's place
        former.transport.abort()
        self.connections.discard(former)
        return True


def _most(crowd: list[Connection]) -> int:
    """How many of these belong to whoever has most."""
    return max(Counter(one.address for one in crowd).values())


def _eldest(crowd: list[Connection]) -> Connection:
    """Of whoever has most of these, the one that waits, or is at work, for the longest time."""
    who = greediest(one.address for one in crowd)
    return min(
        (one for one in crowd if one.address == who),
        key=lambda one: one.began if one.since is None else one.since,
    )


class Server(uvicorn.Server):
    """uvicorn's server; what still lasts when it ends does so as if all visitors had left.

    uvicorn itself would cancel it, and log each as an error.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all answers, after a while in which they may come to their own end."""
        self._ending = asyncio.create_task(self._end_all())
        await super().shutdown(sockets)

    async def _end_all(self) -> None:
        await asyncio.sleep(_END)
        for one in list(self.server_state.connections):
            one.transport.abort()
        await asyncio.sleep(0)  # each knows by then that nobody is there
        for task in list(self.server_state.tasks):
            task.cancel()


def _quiet(app: ASGIApp) -> ASGIApp:
    """An app whose answers are cancelled without a word: only the server's end does that."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return run


def configured(app: Any) -> Config:
    """How uvicorn serves the app."""
    return Config(
        _quiet(app),
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,  # whoever is still there then hung: all were sent away before
        server_header=False,
        proxy_headers=False,  # otherwise anybody could claim any address
    )
