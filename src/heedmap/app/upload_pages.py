"""The pages of what visitors opened: they are not among the results, and not kept for long.

A page goes to the browser by its address, as those of the results do, so that it is never the value
of a component, which Gradio would keep.
"""

import re
import secrets
import threading
import time
from collections import Counter
from pathlib import Path

from heedmap.app.quotas import network
from heedmap.errors import HeedmapError, RunError, sizes

PAGE_KEPT = 3600.0
"""Seconds that a page is kept; the browser loads it at once."""
_COUNT = 64  # pages, in all
_OWN = 8  # of one visitor
_BYTES = 256 * 2**20  # in all
_MOST = 32 * 2**20  # of one; a page has up to 8 MB unless its prompt is very long


class UploadPages:
    """Pages by names that nobody can guess; the oldest go when there are too many.

    Args:
        folder: where they are; made here.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._lock = threading.Lock()
        self._held: dict[str, tuple[str, int, float]] = {}  # whose, bytes, since when

    def keep(self, client: str, text: str) -> str:
        """Keep a page, and return its name.

        Raises:
            RunError: if it is too large.
        """
        data = text.encode()
        if len(data) > _MOST:
            size, most = sizes(len(data), _MOST)
            raise RunError(f"the page of this result has {size}: expected at most {most}")
        client, token = network(client), secrets.token_hex(16)
        with self._lock:
            self._make_room(client, len(data))
            (self._folder / token).write_bytes(data)
            self._held[token] = client, len(data), time.monotonic()
        return token

    def path(self, token: str) -> Path:
        """The file of a page.

        Raises:
            HeedmapError: if there is none of that name.
        """
        with self._lock:
            self._forget_old()
            if not re.fullmatch("[0-9a-f]{32}", token) or token not in self._held:
                raise HeedmapError("this page is not there any more: open the file again")
            return self._folder / token

    def _make_room(self, client: str, size: int) -> None:
        self._forget_old()
        own = [token for token, (whose, _, _) in self._held.items() if whose == client]
        for token in own[: max(0, len(own) - _OWN + 1)]:
            self._forget(token)
        while self._held and (
            (crowded := len(self._held) >= _COUNT)
            or size + sum(n for _, n, _ in self._held.values()) > _BYTES
        ):
            # The oldest, of whoever has most of what there is too much of.
            has = Counter({client: 1 if crowded else size})
            for whose, length, _ in self._held.values():
                has[whose] += 1 if crowded else length
            most = max((whose for whose, _, _ in self._held.values()), key=has.__getitem__)
            self._forget(next(token for token, one in self._held.items() if one[0] == most))

    def _forget_old(self) -> None:
        now = time.monotonic()
        for token in [t for t, (_, _, since) in self._held.items() if now - since > PAGE_KEPT]:
            self._forget(token)

    def _forget(self, token: str) -> None:
        del self._held[token]
        (self._folder / token).unlink(missing_ok=True)
