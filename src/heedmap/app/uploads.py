"""Files that visitors send, from their arrival until they are opened."""

import asyncio
import re
import secrets
import time
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Receive

from heedmap.app.middleware import blocks_of
from heedmap.app.quotas import Quota, greediest, network
from heedmap.errors import HeedmapError

UPLOAD_KEPT = 120.0
"""Seconds that a file waits to be opened: the page opens it as soon as it has arrived."""
_WAITING = 32  # files that wait, in all; beyond that, whoever has most loses the oldest
_OPENED = 20.0  # seconds within which a page opens what it has sent, also while others are at it
_ARRIVING = 8  # that arrive at a time, in all
_OWN = 4  # that wait, of one visitor; one arrives at a time


class Uploads:
    """The files that wait, each under a name that nobody can guess, and each visitor's share.

    Args:
        folder: where they are.
        most: bytes that one may have.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._arriving = Quota(_ARRIVING, own=1)
        self._waiting: dict[str, tuple[str, float]] = {}  # by name: whose, and since when

    async def take(self, client: str, headers: Headers, receive: Receive) -> str:
        """Save a body, and return the name that it has from then on.

        Raises:
            ClientDisconnect: if the visitor left.
            HTTPException: as of `blocks_of`; 400 of an empty one, 429 while another of this
                visitor's arrives, 503 while too many of others do, or wait.
        """
        client = network(client)
        with self._arriving.take(client):
            self._make_room(client)
            token = secrets.token_hex(16)
            path = self._folder / token
            try:
                with path.open("xb") as file:
                    async for block in blocks_of(headers, receive, most=self._most):
                        await asyncio.to_thread(file.write, block)
                if not path.stat().st_size:
                    raise HTTPException(400, "This file is empty: choose the zip of a run.")
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            self._waiting[token] = client, time.monotonic()
            own = [name for name, (whose, _) in self._waiting.items() if whose == client]
            for old in own[:-_OWN]:
                self._forget(old)
        return token

    def open(self, token: str) -> Path:
        """Where an upload is, by the name that it was given; the caller has to delete it now.

        Raises:
            HeedmapError: if there is none, or it was opened before.
        """
        try:
            if not re.fullmatch("[0-9a-f]{32}", token):
                raise FileNotFoundError
            return (self._folder / token).rename(self._folder / f"{token}.opened")
        except FileNotFoundError as error:
            raise HeedmapError("the upload is not there any more: choose the file again") from error

    def _make_room(self, client: str) -> None:
        for name, (_, since) in list(self._waiting.items()):
            if time.monotonic() - since > UPLOAD_KEPT or not (self._folder / name).exists():
                self._forget(name)
        while len(self._waiting) >= _WAITING:
            owners = [whose for whose, _ in self._waiting.values()]
            who = greediest(owners)
            name = next(name for name, (whose, _) in self._waiting.items() if whose == who)
            # Nobody loses a file that is about to be opened to one who would have as many.
            if who != client and owners.count(who) <= owners.count(client) + 1:
                name, (_, since) = next(iter(self._waiting.items()))
                if time.monotonic() - since < _OPENED:
                    raise HTTPException(
                        503, "Too many files wait to be opened: try again in a moment."
                    )
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._waiting.pop(name, None)
        (self._folder / name).unlink(missing_ok=True)
