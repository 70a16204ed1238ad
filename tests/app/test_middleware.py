"""What stands in front: what arrives and for how long, names, passwords; what Gradio is told."""

import asyncio
import base64
import json
import logging
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from starlette.applications import Starlette
from starlette.datastructures import Headers as Given
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.serving import sends
from heedmap.app import messages, middleware
from heedmap.app.middleware import Hosts, Passwords, blocks_of, body_of, refusal
from heedmap.app.quotas import network


def welcome(request: Request) -> PlainTextResponse:
    return PlainTextResponse("welcome")


HOUSE = Starlette(routes=[Route("/", welcome)])


def read(headers: dict[str, str], *blocks: bytes | None, most: int = 8, pause: float = 0) -> bytes:
    return asyncio.run(body_of(Given(headers), sends(*blocks, pause=pause), most=most))


# --- bodies -----------------------------------------------------------------------------------


def test_a_body_is_counted_as_it_arrives():
    assert read({"content-length": "8"}, b"1234", b"5678") == b"12345678"
    for told, blocks, status in (
        ({"content-length": "9"}, [b"123456789"], 413),
        ({"content-length": "5"}, [b"1234", b"56789"], 413),  # whatever was told
        ({"content-length": "5", "transfer-encoding": "chunked"}, [b"1"], 400),
        ({"transfer-encoding": "chunked"}, [b"1"], 411),
        ({}, [b"1"], 411),
        *(({"content-length": odd}, [b"1"], 411) for odd in ("-1", "", "1e3", "²")),
        *(({"content-length": "9" * n}, [b"1"], 413) for n in (19, 20, 5000)),
    ):
        with pytest.raises(HTTPException) as refused:
            read(told, *blocks)
        assert refused.value.status_code == status, told
    with pytest.raises(ClientDisconnect):
        read({"content-length": "5"}, b"12", None)


def test_a_body_that_is_said_to_be_too_large_is_not_waited_for():
    with pytest.raises(HTTPException) as refused:
        read({"content-length": "9"})  # nothing of it comes
    assert refused.value.status_code == 413
    assert read({"content-length": "8"}, b"") == b""


def test_a_body_comes_in_time_or_not_at_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(middleware, "GRACE", 0.05)
    assert read({"content-length": "4"}, b"1234") == b"1234"
    with pytest.raises(HTTPException) as refused:
        read({"content-length": "4"}, *[b"1"] * 4, pause=0.03)
    assert refused.value.status_code == 408
    monkeypatch.setattr(middleware, "SPEED", 8)  # bytes a second
    assert read({"content-length": "8"}, *[b"1"] * 4, pause=0.03) == b"1111"


def test_who_is_refused_may_say_all_there_is_to_say(monkeypatch: pytest.MonkeyPatch):
    """Whoever still sends reads no answer; but nobody is waited for who has said all."""
    heard = sends(b"12", b"34", b"56")
    answer = asyncio.run(refusal(heard, 403, "No."))
    assert (answer.status_code, answer.body, heard.complete) == (403, b"No.", True)
    monkeypatch.setattr(middleware, "GRACE", 60.0)
    assert asyncio.run(refusal(heard, 403, "No.")).status_code == 403  # at once
    monkeypatch.setattr(middleware, "_DRAINED", 3)
    endless = sends(*[b"12"] * 9)
    asyncio.run(refusal(endless, 403, "No."))
    assert not endless.complete
    monkeypatch.setattr(middleware, "GRACE", 0.05)
    slow = sends(b"1", b"1", b"1", pause=0.03)
    asyncio.run(refusal(slow, 403, "No."))
    assert not slow.complete


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:7860", None, 200),
        ("LOCALHOST", None, 200),
        ("[::1]:7860", None, 200),
        ("evil.example", None, 421),
        ("[", None, 421),
        ("", None, 421),
        ("xlocalhost", None, 421),
        ("x.localhost:7860", None, 421),
        ("localhost.evil.example", None, 421),
        ("localhost@evil.example", None, 421),
        ("localhost:7860", "http://localhost:7860", 200),
        ("localhost:7860", "http://LOCALHOST:7860", 200),
        ("localhost:7860", "http://localhost:3000", 403),  # another server of this machine
        ("localhost:7860", "http://evil.example", 403),
        ("localhost:7860", "null", 403),
        ("localhost:7860", "http://[", 403),
        ("localhost:7860", "", 403),
    ],
)
def test_names_and_origins(host: str, origin: str | None, status: int):
    asked = TestClient(Hosts(HOUSE, ["localhost", "::1"]), base_url="http://localhost")
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    assert asked.get("/", headers=headers).status_code == status
    anybody = TestClient(Hosts(HOUSE, None))
    assert anybody.get("/", headers={"host": "x.example"}).status_code == 200


def test_pages_of_other_servers_are_told_nothing():
    async def generous(scope: Any, receive: Any, send: Any) -> None:
        told = {"access-control-allow-origin": "*", "access-control-allow-credentials": "true"}
        await PlainTextResponse("x", headers=told)(scope, receive, send)

    answer = TestClient(middleware.Headers(generous)).get("/")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


# --- passwords --------------------------------------------------------------------------------


def basic(said: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(said.encode()).decode()}"}


def client(door: Passwords, address: str) -> TestClient:
    return TestClient(door, client=(address, 5))


def test_guessing_becomes_slower_and_stands_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(middleware, "TURN", 0.0)
    now = [1000.0]
    monkeypatch.setattr(middleware.time, "monotonic", lambda: now[0])
    door = Passwords(HOUSE, {"ann": "secret"})
    guesser, ann = client(door, "10.0.0.1"), client(door, "10.0.0.2")
    assert ann.get("/", headers=basic("ann:secret")).status_code == 200
    with caplog.at_level(logging.WARNING):
        for n in range(middleware.FREE):
            assert guesser.get("/", headers=basic(f"ann:{n}")).status_code == 401
    assert "10 wrong passwords in a row from 10.0.0.1" in caplog.text
    answer = guesser.get("/", headers=basic("ann:secret"))
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) <= 2
    right = 0
    for _ in range(600):  # ten minutes, a guess a second
        now[0] += 1
        right += guesser.get("/", headers=basic("ann:wrong")).status_code == 401
    assert right <= 20  # up to a minute from one to the next
    assert ann.get("/", headers=basic("ann:secret")).status_code == 200  # at any time
    now[0] += middleware.MAX_WAIT
    assert guesser.get("/", headers=basic("ann:secret")).status_code == 200
    for n in range(middleware.FREE):  # and from anew
        assert guesser.get("/", headers=basic(f"ann:{n}")).status_code == 401
    assert guesser.get("/", headers=basic("ann:no")).status_code == 429
    assert guesser.get("/", headers=basic("ann:secret")).status_code == 200  # it is known


def test_one_visitor_has_one_network_of_the_sixth_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(middleware, "TURN", 0.0)
    door = Passwords(HOUSE, {"ann": "secret"})
    for n in range(middleware.FREE):
        assert client(door, f"2001:db8::{n:x}").get("/", headers=basic("x:y")).status_code == 401
    other, same = client(door, "2001:db8:0:1::1"), client(door, "2001:db8::ffff")
    assert same.get("/", headers=basic("ann:secret")).status_code == 429
    assert other.get("/", headers=basic("ann:secret")).status_code == 200


def test_so_many_addresses_are_remembered_the_last_ones(monkeypatch: pytest.MonkeyPatch):
    """A network may have any number; who guesses on is not forgotten for them."""
    monkeypatch.setattr(middleware, "TURN", 0.0)
    monkeypatch.setattr(middleware, "_KNOWN", 3)
    door = Passwords(HOUSE, {"ann": "secret"})
    for n in (1, 2, 3, 1, 4):
        client(door, f"10.0.0.{n}").get("/", headers=basic("ann:wrong"))
    assert {whose: count for whose, (count, _) in door._wrong.items()} == {
        "10.0.0.3": 1, "10.0.0.1": 2, "10.0.0.4": 1,
    }  # fmt: skip
    for n in range(5, 9):
        client(door, f"10.0.0.{n}").get("/", headers=basic("ann:secret"))
    assert list(door._known) == ["10.0.0.6", "10.0.0.7", "10.0.0.8"]


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),  # else all of the fourth version were one visitor
        ("::ffff:c000:201", "192.0.2.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:0DB8::ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_whose_an_address_is(address: str, whose: str):
    assert network(address) == whose


def test_passwords_are_looked_at_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    """However many addresses guess: ten a second, and no more than wait in line."""
    monkeypatch.setattr(middleware, "TURN", 0.02)
    monkeypatch.setattr(middleware, "_LINE", 5)
    door = Passwords(HOUSE, {"ann": "secret"})

    async def ask(number: int) -> int:
        said = [(b"authorization", basic("ann:wrong")["authorization"].encode())]
        scope = {"type": "http", "client": (f"10.0.0.{number}", 1), "headers": said}
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await door(scope, sends(b""), send)
        return sent[0]["status"]

    async def crowd() -> tuple[list[int], float]:
        clock = asyncio.get_running_loop().time
        since = clock()
        found = await asyncio.gather(*(ask(n) for n in range(20)))
        return found, clock() - since

    found, took = asyncio.run(crowd())
    assert sorted(found) == [401] * 5 + [429] * 15 and took >= 0.1


def test_a_network_that_guesses_leaves_room_in_the_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(middleware, "TURN", 0.01)
    door = Passwords(HOUSE, {"ann": "secret"})

    async def ask(address: str, said: str) -> int:
        headers = [(b"authorization", basic(said)["authorization"].encode())]
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
        await door({**scope, "client": (address, 1), "headers": headers}, sends(b""), send)
        return sent[0]["status"]

    async def crowd() -> list[int]:
        strangers = [ask("10.0.0.1", f"ann:{n}") for n in range(120)]
        return await asyncio.gather(*strangers, ask("10.0.0.2", "ann:secret"))

    *strangers, honest = asyncio.run(crowd())
    assert honest == 200 and strangers.count(401) == middleware._LINE_OWN == 8
    assert strangers.count(429) == 112


def test_a_browser_without_a_password_is_asked_for_one(monkeypatch: pytest.MonkeyPatch):
    door = client(Passwords(HOUSE, {"ann": "pass:word"}), "10.0.0.1")
    for _ in range(2 * middleware.FREE):
        answer = door.get("/")
        assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic")
    assert door.get("/", headers={"authorization": "Bearer x"}).status_code == 401
    assert door.get("/", headers={"authorization": "Basic !"}).status_code == 401
    assert door.get("/", headers=basic("ann:pass:word")).status_code == 200
    assert TestClient(Passwords(HOUSE, {})).get("/").status_code == 200


# --- what Gradio may be told ------------------------------------------------------------------

FILE = {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}}


@pytest.mark.parametrize(
    "change",
    [
        {"data": [FILE]},
        {"data": [[FILE]]},
        {"data": [[[]]]},
        {"data": [{"a": 1}]},
        {"data": ["x" * 20_001]},
        {"data": [1] * 65},
        {"data": "x"},
        {"session_hash": "a/b"},
        {"session_hash": ""},
        {"session_hash": None},
        {"fn_index": -1},
        {"fn_index": "0"},
        {"fn_index": 10**9},
        {"event_data": {"token": "../etc"}},
    ],
)
def test_no_field_is_a_file(change: dict[str, Any]):
    fine = {"data": ["a", 1, 0.5, True, None, ["layer"]], "fn_index": 3, "session_hash": "ab1"}
    read = messages.parsed(messages.Event, json.dumps(fine).encode())
    assert read is not None and read.data == fine["data"]
    assert messages.parsed(messages.Event, json.dumps(fine | change).encode()) is None


def test_what_else_is_said_is_left_out():
    said = {"data": [], "fn_index": 3, "session_hash": "a", "event_data": FILE, "request": FILE}
    found = messages.parsed(messages.Event, json.dumps(said).encode())
    assert found is not None and json.loads(messages.encoded(found)) == {
        "data": [], "fn_index": 3, "session_hash": "a", "event_data": None, "trigger_id": None,
    }  # fmt: skip
    half = b'{"data": ["a\\ud800"], "fn_index": 0, "session_hash": "a"}'
    found = messages.parsed(messages.Event, half)
    assert found is not None and found.data == ["a?"]


@pytest.mark.parametrize(
    "said", [b"", b"[" * 100_000, b'{"event_data":' * 9000, b"\xff", b"7", b"null", b"{}"]
)
def test_what_is_no_message(said: bytes):
    assert messages.parsed(messages.Event, said) is None


def test_blocks_come_one_by_one():
    async def firsts() -> bytes:
        async for block in blocks_of(Given({"content-length": "4"}), sends(b"1", b"234"), most=8):
            return block
        return b""

    assert asyncio.run(firsts()) == b"1"
