"""What Gradio keeps of its visitors, bounded: of each session, whoever invents one.

For each name of a session that a request has, Gradio keeps the last values of the components and
the messages that wait for its page. Pages and pictures are not among them (they go by address), so
that what is kept of one is small; here is the bound on how many.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container
from typing import Any

import gradio as gr

_SESSIONS = 256


def bound(page: gr.Blocks, listeners: Container[str]) -> None:
    """Let Gradio keep no more than so many sessions, those first whose page is listening."""
    page.state_session_capacity = _SESSIONS
    queue: Any = page._queue
    queue.pending_messages_per_session = _Kept(asyncio.Queue, listeners)
    queue.pending_event_ids_session = _Kept(set, listeners)


def waiting(page: gr.Blocks) -> Container[str]:
    """The sessions for which there are messages, or will be."""
    return page._queue.pending_messages_per_session


class _Kept(OrderedDict[str, Any]):
    """What is kept by session; beyond so many, the oldest goes that nobody listens to.

    Args:
        kind: what is kept; one of it is given for a session that has gone, and not kept.
        listeners: the sessions whose page is listening.
    """

    def __init__(self, kind: Callable[[], Any], listeners: Container[str]) -> None:
        super().__init__()
        self._kind, self._listeners = kind, listeners

    def __missing__(self, session: str) -> Any:
        return self._kind()

    def __setitem__(self, session: str, value: Any) -> None:
        super().__setitem__(session, value)
        while len(self) > _SESSIONS:
            others = (name for name in self if name != session)
            gone = next((name for name in others if name not in self._listeners), None)
            del self[gone if gone is not None else next(iter(self))]

    def __delitem__(self, session: str) -> None:
        if session in self:
            super().__delitem__(session)
