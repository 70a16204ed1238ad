"""Which connection gives way where there are too many, without a server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from uvicorn.server import ServerState

from heedmap.app import connections
from heedmap.app.connections import Connection, configured


class Transport:
    """What a connection writes to; notes what it is told."""

    def __init__(self, address: str) -> None:
        self.info = {"peername": (address, 5)}
        self.said: list[bytes] = []
        self.aborted = self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return self.info.get(name)

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.said.append(data)

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True


def ends(visitors: Sequence[str]) -> list[str]:
    """Of each connection, when all have come: "" if it lasts, "gone" or "refused".

    A visitor is an address; one that ends in "!" is at work as soon as it is there.
    """

    async def come() -> list[str]:
        state, made = ServerState(), []
        config = configured(lambda *_: None)
        config.load()
        for visitor in visitors:
            one = Connection(config, state, {})
            one.connection_made(Transport(visitor.rstrip("!")))  # type: ignore[arg-type]
            made.append(one)
            if visitor.endswith("!") and not one.transport.closed:
                one.since = None
            await asyncio.sleep(0.001)  # the next one is younger
            if one.transport.closed:
                one.connection_lost(None)
        for one in made:
            one._next_look.cancel()
        refused = [one for one in made if one.transport.closed]
        assert all(b"503" in one.transport.said[0] for one in refused)
        return [
            "refused" if one.transport.closed else "gone" if one.transport.aborted else ""
            for one in made
        ]

    return asyncio.run(come())


@pytest.mark.parametrize(
    ("visitors", "found"),
    [
        # Too many of one: the one that has waited longest goes, or the new one where all work.
        (["a", "a", "a", "a"], ["gone", "", "", ""]),
        (["a!", "a", "a", "a"], ["", "gone", "", ""]),
        (["a!", "a!", "a!", "a"], ["", "", "", "refused"]),
        (["b", "a!", "a!", "a!", "a"], ["", "", "", "", "refused"]),
        # Too many in all: of whoever has most that wait; where all work, of whoever has most.
        (["b", "a", "a", "c!", "c!", "d"], ["", "gone", "", "", "", ""]),
        (["b", "a!", "a!", "c!", "c!", "d"], ["gone", "", "", "", "", ""]),
        (["b!", "a!", "a!", "a!", "c!", "d"], ["", "gone", "", "", "", ""]),
        (["b!", "a!", "a!", "a!", "c!", "c"], ["", "gone", "", "", "", ""]),
        (["b!", "b!", "a!", "a!", "c!", "c"], ["", "", "", "", "", "refused"]),
        (["b!", "e!", "a!", "f!", "c!", "g"], ["", "", "", "", "", "refused"]),
        (["a!", "a!", "b!", "c!", "b!", "b"], ["", "", "", "", "", "refused"]),
    ],
    ids=lambda _: "",
)
def test_who_gives_way(monkeypatch: pytest.MonkeyPatch, visitors, found):
    monkeypatch.setattr(connections, "OWN", 3)
    monkeypatch.setattr(connections, "MOST", 5)
    named = [f"10.0.0.{ord(one[0])}{one[1:]}" for one in visitors]
    assert ends(named) == found


def test_connections_of_one_network_of_the_sixth_version_are_of_one_visitor(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(connections, "OWN", 3)
    same = [f"2001:db8::{n}!" for n in range(4)]
    assert ends(same) == ["", "", "", "refused"]
    assert ends([*same[:3], "2001:db8:0:1::1"]) == [""] * 4
    assert ends([f"::ffff:10.0.0.{n}!" for n in range(4)]) == [""] * 4
