"""Files as answers: released however the answer ends, and shown shut off from the app."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from heedmap import explorer
from heedmap.app import middleware
from heedmap.app.middleware import client_of
from heedmap.app.quotas import StreamQuota
from heedmap.errors import RunError
from heedmap.files import reading

# A page does what it needs by itself and nothing else, also where it is opened without its frame.
_PAGE_POLICY = (
    f"sandbox {explorer.SANDBOX}; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


class FileAnswer(StreamingResponse):
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
        """Send it, as long as there is a place for it."""
        place = self._sending.take(client_of(scope)) if self._sending else nullcontext()
        with self._held, suppress(TimeoutError):
            async with place, asyncio.timeout(middleware.GRACE + self._size / middleware.SPEED):
                await super().__call__(scope, receive, send)


def shut_off(path: Path, kind: str) -> Response:
    """A page or a picture, which can do nothing to the app; 404 if it is not there."""
    gone = "this page is not there any more: make it again"
    with ExitStack() as held:
        try:  # a pipe in its place would be waited for, and all visitors with it
            file = held.enter_context(reading.opened(path, most=sys.maxsize, otherwise=gone))
        except RunError as error:
            raise HTTPException(404, gone) from error
        told = {"content-security-policy": _PAGE_POLICY}
        return FileAnswer(file, kind, told, held.pop_all())
