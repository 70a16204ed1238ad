"""Who asks, and how many places there are at what costs something."""

import asyncio
import socket

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from starlette.exceptions import HTTPException

from heedmap.app.application import bind
from heedmap.app.quotas import Quota, StreamQuota, greediest, network

# --- networks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1::5", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:2::5", "2001:db8:0:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.2", "10.0.0.2"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_a_visitor_is_an_address_or_a_network_of_the_sixth_version(host: str, who: str):
    assert network(host) == who == network(who)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has but one version")
def test_at_the_address_of_both_versions_each_address_is_its_own():
    """Who comes by the fourth version to a server at `::` has an address of the sixth there."""
    with bind("::", 0) as bound:
        bound.listen()
        found = []
        for address in ("127.0.0.2", "127.0.0.3"):
            there = ("127.0.0.1", bound.getsockname()[1])
            with socket.create_connection(there, source_address=(address, 0)):
                accepted, who = bound.accept()
                accepted.close()
                found.append(network(who[0]))
    assert found == ["127.0.0.2", "127.0.0.3"]


def test_who_has_most():
    assert greediest(["a", "b", "b", "c"]) == "b"
    assert greediest(["b", "a", "a", "b"]) == "b"  # who is named first


# --- places -----------------------------------------------------------------------------------


def refused(places: Quota, who: str) -> int:
    with pytest.raises(HTTPException) as found, places.take(who):
        pass
    return found.value.status_code


def test_so_many_places_in_all_and_of_one_visitor():
    places = Quota(3, own=2)
    with places.take("a"):
        with places.take("a"):
            assert refused(places, "a") == 429
            with places.take("b"):
                assert refused(places, "c") == 503
                assert refused(places, "a") == 429  # it is their own doing, they are told
            with places.take("c"):
                pass
        with places.take("a"), places.take("c"):
            pass
    with pytest.raises(KeyError), places.take("a"):
        raise KeyError
    with places.take("b"), places.take("b"), places.take("a"):
        pass


def test_a_network_of_the_sixth_version_has_the_places_of_one_visitor():
    places = Quota(9, own=1)
    with places.take("2001:db8::1"), places.take("2001:db8:0:1::1"), places.take("::ffff:1.2.3.4"):
        assert refused(places, "2001:db8::2") == 429
        assert refused(places, "1.2.3.4") == 429
        with places.take("::ffff:1.2.3.5"):
            pass


# --- streams ----------------------------------------------------------------------------------


def lasting(*visitors: str, most: int, own: int) -> list[int]:
    """The numbers of the streams that are still open when all have come."""

    async def come() -> list[int]:
        streams = StreamQuota(most, own=own)
        left: list[int] = []

        async def listen(number: int, who: str) -> None:
            async with streams.take(who):
                left.append(number)
                try:
                    await asyncio.sleep(60)
                finally:
                    left.remove(number)

        tasks = []
        for number, who in enumerate(visitors):
            tasks.append(asyncio.create_task(listen(number, who)))
            for _ in range(5):
                await asyncio.sleep(0.001)
        found = list(left)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(
            isinstance(one, asyncio.CancelledError if number in found else TimeoutError)
            for number, one in enumerate(ended)
        )
        assert not streams._open
        return found

    return asyncio.run(come())


@pytest.mark.parametrize(
    ("visitors", "left"),
    [
        ("aaa", [0, 1, 2]),
        ("aaaa", [1, 2, 3]),  # the fourth is one too many of one
        ("aaabb", [0, 1, 2, 3, 4]),
        ("aaabbc", [1, 2, 3, 4, 5]),  # the sixth is one too many in all
        ("baabac", [0, 2, 3, 4, 5]),
        ("abcdef", [1, 2, 3, 4, 5]),
        ("aaabba", [1, 2, 3, 4, 5]),
    ],
)
def test_of_streams_the_oldest_of_who_has_most_gives_way(visitors: str, left: list[int]):
    assert lasting(*visitors, most=5, own=3) == left


def test_streams_of_one_network_of_the_sixth_version_are_of_one_visitor():
    assert lasting("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", most=5, own=1) == [1, 2]
