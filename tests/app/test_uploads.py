"""Files that visitors send: a share for each, names that nobody can guess, and nothing kept."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from starlette.datastructures import Headers as Given
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.serving import sends
from heedmap.app import uploads
from heedmap.app.uploads import Uploads
from heedmap.errors import HeedmapError


def take(held: Uploads, whose: str, body: bytes = b"x", receive: Any = None) -> Any:
    told = Given({"content-length": str(len(body))})
    return held.take(whose, told, receive or sends(body))


def test_each_visitor_has_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    held = Uploads(tmp_path, 8)
    mine = asyncio.run(take(held, "me", b"mine"))
    for _ in range(9):
        asyncio.run(take(held, "other"))
    assert (tmp_path / mine).read_bytes() == b"mine"  # whatever others send
    assert len(list(tmp_path.iterdir())) == 5
    monkeypatch.setattr(uploads, "_WAITING", 5)
    theirs = asyncio.run(take(held, "third", b"theirs"))  # whoever has most loses his oldest
    assert [(tmp_path / one).exists() for one in (mine, theirs)] == [True, True]
    assert len(list(tmp_path.iterdir())) == 5
    monkeypatch.setattr(uploads, "UPLOAD_KEPT", 0.0)
    asyncio.run(take(held, "third"))
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(HeedmapError, match="not there any more"):
        held.open(mine)
    for odd in ("", "../x", "0" * 31, "0" * 32):
        with pytest.raises(HeedmapError, match="not there any more"):
            held.open(odd)
    last = asyncio.run(take(held, "third", b"last"))
    assert held.open(last).read_bytes() == b"last"
    with pytest.raises(HeedmapError, match="not there any more"):
        held.open(last)  # once


def test_files_of_one_network_of_the_sixth_version_are_of_one_visitor(tmp_path: Path):
    held = Uploads(tmp_path, 8)
    mine = asyncio.run(take(held, "2001:db8:0:1::1", b"mine"))
    for n in range(9):
        asyncio.run(take(held, f"2001:db8::{n}", b"x"))
    assert len(list(tmp_path.iterdir())) == 5
    assert held.open(mine).read_bytes() == b"mine"


def test_the_oldest_of_who_has_most_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uploads, "_WAITING", 4)
    held = Uploads(tmp_path, 8)
    first, second, third = [asyncio.run(take(held, "10.0.0.1")) for _ in range(3)]
    other = asyncio.run(take(held, "10.0.0.2"))
    last = asyncio.run(take(held, "10.0.0.3"))
    assert {path.name for path in tmp_path.iterdir()} == {second, third, other, last}
    with pytest.raises(HeedmapError, match="not there any more"):
        held.open(first)


def test_nobody_loses_a_file_that_is_about_to_be_opened(tmp_path: Path, monkeypatch):
    """As many visitors as there are places, each with one file: the next one is told to wait."""
    monkeypatch.setattr(uploads, "_WAITING", 3)
    now = [100.0]
    monkeypatch.setattr(uploads.time, "monotonic", lambda: now[0])
    held = Uploads(tmp_path, 8)
    first, *_ = [asyncio.run(take(held, f"10.0.{n}.1", b"mine")) for n in range(3)]
    for seconds in (0.0, 19.9):
        now[0] = 100.0 + seconds
        with pytest.raises(HTTPException, match="Too many files wait to be opened") as told:
            asyncio.run(take(held, "10.0.9.1"))
        assert told.value.status_code == 503 and len(list(tmp_path.iterdir())) == 3
    now[0] = 120.1  # a page opens what it has sent at once: this one was forgotten
    asyncio.run(take(held, "10.0.9.1"))
    with pytest.raises(HeedmapError, match="not there any more"):
        held.open(first)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_empty_file_is_told_as_such(tmp_path: Path):
    held = Uploads(tmp_path, 8)
    for _ in range(2):  # and holds no place
        with pytest.raises(HTTPException, match="This file is empty") as refused:
            asyncio.run(take(held, "me", b""))
        assert refused.value.status_code == 400
    assert not list(tmp_path.iterdir())


def test_who_sends_slowly_is_in_nobodys_way(tmp_path: Path):
    held = Uploads(tmp_path, 8)

    async def together() -> tuple[Any, ...]:
        slow = asyncio.create_task(take(held, "slow", b"12", sends(b"1", b"2", pause=0.2)))
        await asyncio.sleep(0.05)
        with pytest.raises(HTTPException) as refused:
            await take(held, "slow")
        assert refused.value.status_code == 429
        others = [await take(held, "other") for _ in range(3)]
        return slow.done(), await slow, others

    early, _, others = asyncio.run(together())
    assert not early and len(others) == 3
    with pytest.raises(ClientDisconnect):
        asyncio.run(take(held, "slow", b"12", sends(b"1", None)))
    assert len(list(tmp_path.iterdir())) == 4  # nothing of what was left half-way
    assert asyncio.run(take(held, "slow"))


@pytest.mark.parametrize(
    ("told", "blocks", "status"),
    [
        ("9", [b"123456789"], 413),  # it says so
        ("8", [b"12345678", b"9"], 413),  # it does not
        ("", [b"1"], 411),
    ],
)
def test_what_is_refused_on_its_way_leaves_nothing(tmp_path: Path, told, blocks, status):
    held = Uploads(tmp_path, 8)
    with pytest.raises(HTTPException) as refused:
        asyncio.run(held.take("me", Given({"content-length": told}), sends(*blocks)))
    assert refused.value.status_code == status
    assert not list(tmp_path.iterdir())
    asyncio.run(take(held, "me"))  # the place is free again


def test_a_visitor_who_leaves_leaves_nothing(tmp_path: Path):
    held = Uploads(tmp_path, 8)
    with pytest.raises(ClientDisconnect):
        asyncio.run(take(held, "me", b"1234", sends(b"12", None)))
    assert not list(tmp_path.iterdir())


def test_names_are_of_128_bits_and_never_the_same(tmp_path: Path):
    held = Uploads(tmp_path, 8)
    names = [asyncio.run(take(held, f"10.0.0.{n}")) for n in range(20)]
    assert len(set(names)) == 20
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)
