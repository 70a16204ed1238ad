"""Connections against a real server, byte by byte: who holds them, and for how long."""

import base64
import contextlib
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from making import MARKS

from app.serving import Served, asked_from, until

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from heedmap.app import archives, connections, middleware
from heedmap.app.quotas import Quota, StreamQuota


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD", 0.6)
    monkeypatch.setattr(connections, "STALL", 0.6)
    monkeypatch.setattr(connections, "_LOOK", 0.1)


@contextlib.contextmanager
def connected(server: Served, count: int = 1, address: str = "127.0.0.1") -> Iterator[list]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", server.port), timeout=10, source_address=(address, 0)
                )
            )
            for _ in range(count)
        ]


def head(server: Served, line: str = "GET / HTTP/1.1", *more: str) -> bytes:
    auth = base64.b64encode(server.auth.encode()).decode()
    said = [line, f"Host: 127.0.0.1:{server.port}", f"Authorization: Basic {auth}"]
    said += [f"Cookie: {server.cookie}", *more]
    return "\r\n".join([*said, "", ""]).encode()


def is_closed(one: socket.socket) -> bool:
    """Whether the server has ended a connection; what it said before is read and left."""
    one.settimeout(0.01)
    try:
        while one.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def open_now(server: Served) -> int:
    return len(server.server.server_state.connections)


def test_half_a_request_is_not_waited_for(server: Served, quick: None):
    """Neither at once, nor a byte now and then, nor after a first request that was whole."""
    with connected(server, 4) as (silent, half, slow, second):
        half.sendall(head(server)[:-2])
        second.sendall(head(server, "GET /robots.txt HTTP/1.1"))
        assert second.recv(2**16).startswith(b"HTTP/1.1 ")
        second.sendall(b"GET / HT")
        begun = time.monotonic()
        for letter in head(server):
            with contextlib.suppress(OSError):
                slow.sendall(bytes([letter]))
            time.sleep(0.1)
            if time.monotonic() - begun > 1.2:
                break
        until(lambda: all(map(is_closed, (silent, half, slow, second))), 3)
    assert server.ask("/")[0] == 200


def test_a_body_that_nobody_wants_any_more_is_not_waited_for(server: Served, quick: None):
    with connected(server) as (one,):
        one.sendall(head(server, "GET /config HTTP/1.1", "Content-Length: 1000"))
        begun = time.monotonic()
        while not is_closed(one):
            with contextlib.suppress(OSError):
                one.sendall(b"x")
            time.sleep(0.1)
            assert time.monotonic() - begun < 5
    assert server.ask("/")[0] == 200


@pytest.fixture
def big(server: Served) -> Iterator[str]:
    """The name of a result whose page and zip are large."""
    name = "large-1"
    folder = server.shelf.root / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(MARKS["run.json"]))
    for file in ("index.html", "image.png"):
        (folder / file).write_bytes(bytes(32 * 2**20))
    yield name
    shutil.rmtree(folder)


def test_who_does_not_read_holds_nothing(server: Served, quick: None, big: str):
    with connected(server, 2) as both:
        for one, path in zip(both, (f"{big}/page", f"{big}.zip"), strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(head(server, f"GET /results/{path} HTTP/1.1"))
        until(lambda: open_now(server) == 2, 5)
        until(lambda: open_now(server) == 0, 10)
    until(lambda: not server.app.routes.gallery._packing._taken, 5)
    # Whoever reads slowly, but reads, gets all of it.
    with connected(server) as (one,):
        one.sendall(head(server, f"GET /results/{big}/page HTTP/1.1", "Connection: close"))
        got = 0
        for pause in (0.4, 0.4, 0.4, 0.4, *[0.0] * 10_000):
            time.sleep(pause)
            block = one.recv(2**20)
            got += len(block)
            if not block:
                break
        assert got > 32 * 2**20


def test_of_zips_that_are_packed_each_visitor_has_a_share(
    server: Served, big: str, monkeypatch: pytest.MonkeyPatch
):
    go_on, real = threading.Event(), archives.zip_result

    def slow(folder: Path, file: Any) -> None:
        assert go_on.wait(20)
        real(folder, file)

    monkeypatch.setattr(archives, "zip_result", slow)
    fetch = head(server, f"GET /results/{big}.zip HTTP/1.1")
    taken = server.app.routes.gallery._packing._taken
    with connected(server, 3) as (first, second, third):
        for one in (first, second):
            one.sendall(fetch)
        until(lambda: len(taken) == 2, 5)
        third.sendall(fetch)
        assert third.recv(2**16).startswith(b"HTTP/1.1 429 ")
        go_on.set()
        for one in (first, second):
            assert one.recv(2**16).startswith(b"HTTP/1.1 200 ")
        until(lambda: not taken, 5)  # a place is for packing: who reads slowly holds none


def test_who_drips_is_told_no_more_after_a_while(
    server: Served, big: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(middleware, "GRACE", 1.0)
    monkeypatch.setattr(middleware, "SPEED", 2**30)
    with connected(server) as (one,):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(head(server, f"GET /results/{big}.zip HTTP/1.1"))
        until(lambda: server.app.routes.gallery._sending._open, 5)
        begun = time.monotonic()
        while server.app.routes.gallery._sending._open:
            with contextlib.suppress(OSError):
                one.recv(1)
            assert time.monotonic() - begun < 10
            time.sleep(0.05)


def test_downloads_give_way_to_those_of_others(
    server: Served, big: str, monkeypatch: pytest.MonkeyPatch
):
    """Whoever fetches from many connections and does not read keeps out none but himself."""
    gate = server.app.routes.gallery
    monkeypatch.setattr(gate, "_packing", Quota(2, own=2))
    monkeypatch.setattr(gate, "_sending", StreamQuota(3, own=2), raising=False)
    fetch = head(server, f"GET /results/{big}.zip HTTP/1.1")

    def begin(one: socket.socket) -> None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(fetch)
        assert one.recv(9) == b"HTTP/1.1 "
        assert one.recv(3) == b"200"

    with connected(server, 3, "127.0.0.2") as theirs, connected(server, 1, "127.0.0.3") as (other,):
        for one in (*theirs, other):  # the third of the same network ends its first
            begin(one)
        assert len(gate._sending._open) == 3
        with connected(server) as (mine,):
            mine.sendall(head(server, f"GET /results/{big}.zip HTTP/1.1", "Connection: close"))
            got = 0
            while block := mine.recv(2**20):
                got += len(block)
        assert got > 32 * 2**20
        until(lambda: [who for who, _ in gate._sending._open] == ["127.0.0.2", "127.0.0.3"], 5)


def test_eleven_hundred_half_requests_are_in_nobodys_way(
    server: Served, monkeypatch: pytest.MonkeyPatch
):
    """Without any password; the longest-waiting gives way, and others' addresses have their own."""
    with connected(server) as (kept,), contextlib.ExitStack() as crowd:
        kept.sendall(head(server, "GET /gradio_api/heartbeat/honest HTTP/1.1"))
        assert kept.recv(2**16).startswith(b"HTTP/1.1 200")
        longest = 0.0
        for n in range(11):
            for one in crowd.enter_context(connected(server, 100)):
                one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
            since = time.monotonic()
            assert server.ask("/robots.txt")[0] in (200, 404), n
            longest = max(longest, time.monotonic() - since)
            until(lambda: open_now(server) <= connections.OWN, 5)
        assert longest < 5 and not is_closed(kept)
    until(lambda: open_now(server) == 0, 5)


def test_each_address_has_a_share(server: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "OWN", 3)
    monkeypatch.setattr(connections, "MOST", 5)
    stream = head(server, "GET /gradio_api/heartbeat/x HTTP/1.1")
    with connected(server, 3) as mine, connected(server, 1, "127.0.0.2") as theirs:
        for one in (*mine, *theirs):
            one.sendall(stream)
            assert one.recv(2**16).startswith(b"HTTP/1.1 200")
        with connected(server) as (more,):
            assert more.recv(2**16).startswith(b"HTTP/1.1 503 ")  # all of mine are at work
            assert is_closed(more)
        with connected(server, 2, "127.0.0.3") as (waits, comes):
            comes.sendall(head(server, "GET /robots.txt HTTP/1.1"))
            assert comes.recv(2**16).startswith(b"HTTP/1.1 ")
            until(lambda: is_closed(waits), 5)
        assert not any(map(is_closed, (*mine, *theirs)))


PULSE = "GET /gradio_api/heartbeat/s{} HTTP/1.1"


def begun(stream: socket.socket) -> bool:
    return stream.recv(2**16).startswith(b"HTTP/1.1 200")


def test_streams_of_strangers_are_in_nobodys_way(server: Served, capfd):
    """440 from four addresses, which hold all that may be held, and go on asking."""
    with connected(server, 2, "127.0.0.9") as (honest, other), contextlib.ExitStack() as crowd:
        for n, one in enumerate((honest, other)):
            one.sendall(head(server, PULSE.format(n)))
            assert begun(one)
        for n in range(440):
            (one,) = crowd.enter_context(connected(server, 1, f"127.0.1.{n % 4}"))
            one.sendall(head(server, PULSE.format(n)))
            assert begun(one), n
        until(lambda: open_now(server) <= connections.MOST, 5)
        since = time.monotonic()
        for address in ("127.0.0.9", "127.0.0.10", "127.0.1.1"):
            assert asked_from(server, address, "/config")[0] == 200
        assert time.monotonic() - since < 10
        assert not is_closed(honest) and not is_closed(other)
    until(lambda: open_now(server) == 0, 10)
    assert "Traceback" not in capfd.readouterr().err


def test_streams_of_many_networks_leave_room_for_others(
    server: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(middleware, "TURN", 0.0)
    with contextlib.ExitStack() as crowd:
        for n in range(450):
            (one,) = crowd.enter_context(connected(server, 1, f"127.0.{2 + n // 250}.{n % 250}"))
            one.sendall(head(server, PULSE.format(n)))
            assert begun(one), n
        assert asked_from(server, "127.0.0.9", "/config")[0] == 200
        assert len(server.app.routes._streams._open) == connections.MOST // 2 == 200
    until(lambda: open_now(server) == 0, 10)


def test_a_stream_that_gives_way_is_ended_as_any(server: Served, caplog: pytest.LogCaptureFixture):
    with connected(server, 61) as (first, *others):
        for n, one in enumerate((first, *others)):
            one.sendall(head(server, PULSE.format(n)))
            assert begun(one)
        said = b""
        while not said.endswith(b"0\r\n\r\n"):
            said += first.recv(2**16)
        first.sendall(head(server, "GET /config HTTP/1.1"))  # the connection is as good as before
        assert first.recv(2**10).startswith(b"HTTP/1.1 200")
        assert not any(map(is_closed, others))
        # An open page has up to two connections, and one of them is a stream.
        assert len(server.app.routes._streams._open) == connections.OWN // 2 == 60
    assert not caplog.records


def test_slow_bodies_of_strangers_are_in_nobodys_way(server: Served):
    """Each is waited for, for a while; whoever has most of them gives way."""
    slow = head(server, "POST /gradio_api/queue/join HTTP/1.1", "Content-Length: 1000")
    with connected(server, 1, "127.0.0.9") as (honest,), contextlib.ExitStack() as crowd:
        honest.sendall(head(server, PULSE.format("honest")))
        assert begun(honest)
        for n in range(420):
            (one,) = crowd.enter_context(connected(server, 1, f"127.0.1.{n % 4}"))
            one.sendall(slow + b"{")
        until(lambda: open_now(server) >= connections.MOST, 5)
        assert asked_from(server, "127.0.0.10", "/config")[0] == 200
        assert not is_closed(honest)
    until(lambda: open_now(server) == 0, 10)
