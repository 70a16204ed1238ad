"""Ctrl-C: it ends a verb at any moment, and what was kept is told in a sentence."""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedmap.cli.stopping import NOTHING_KEPT, end_at_once
from heedmap.errors import listed

_AGAIN = 5  # seconds in which another Ctrl-C does not interrupt the cleaning up
_NAMED = 5  # places at most


class Interrupted(KeyboardInterrupt):
    """A verb was interrupted, and what it had saved by then is known."""

    def __init__(self, saved: list[Path]) -> None:
        self.saved = saved
        super().__init__()


@contextmanager
def kept_told(saved: list[Path]) -> Generator[None]:
    """Report the saved folders, a list that the block adds to, after an interrupt."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(saved) from stop


@contextmanager
def interruptible() -> Generator[None]:
    """Let Ctrl-C end the block, and no second one interrupt what it does then.

    What is imported in this moment may raise an error of its own in the place of the interrupt.
    """
    came: list[float] = []

    def end(number: int, frame: Any) -> None:
        if not came or time.monotonic() - came[-1] > _AGAIN:
            came.append(time.monotonic())
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    own = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if own:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        if own:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def as_python_has_it() -> None:
    """From here on Ctrl-C is an exception again, which a verb can clean up after."""
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def kept(stop: KeyboardInterrupt) -> str:
    """What was kept of a verb that was interrupted, in a sentence."""
    saved = [str(path) for path in getattr(stop, "saved", ())]
    if not saved:
        return NOTHING_KEPT
    more = [f"{len(saved) - _NAMED} more"] if len(saved) > _NAMED else []
    named = listed([*saved[:_NAMED], *more], "and")
    return f"Interrupted: what was saved before is whole, {named}."
