"""A server under load: honest clients beside slow and hostile ones, and what it holds afterwards.

Honest clients come from an address each: they look at the page, open an archive and look at it, and
draw a small picture now and then. Memory is that of the server's process before and after the
load, each time when all has come to rest; before, the same load has run for a while, so that what
is loaded or kept once is there. Should it have grown, the load is put on it again: a leak grows
each time.
"""

import contextlib
import json
import random
import re
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from attacking import zips
from attacking.crowd import Tally
from attacking.findings import Finding, Trouble
from attacking.visiting import EMPTY, JOIN, Server, Visitor, archive_of

MEMORY = 50.0
"""MB by which the server may have grown."""
SLOWEST = 30.0
"""Seconds that an honest client may wait for a page."""
_LOADS = 3  # at most: what is kept for good grows with every load, what is kept once does not
_REST = 20.0  # seconds after the load until memory is looked at, at most
_EMBEDDED = "heedmap-tiny"
# What is no fault of the server's: it says that it is busy, in a sentence.
_BUSY = re.compile(r"(?i)refused (429|503)|in line|too many|busy|try again|being sent|wait")


@dataclass
class Counts:
    """What honest clients were given."""

    served: int = 0
    busy: int = 0
    drawn: int = 0
    opened: int = 0
    hostile: int = 0
    times: list[float] = field(default_factory=list)
    troubles: dict[str, int] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def count(self, name: str, seconds: float | None = None) -> None:
        """Count one more of these."""
        with self.lock:
            setattr(self, name, getattr(self, name) + 1)
            if seconds is not None:
                self.times.append(seconds)

    def wrong(self, what: str) -> None:
        """An honest client was not served."""
        with self.lock:
            self.troubles[what] = self.troubles.get(what, 0) + 1


@dataclass(frozen=True)
class State:
    """The server after a load: whether it answers, MB before it and after each, what it logged."""

    alive: bool
    rested: Sequence[float]
    said: str


def attack(root: Path, scratch: Path, *, clients: int, seconds: float, seed: int) -> Tally:
    """Put a server under load.

    Args:
        root: the seeds (`seeds.make`).
        scratch: an empty folder.
        clients: honest ones; a quarter as many are hostile, beside them.
        seconds: of the load, after a warm-up of a third of that.
        seed: of what they do.
    """
    tally, began = Tally("load"), time.monotonic()
    archive = archive_of(root / "pair")
    with Server(scratch / "server", "--max-size", "128") as server:
        visitor = Visitor(server.port)
        numbers = {name: visitor.function(name) for name in ("Generate", "upload")}
        _crowd(server, archive, numbers, clients, max(10.0, seconds / 3), seed, Counts())
        counts, rested = Counts(), [_rested(server)]
        while len(rested) == 1 or (grown(rested) > MEMORY and len(rested) <= _LOADS):
            _crowd(server, archive, numbers, clients, seconds, seed + len(rested), counts)
            rested.append(_rested(server))
        alive = server.alive and Visitor(server.port).ask("/")[0] == 200
        state = State(alive, rested, server.said())
    tally.cases = counts.served + counts.busy + counts.hostile
    tally.seconds = time.monotonic() - began
    tally.told = {
        "clients": clients, "served": counts.served, "told to wait": counts.busy,
        "opened": counts.opened, "drawn": counts.drawn, "hostile": counts.hostile,
        "median (s)": round(statistics.median(counts.times or [0.0]), 2),
        "slowest (s)": round(max(counts.times, default=0.0), 2),
        "memory, before and after each load (MB)": " → ".join(f"{mb:.0f}" for mb in rested),
    }  # fmt: skip
    for one in wrongs(counts, clients, state):
        tally.add(Finding("load", one, {"seed": seed}))
    return tally


def wrongs(counts: Counts, clients: int, state: "State") -> list[Trouble]:
    """What is wrong after a load."""
    slowest, said = max(counts.times, default=0.0), state.said
    more = grown(state.rested)
    found = [
        (not state.alive, "dead", "the server does not answer"),
        (more > MEMORY, "memory", f"growth: {more:.0f} MB"),
        (slowest > SLOWEST, "slow", f"an honest client waited: {slowest:.1f} s"),
        (counts.served < clients, "unserved", f"served: {counts.served} requests alone"),
        ("Traceback" in said, "log", "traceback: " + said[said.find("Traceback") :][-300:]),
        *((True, "unserved", f"{what}: {times} times") for what, times in counts.troubles.items()),
    ]
    return [Trouble(kind, what, "the server") for holds, kind, what in found if holds]


def grown(rested: Sequence[float]) -> float:
    """MB by which the last load made the server grow."""
    return rested[-1] - rested[-2]


def _rested(server: Server) -> float:
    """The memory when nothing changes any more."""
    until, last = time.monotonic() + _REST, server.memory
    while time.monotonic() < until:
        time.sleep(2)
        now = server.memory
        if abs(now - last) < 0.5:
            return now
        last = now
    return last


def _crowd(
    server: Server, archive: bytes, numbers: dict[str, int], clients: int, seconds: float,
    seed: int, counts: Counts,
) -> None:  # fmt: skip
    """All of them, until the time is over."""
    until = time.monotonic() + seconds
    honest = [
        threading.Thread(
            target=_honest, args=(server, number, archive, numbers, until, seed, counts)
        )
        for number in range(clients)
    ]
    hostile = [
        threading.Thread(
            target=_hostile, args=(server, number, numbers, until, seed, counts), daemon=True
        )
        for number in range(max(len(_HOSTILE), clients // 4))
    ]
    for thread in [*honest, *hostile]:
        thread.start()
    for thread in [*honest, *hostile]:
        thread.join(seconds + 90)


def _honest(
    server: Server, number: int, archive: bytes, numbers: dict[str, int], until: float, seed: int,
    counts: Counts,
) -> None:  # fmt: skip
    chance = random.Random(f"{seed} {number}")
    address = f"127.0.1.{number % 250 + 1}"
    while time.monotonic() < until:
        visitor = Visitor(server.port, address)
        time.sleep(chance.random() * 0.5)
        began = time.monotonic()
        try:
            what = chance.random()
            if what < 0.5:
                good = visitor.ask("/")[0] == 200 and visitor.ask("/config")[0] == 200
                _told(counts, began, good, "the page")
            elif what < 0.9:
                said = visitor.opened(numbers["upload"], archive)
                good = b"<html" in visitor.shown(said).replace(b"&lt;", b"<")
                if good:
                    counts.count("opened")
                _told(counts, began, good, "an archive", said)
            else:
                fields = ["a red house", _EMBEDDED, "1", "1", "", "32", "32", *EMPTY[5:]]
                said = visitor.event(numbers["Generate"], fields)
                if "Saved as" in said:
                    counts.count("drawn")
                _told(counts, began, "Saved as" in said, "a picture", said)
        except (OSError, ValueError) as error:
            if time.monotonic() < until + 5:
                counts.wrong(f"{type(error).__name__} for an honest client: {error}"[:120])


def _told(counts: Counts, began: float, good: bool, what: str, said: str = "") -> None:
    if good:
        # What waits in the line waits for its turn; a page is there at once.
        counts.count("served", None if what == "a picture" else time.monotonic() - began)
    elif _BUSY.search(said):
        counts.count("busy")
    else:
        told = " ".join(re.findall("<p>([^<]+)", said)) or said[-150:]
        counts.wrong(f"{what} was not given to an honest client: {told[:150]!r}")


# --- hostile ones -----------------------------------------------------------------------------


def _hostile(
    server: Server, number: int, numbers: dict[str, int], until: float, seed: int, counts: Counts
) -> None:
    chance = random.Random(f"{seed} hostile {number}")
    act = _HOSTILE[number % len(_HOSTILE)]
    while time.monotonic() < until:
        visitor = Visitor(server.port, f"127.0.2.{number % 250 + 1}")
        with contextlib.suppress(OSError, ValueError):
            act(visitor, numbers, until, chance)
        counts.count("hostile")
        time.sleep(0.05)


def _half_requests(
    visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random
) -> None:
    """Many connections, each with half a head of a request."""
    held = []
    try:
        for _ in range(60):
            wire = visitor.wire(5)
            wire.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "[: chance.randrange(1, 40)])
            held.append(wire)
        time.sleep(min(8.0, max(0.0, until - time.monotonic())))
    finally:
        for wire in held:
            wire.close()


def _slow_upload(
    visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random
) -> None:
    """A byte a second."""
    auth = visitor.headers["Authorization"]
    head = f"POST /uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {auth}\r\n"
    with contextlib.closing(visitor.wire(5)) as wire:
        wire.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        while time.monotonic() < until:
            wire.sendall(b"x")
            time.sleep(1)


def _bomb(visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random) -> None:
    """Archives that unpack to much, and pictures that do."""
    visitor.opened(numbers["upload"], _bombs()[chance.randrange(len(_bombs()))])


@cache
def _bombs() -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="attack-bombs-") as name:
        scratch = Path(name)
        for file in ("run.json", "maps.safetensors"):
            (scratch / file).write_bytes(b"{}")
        Image.new("RGB", (11_000, 11_000)).save(scratch / "image.png")
        return [zips.pack(scratch, changes) for changes in ([], [{"how": "bomb", "entry": 1}])]


def _unheard_job(
    visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random
) -> None:
    """Jobs of sessions that never listen; short ones towards the end, which empty the line soon."""
    steps = 100 if until - time.monotonic() > 20 else 2
    fields = ["a cat", _EMBEDDED, "1", str(steps), "", "", "", *EMPTY[5:]]
    visitor.join(numbers["Generate"], fields)
    time.sleep(0.5)


def _guess(visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random) -> None:
    """Passwords, as many as it takes."""
    for _ in range(20):
        if time.monotonic() > until:
            return
        guessing = Visitor(visitor.port, visitor.address, f"ann:{secrets.token_hex(4)}")
        guessing.ask("/", timeout=10)


def _large_talk(
    visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random
) -> None:
    """Long texts, in new sessions all the time."""
    data = ["x" * 19_000, _EMBEDDED, "1", "1", "", "32", "32", "y" * 19_000, *EMPTY[6:]]
    visitor.join(numbers["Generate"], data)


def _shelf(visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random) -> None:
    """A result of one's own, listed, packed, compared and renamed as often as it goes."""
    fields = ["a red house", _EMBEDDED, "1", "1", "", "32", "32", *EMPTY[5:]]
    found = re.search(r"/results/([\w-]+)\.zip", visitor.event(numbers["Generate"], fields))
    name = found[1] if found else "none"
    last = min(until, time.monotonic() + 10)
    while time.monotonic() < last:
        new = f"house-{chance.randrange(9)}"
        body = json.dumps({"name": new}).encode()
        if visitor.ask(f"/results/{name}/name", body, Content_Type="application/json")[0] == 200:
            name = new
        many = "&".join([f"run={name}"] * 12)
        for path in (f"/comparison?{many}", "/results", f"/results/{name}.zip",
                     f"/results/{name}/picture", f"/results/{name}/page"):  # fmt: skip
            visitor.ask(path)


def _lengths(
    visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random
) -> None:
    """A body whose length is told in two ways, or not as it is."""
    auth = visitor.headers["Authorization"]
    told = chance.choice((
        "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked",
        "Content-Length: 99999999", "Content-Length: -1", "Content-Length: 5\r\nContent-Length: 9",
    ))  # fmt: skip
    path = chance.choice(("/uploads", JOIN))
    with contextlib.closing(visitor.wire(15)) as wire:
        wire.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {auth}\r\n{told}\r\n\r\n"
            .encode()
        )  # fmt: skip
        for _ in range(64):
            wire.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")


def _unread(visitor: Visitor, numbers: dict[str, int], until: float, chance: random.Random) -> None:
    """Much is asked for, and none of it read."""
    held = []
    try:
        auth = visitor.headers["Authorization"]
        for _ in range(10):
            wire = visitor.wire(5)
            one = f"GET /config HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {auth}\r\n\r\n"
            wire.sendall(one.encode() * 50)
            held.append(wire)
        time.sleep(min(10.0, max(0.0, until - time.monotonic())))
    finally:
        for wire in held:
            wire.close()


_HOSTILE = (
    _half_requests, _slow_upload, _slow_upload, _bomb, _unheard_job, _unheard_job, _guess,
    _large_talk, _lengths, _unread, _shelf,
)  # fmt: skip
