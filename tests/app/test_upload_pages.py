"""UploadPages by their address: of results, and of what visitors opened, bounded."""

import re
from pathlib import Path
from typing import Any

import pytest
from cli.calling import files

from app.serving import Served, opening, zip_of
from heedmap.app import upload_pages
from heedmap.app.upload_pages import UploadPages
from heedmap.errors import HeedmapError, RunError
from heedmap.results.runs import Run

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


def held(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


def test_of_each_visitor_some_pages_are_kept_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upload_pages, "_COUNT", 6)
    monkeypatch.setattr(upload_pages, "_OWN", 2)
    monkeypatch.setattr(upload_pages, "_BYTES", 100)
    monkeypatch.setattr(upload_pages, "_MOST", 60)
    kept = UploadPages(tmp_path / "pages")
    first = kept.keep("me", "mine")
    assert re.fullmatch("[0-9a-f]{32}", first) and kept.path(first).read_text() == "mine"
    for n in range(3):
        kept.keep("other", f"other {n}")
    assert sorted(held(tmp_path / "pages")) == ["mine", "other 1", "other 2"]
    for n in range(4):
        kept.keep(f"10.0.0.{n}", "x" * 30)
    assert sum(map(len, held(tmp_path / "pages"))) <= 100
    with pytest.raises(RunError, match="this result has 61 bytes: expected at most 60 bytes"):
        kept.keep("me", "x" * 61)
    monkeypatch.setattr(upload_pages, "PAGE_KEPT", 0.0)
    for name in (first, "", "../x", "0" * 32, "x"):
        with pytest.raises(HeedmapError, match="not there any more"):
            kept.path(name)
    assert held(tmp_path / "pages") == []


@pytest.mark.parametrize("bound, value", [("_BYTES", 900), ("_COUNT", 9)])
def test_large_or_many_pages_push_out_those_of_their_own_visitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
):
    monkeypatch.setattr(upload_pages, bound, value)
    kept = UploadPages(tmp_path / "pages")
    mine = [kept.keep("me", "x" * 100) for _ in range(3)]
    for _ in range(20):
        last = kept.keep("other", "x" * 150)
    assert [kept.path(one).is_file() for one in (*mine, last)] == [True] * 4
    if bound == "_COUNT":
        assert len(held(tmp_path / "pages")) <= 9
    else:
        assert sum(map(len, held(tmp_path / "pages"))) <= 900


def test_one_network_of_the_sixth_version_has_the_pages_of_one_visitor(tmp_path: Path):
    kept = UploadPages(tmp_path / "pages")
    mine = kept.keep("2001:db8:0:1::1", "mine")
    for n in range(20):
        kept.keep(f"2001:db8::{n:x}", f"theirs {n}")
    assert sorted(held(tmp_path / "pages")) == sorted(
        ["mine", *(f"theirs {n}" for n in range(12, 20))]
    )
    assert kept.path(mine).read_text() == "mine"


def test_readers_wait_while_a_page_is_written_or_goes(tmp_path: Path, monkeypatch):
    """Each page comes from a thread of its own."""
    kept = UploadPages(tmp_path / "pages")
    seen: list[bool] = []
    write, unlink = Path.write_bytes, Path.unlink

    def watched(self: Path, *given: Any, **more: Any) -> Any:
        seen.append(kept._lock.locked())
        return (write if given else unlink)(self, *given, **more)

    monkeypatch.setattr(Path, "write_bytes", watched)
    monkeypatch.setattr(Path, "unlink", watched)
    for _ in range(9):
        name = kept.keep("me", "x")
    monkeypatch.setattr(upload_pages, "PAGE_KEPT", -1.0)
    with pytest.raises(HeedmapError, match="not there any more"):
        kept.path(name)
    assert seen == [True] * (9 + 1 + 8)


def test_the_page_of_a_result_is_its_own_shut_off_from_the_app(server: Served, run: Run):
    name = server.app.worker.store.put(run, server.visitor).name
    status, body, headers = server.ask(f"/results/{name}/page")
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    assert body == (server.shelf.folder(name) / "index.html").read_bytes()
    policy = headers["Content-Security-Policy"]
    assert "sandbox allow-scripts allow-downloads;" in policy and "default-src 'none'" in policy
    assert "allow-same-origin" not in policy and "frame-ancestors 'self'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_what_a_visitor_opens_has_a_page_of_which_only_the_visitor_knows(
    server: Served, run: Run, tmp_path: Path
):
    folder = run.save(tmp_path / "saved")
    before = files(server.out)
    said = opening(server, "reader", zip_of(folder))
    found = re.search(r"\./pages/([0-9a-f]{32})", said)
    assert found is not None and "nothing of it is kept here" in said
    status, body, headers = server.ask(f"/pages/{found[1]}")
    assert status == 200 and body == (folder / "index.html").read_bytes()
    assert "sandbox allow-scripts allow-downloads;" in headers["Content-Security-Policy"]
    assert files(server.out) == before
    assert [path.name for path in Path(server.app._uploads.name).glob("unpacked-*")] == []


@pytest.mark.parametrize(
    "path",
    [
        "/results/{name}/page/",
        "/results/{name}x/page",
        "/results/../{name}/page",
        "/results/20261121-000000-00000000000000000000000000000000/page",
        "/pages/{name}",
        "/pages/",
        "/pages/00000000000000000000000000000000",
        "/pages/..%2f..%2fetc%2fpasswd",
        "/pages/%2e%2e",
    ],
)
def test_pages_that_are_not_there(server: Served, run: Run, path: str):
    name = server.app.worker.store.put(run, server.visitor).name
    assert server.ask(path.format(name=name))[0] == 404


def test_pages_are_for_who_knows_the_password_and_the_name(server: Served, run: Run):
    path = f"/results/{server.app.worker.store.put(run, server.visitor).name}/page"
    for where in (path, "/pages/00000000000000000000000000000000"):
        assert server.ask(where, auth="ann:wrong")[0] == 401
        assert server.ask(where, Host="evil.example")[0] == 421
        assert server.ask(where, Origin="http://evil.example")[0] == 403
    assert server.ask(path)[0] == 200
