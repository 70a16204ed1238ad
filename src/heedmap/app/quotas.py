"""Quotas of whatever costs something: so many places in all, and a share for each visitor."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from starlette.exceptions import HTTPException


class Quota:
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
            HTTPException: 429 if this visitor has no place left, 503 if nobody has.
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


class StreamQuota:
    """Places at answers that last as long as a visitor likes: whoever has most of them gives way.

    Args:
        most: in all.
        own: of one visitor.
    """

    def __init__(self, most: int, *, own: int) -> None:
        self._most, self._own = most, own
        self._open: list[tuple[str, asyncio.Timeout]] = []

    @asynccontextmanager
    async def take(self, client: str) -> AsyncIterator[None]:
        """Take a place until the block ends; the oldest, this visitor's or another's, may be lost.

        Raises:
            TimeoutError: if this one lost it.
        """
        who = network(client)
        self._make_room(who)
        async with asyncio.timeout(None) as end:
            self._open.append((who, end))
            try:
                yield
            finally:
                with suppress(ValueError):  # it has given way
                    self._open.remove((who, end))

    def _make_room(self, who: str) -> None:
        owners = [owner for owner, _ in self._open]
        if owners.count(who) >= self._own:
            gone = who
        elif len(owners) >= self._most:
            gone = greediest(owners)
        else:
            return
        _, end = self._open.pop(owners.index(gone))
        end.reschedule(asyncio.get_running_loop().time())


def greediest(owners: Iterable[str]) -> str:
    """Who owns most of the things with these owners; among equals, whoever is named first."""
    return Counter(owners).most_common(1)[0][0]


def network(host: str) -> str:
    """Who asks: an IPv4 address, or of IPv6 the network that one visitor has.

    A server at `::` hears IPv4 addresses, too, as IPv6 addresses of one network: each of them
    counts as itself.
    """
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.version == 6 and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)  # a socket of both versions writes IPv4 addresses so
    if found.version == 4 or found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
