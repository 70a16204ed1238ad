"""What Gradio keeps of its visitors, bounded, since anybody can invent sessions.

For each session that a request names, Gradio keeps the last values of the components and the
messages that wait for its page. Pages and pictures are not among them (they go by address), so that
little is kept for each; this is the bound on how many there are, and who loses one beyond it.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import gradio as gr
from gradio.state_holder import SessionState

from heedmap.app.quotas import greediest, network

_SESSIONS = 256
_UNREAD = 64  # messages of a session; an event has some five, and a page reads them as they come


class OpenStreams:
    """The sessions with an open stream of a kind."""

    def __init__(self) -> None:
        self._streams: Counter[str] = Counter()

    def __contains__(self, session: str) -> bool:
        return session in self._streams

    @contextmanager
    def opened(self, session: str) -> Iterator[None]:
        """While a stream of this session is open."""
        self._streams[session] += 1
        try:
            yield
        finally:
            self._streams[session] -= 1
            if not self._streams[session]:
                del self._streams[session]


class Sessions:
    """The sessions that Gradio keeps something of, and whose they are.

    Beyond the bound, one whose page is not open goes: the oldest of whoever has most sessions. So a
    visitor who invents names pushes out their own.

    Attributes:
        listening: those whose page waits for messages.
        present: those whose page is open.
    """

    def __init__(self) -> None:
        self.listening, self.present = OpenStreams(), OpenStreams()
        self._whose: OrderedDict[str, str] = OrderedDict()
        self._kept: list[_Kept] = []
        self._queue: Any = None

    def __contains__(self, session: str) -> bool:
        return session in self._whose

    def welcome(self, session: str, client: str) -> None:
        """Let something be kept of a session that a visitor has named."""
        self._whose[session] = network(client)
        self._whose.move_to_end(session)
        # There are fewer streams than sessions, so that some pages are closed.
        while len(self._whose) > _SESSIONS and (gone := self._gone(session)):
            owners = {self._whose[one] for one in gone}
            who = greediest(owner for owner in self._whose.values() if owner in owners)
            self._forget(next(one for one in gone if self._whose[one] == who))

    def bound(self, page: gr.Blocks) -> None:
        """Let Gradio, once the page is mounted, keep nothing except of these."""
        queue: Any = page._queue
        queue.pending_messages_per_session = self.kept(asyncio.Queue)
        queue.pending_event_ids_session = self.kept(set)
        states = page.state_holder
        states.session_data = self.kept(lambda: SessionState(page), _lightened)
        states.time_last_used = self.kept(datetime.now)
        self._queue = queue

    def can_listen(self, session: str) -> bool:
        """Whether there are messages for a session, or will be."""
        return session in self._queue.pending_messages_per_session

    def is_deaf(self, session: str) -> bool:
        """Whether so many messages wait for a session that nobody seems to read them."""
        return self._queue.pending_messages_per_session[session].qsize() >= _UNREAD

    def asks(self, client: str) -> int:
        """How many events of a visitor are in Gradio's queue, or at work."""
        asked = (one.request.client for one in self._queue.event_ids_to_events.values())
        return [network(who.host) for who in asked if who].count(network(client))

    def kept(
        self, kind: Callable[[], Any], changed: Callable[[Any], Any] = lambda value: value
    ) -> Any:
        """A dictionary of what is kept by session; arguments as those of `_Kept`."""
        made = _Kept(kind, self, changed)
        self._kept.append(made)
        return made

    def _gone(self, session: str) -> list[str]:
        """All others whose page is not open, the oldest first."""
        here = (self.listening, self.present)
        return [
            one for one in self._whose if one != session and not any(one in kind for kind in here)
        ]

    def _forget(self, session: str) -> None:
        del self._whose[session]
        for kept in self._kept:
            del kept[session]


def _lightened(state: SessionState) -> SessionState:
    """Without a copy of the page, 113 of its 117 KB.

    Gradio has it for links to a state, which are closed here; what an event changes is added again.
    """
    state.config_values.clear()
    return state


class _Kept(OrderedDict[str, Any]):
    """What is kept by session, of the sessions that are known.

    Args:
        kind: what is kept; for a session that has gone a new one is returned, and not kept.
        known: those of which something is kept.
        changed: makes of a value what is kept in its place.
    """

    def __init__(
        self, kind: Callable[[], Any], known: Container[str], changed: Callable[[Any], Any]
    ) -> None:
        super().__init__()
        self._kind, self._known, self._changed = kind, known, changed

    def __missing__(self, session: str) -> Any:
        return self._kind()

    def __setitem__(self, session: str, value: Any) -> None:
        if session in self._known:
            super().__setitem__(session, self._changed(value))

    def __delitem__(self, session: str) -> None:
        if session in self:
            super().__delitem__(session)
