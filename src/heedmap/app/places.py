"""Places at what costs something: so many in all, and a share for each visitor."""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException


class Places:
    """Places that are taken for a while, within one event loop.

    Args:
        most: in all.
        own: of one visitor.
    """

    def __init__(self, most: int, *, own: int) -> None:
        self._most, self._own = most, own
        self._taken: list[str] = []

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Take a place until the block ends.

        Raises:
            HTTPException: 429 if this visitor has no other, 503 if there is none.
        """
        who = network(client)
        if self._taken.count(who) >= self._own:
            raise HTTPException(429, "Your last file is still on its way: wait for its end.")
        if len(self._taken) >= self._most:
            raise HTTPException(503, "Others are sending or fetching files: try again in a while.")
        self._taken.append(who)
        try:
            yield
        finally:
            self._taken.remove(who)


def network(host: str) -> str:
    """Who asks: an address, or of the sixth version the network that one visitor has."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if found.version == 4 else str(ipaddress.ip_network((host, 64), strict=False))
