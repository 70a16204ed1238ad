"""What stays in memory of a hundred visitors: next to nothing, whatever they do."""

import gc
import json
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from app.serving import (
    FIELDS,
    PROMPT,
    Served,
    asked_from,
    dependency,
    generating,
    opening,
    until,
    zip_of,
)  # fmt: skip
from heedmap.app import jobs, sessions
from heedmap.app.sessions import _SESSIONS
from heedmap.drawing import generation
from heedmap.errors import HeedmapError
from heedmap.results.runs import Run

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


@pytest.fixture
def grown() -> Iterator[Callable[[], float]]:
    """MB that Python holds beyond what it held at the beginning."""
    gc.collect()
    tracemalloc.start()

    def measure() -> float:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 2**20

    yield measure
    tracemalloc.stop()


def long_run(run: Run, length: int) -> Run:
    """A run with a setting of so many characters, which stands on its page."""
    more = {"note": "note " * (length // 5)}
    return Run(run.image, run.maps, structs.replace(run.settings, more=more))


def test_no_result_of_a_hundred_sessions_is_kept(
    server: Served, run: Run, monkeypatch: pytest.MonkeyPatch, grown: Callable[[], float]
):
    made: list[Any] = []

    def draw(*_: Any, **__: Any) -> Run:
        result = long_run(run, 2**21)
        made.append(weakref.ref(result))
        return result

    put = server.app.worker.store.put(run, server.visitor)
    monkeypatch.setattr(generation, "generate", draw)
    monkeypatch.setattr(server.app.worker.store, "put", lambda *_: put)
    assert f"./results/{put.name}/page" in generating(server, "before", PROMPT)
    before = grown()
    for n in range(100):
        assert "Saved as" in generating(server, f"many{n}", PROMPT)
    until(lambda: gc.collect() >= 0 and not any(held() for held in made))
    assert len(made) == 101 and grown() - before < 16  # Gradio keeps 0.12 MB of a session itself


@pytest.mark.slow
def test_no_upload_of_a_hundred_sessions_is_kept(
    server: Served, run: Run, tmp_path: Path, grown: Callable[[], float]
):
    folder = long_run(run, 200 * 2**10).save(tmp_path / "saved", overlays=False)
    file = zip_of(folder)
    assert "./pages/" in opening(server, "first", file)
    before = grown()
    for n in range(100):
        assert "./pages/" in opening(server, f"reader{n}", file)
    assert grown() - before < 16
    assert len(list((Path(server.app._uploads.name) / "pages").iterdir())) <= 8  # of one address


def test_sessions_that_are_only_names_are_bounded(server: Served):
    """Whoever invents a session for each request, and never listens."""
    call = dependency(server, "upload")
    kind = {"Content-Type": "application/json"}
    for n in range(_SESSIONS + 20):
        body = {"data": [], "fn_index": call["id"], "session_hash": f"invented{n}"}
        status, _, _ = server.ask("/gradio_api/queue/join", json.dumps(body).encode(), **kind)
        assert status in (200, 503)
    page = server.app._page
    until(lambda: not any(page._queue.active_jobs))
    assert len(page._queue.pending_messages_per_session) <= _SESSIONS
    assert len(page._queue.pending_event_ids_session) <= _SESSIONS
    assert len(page.state_holder.session_data) <= _SESSIONS + 1
    until(lambda: not page._queue.event_ids_to_events)


@pytest.mark.parametrize("path", ["/gradio_api/queue/join", "/gradio_api/run/predict"])
def test_who_invents_sessions_pushes_out_none_but_his_own(
    server: Served, monkeypatch: pytest.MonkeyPatch, path: str
):
    monkeypatch.setattr(sessions, "_SESSIONS", 12, raising=True)
    page = server.app._page
    queued, field = dependency(server, "upload"), dependency(server, "Cancel")
    assert "Saved as" in generating(server, "honest", PROMPT)
    before = page.state_holder["honest"]
    for n in range(40):
        number = (queued if path.endswith("join") else field)["id"]
        body = {"data": [], "fn_index": number, "session_hash": f"stranger{n}"}
        status, answer = asked_from(server, "127.0.0.2", path, json.dumps(body).encode())
        assert status == 200, answer
    until(lambda: not any(page._queue.active_jobs))
    assert page.state_holder["honest"] is before
    assert "honest" in page._queue.pending_messages_per_session
    assert len(page.state_holder.session_data) <= 13
    assert "stranger39" in page.state_holder and "stranger20" not in page.state_holder
    assert len(page.state_holder.time_last_used) <= 13


def test_of_those_who_have_gone_the_oldest_of_who_has_most_goes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "_SESSIONS", 6)
    known = sessions.Sessions()
    kept = known.kept(list)

    def come(session: str, client: str) -> None:
        known.welcome(session, client)
        kept[session] = session

    with known.present.opened("a1"), known.listening.opened("a2"):
        for session in ("a1", "a2", "b1", "a3", "a4", "b2", "a5"):
            come(session, f"10.0.0.{ord(session[0])}")
        assert list(kept) == ["a1", "a2", "b1", "a4", "b2", "a5"]  # a1 and a2 are there
        come("b1", "10.0.0.98")
        come("c1", "10.0.0.99")
        assert list(kept) == ["a1", "a2", "b1", "b2", "a5", "c1"]
        for n in range(20):  # whoever comes from many addresses cannot close an open page
            come(f"n{n}", f"10.1.0.{n}")
        assert {"a1", "a2", "n19"} <= set(kept) and len(kept) == 6
    come("d1", "10.0.0.100")
    assert kept["a1"] == [] and "a1" not in kept  # once it is closed, it goes as others do


def test_who_comes_again_is_the_last_to_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "_SESSIONS", 3)
    known = sessions.Sessions()
    for session in ("a", "b", "c", "a", "d"):
        known.welcome(session, "10.0.0.1")
    assert [session for session in "abcd" if session in known] == ["a", "c", "d"]


def test_sessions_of_one_network_of_the_sixth_version_are_of_one_visitor(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sessions, "_SESSIONS", 5)
    known = sessions.Sessions()
    for n in range(2):
        known.welcome(f"honest{n}", "10.0.0.1")
    for n in range(40):
        known.welcome(f"stranger{n}", f"2001:db8::{n:x}")
    assert "honest0" in known and "honest1" in known
    assert "stranger36" not in known and "stranger37" in known


def test_nothing_is_kept_of_who_is_no_guest():
    known = sessions.Sessions()
    kept = known.kept(list)
    kept["stranger"] = [1]
    kept["stranger"].append(2)
    assert not kept and kept["stranger"] == []
    known.welcome("guest", "10.0.0.1")
    kept["guest"] = [1]
    del kept["stranger"]
    assert dict(kept) == {"guest": [1]}


def test_jobs_of_sessions_that_have_gone_end_quietly(
    server: Served, run: Run, monkeypatch: pytest.MonkeyPatch, capfd
):
    monkeypatch.setattr(sessions, "_SESSIONS", 4)
    monkeypatch.setattr(jobs, "PATIENCE", 0.5)
    call = dependency(server, "Generate")
    kind = {"Content-Type": "application/json"}
    for n in range(12):
        said = {"data": [PROMPT, *FIELDS], "fn_index": call["id"], "session_hash": f"deaf{n}"}
        status, _, _ = server.ask("/gradio_api/queue/join", json.dumps(said).encode(), **kind)
        assert status == 200
    queue = server.app._page._queue
    until(lambda: not any(queue.active_jobs) and not len(queue))
    assert len(queue.pending_messages_per_session) <= 4
    assert "Saved as" in generating(server, "hears", PROMPT)
    assert "Traceback" not in capfd.readouterr().err


def test_a_job_that_nobody_asks_for_any_more_leaves_nothing(queue):
    from heedmap.app.forms import VisitorJobs

    jobs_of = VisitorJobs(queue, ["me"])
    states = jobs_of.follow("me", "generate", lambda job: "result")
    assert next(states).phase in ("waiting", "working", "done") and jobs_of._jobs
    states.close()
    assert not jobs_of._jobs


def test_the_line_is_told_whose_a_job_is(server: Served, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    enter = server.app.queue.enter

    def spy(work: Any, client: str = "") -> Any:
        told.append(client)
        return enter(work, client)

    monkeypatch.setattr(server.app.queue, "enter", spy)
    assert "Saved as" in generating(server, "known", PROMPT)
    assert told == ["127.0.0.1"]


def test_events_of_one_network_leave_room_in_gradios_line(
    server: Served, monkeypatch: pytest.MonkeyPatch
):
    """Gradio takes 256 that wait; whoever fills it would keep out all others."""
    go_on = threading.Event()

    def full(*_: Any) -> Any:
        go_on.wait(30)
        raise HeedmapError("the line is full")

    monkeypatch.setattr(server.app.queue, "enter", full)
    number = dependency(server, "Generate")["id"]
    monkeypatch.setattr(sessions, "_SESSIONS", 16)  # whose events they are is known without, too

    def join(session: str, address: str) -> int:
        said = {"data": [PROMPT, *FIELDS], "fn_index": number, "session_hash": session}
        return asked_from(server, address, "/gradio_api/queue/join", json.dumps(said).encode())[0]

    try:
        found = [join(f"s{n % 50}", "127.0.0.2") for n in range(300)]
        assert found == [200] * 32 + [429] * 268
        assert join("honest", "127.0.0.3") == 200
    finally:
        go_on.set()
    until(lambda: not server.app._page._queue.event_ids_to_events)
    assert join("s0", "127.0.0.2") == 200


def test_who_never_reads_is_answered_no_more(server: Served, monkeypatch: pytest.MonkeyPatch):
    """Gradio keeps each message for a session until its page reads it."""
    monkeypatch.setattr(sessions, "_UNREAD", 6)
    number = dependency(server, "upload")["id"]
    queue = server.app._page._queue

    def join(session: str) -> tuple[int, bytes]:
        said = {"data": [], "fn_index": number, "session_hash": session}
        found = asked_from(server, "127.0.0.2", "/gradio_api/queue/join", json.dumps(said).encode())
        until(lambda: not queue.event_ids_to_events)
        return found

    found = [join("unread") for _ in range(12)]
    codes = [status for status, _ in found]
    assert codes == sorted(codes) and set(codes) == {200, 429}
    assert found[-1][1] == b"Nobody reads what you were answered: load the page anew."
    assert 6 <= queue.pending_messages_per_session["unread"].qsize() < 12
    assert join("another")[0] == 200
    assert not sessions_of(server).is_deaf("never heard of")


def sessions_of(server: Served) -> sessions.Sessions:
    return server.app._page._queue.pending_messages_per_session._known


def test_of_a_session_little_is_kept(server: Served):
    assert "Saved as" in generating(server, "light", PROMPT)
    state = server.app._page.state_holder.session_data["light"]
    assert not state.state_data  # what it has made lies on its visitor's shelf
    assert len(repr(state.config_values)) < 20_000  # the whole page is ten times as long
