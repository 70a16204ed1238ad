"""Every route, function and field of the app, asked for what it must not tell.

A file of the machine with a random word in it, and another visitor's result with another one, must
never come out, never be copied, and never be told from a file that is not there. The server runs in
a process of its own; its temporary folder is looked through afterwards.
"""

import contextlib
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

from attacking.addresses import FILES, FORWARDED, HOSTS, METHODS, ORIGINS, paths
from attacking.crowd import Tally
from attacking.findings import Finding, Trouble
from attacking.visiting import EMPTY, JOIN, STREAM, USER, Server, Visitor, archive_of

_SECONDS = 20.0  # for one answer
_FREEZE = 10.0  # seconds in which the page must answer after a function was asked


class _Probe:
    """One server and what must not come out of it."""

    def __init__(self, server: Server, archive: bytes, tally: Tally) -> None:
        self.server, self.tally = server, tally
        self.word = secrets.token_hex(12)
        self.secret = server.home / f"secret-{secrets.token_hex(4)}.env"
        self.secret.write_text(f"PASSWORD={self.word}\n", encoding="utf-8")
        self.absent = server.home / f"absent-{secrets.token_hex(4)}.env"
        self.thief = Visitor(server.port, "127.0.0.66")
        self.config = self.thief.config()
        self.victim = Visitor(server.port, "127.0.0.77")
        self.theirs = secrets.token_hex(12)  # stands in the victim's prompt
        prompt, size = f"a cat {self.theirs}", ("32", "32")
        fields = [prompt, "heedmap-tiny", "1", "1", "", *size, *EMPTY[5:]]
        said = self.victim.event(self.victim.function("Generate"), fields)
        found = re.search(r"\./results/([\w-]+)\.zip", said)
        if found is None:
            raise RuntimeError(f"nothing could be drawn to be stolen: {said[-300:]}")
        self.name = found[1]
        digest = hashlib.sha256(self.victim.number.encode()).hexdigest()[:32]
        self.shelf = f"visitor-{digest}"  # where the victim's results are
        if not (server.out / self.shelf / self.name / "run.json").exists():
            raise RuntimeError(f"the victim's result is not where it is looked for: {self.name}")
        self.archive, self.logged = archive, len(server.said())

    # --- what came of it

    def wrong(self, kind: str, what: str, where: str, case: Any) -> None:
        """Something was given away, read or copied."""
        self.tally.add(Finding("probe", Trouble(kind, what, where), case))

    def look(self, answer: tuple[int, bytes, Any] | None, where: str, case: Any) -> None:
        """Whether an answer gives away what it must not."""
        self.tally.cases += 1
        self.look_at_log(where, case)
        if answer is None:
            return
        status, body, headers = answer
        told = body + json.dumps(headers).encode()
        for word, what in ((self.word, "a file"), (self.theirs, "another visitor's result")):
            if word.encode() in told:
                self.wrong("told", f"read: {what}", where, case)
        if b"root:x:0" in told or b"Traceback" in told:
            self.wrong("told", "read: a file of the system, or a traceback", where, case)
        if status >= 500 and status not in (503,):
            self.wrong("status", f"status {status}: {body[:100]!r}", where, case)

    def look_at_log(self, where: str, case: Any) -> None:
        """Whether the server logged an error of its own since the last look."""
        said = self.server.said()
        new, self.logged = said[self.logged :], len(said)
        if "Traceback" in new:
            named = re.findall(r"^[\w.]+(?:Error|Exception)\b.*$", new, re.MULTILINE)
            what = f"traceback: {'; '.join(named)[:300]}"
            self.wrong("log", what, where.split("?")[0], case)

    def ask(self, visitor: Visitor, path: str, *arguments: Any, **options: Any) -> Any:
        """An answer; None where the connection was closed."""
        options.setdefault("timeout", _SECONDS)
        try:
            return visitor.ask(path, *arguments, **options)
        except TimeoutError:
            if not path.startswith((STREAM, "/gradio_api/heartbeat")):
                self.wrong("freeze", f"no answer in {_SECONDS:g} s", path.split("?")[0], path)
        except (OSError, ValueError, HTTPException):
            pass
        return None

    def awake(self, where: str, case: Any) -> None:
        """Whether the page still answers."""
        began = time.monotonic()
        with contextlib.suppress(OSError):
            if Visitor(self.server.port).ask("/config", timeout=_FREEZE)[0] == 200:
                return
        self.wrong("freeze", f"frozen: {time.monotonic() - began:.0f} s", where, case)


def attack(root: Path, scratch: Path, *, quick: bool = False) -> Tally:
    """Probe a server.

    Args:
        root: the seeds (`seeds.make`).
        scratch: an empty folder.
        quick: a third of the paths and files.
    """
    tally, began = Tally("probe"), time.monotonic()
    with Server(scratch / "server") as server:
        probe = _Probe(server, archive_of(root / "run"), tally)
        parts = (_routes, _functions, _sessions, _results, _hosts, _passwords, _uploads)
        for part in parts:
            before = tally.cases
            part(probe, quick)
            tally.told[part.__name__.strip("_")] = tally.cases - before
        probe.awake("at the end", {})
        for path in server.scratch.rglob("*"):
            plain = path.is_file() and not path.is_symlink()
            if plain and (
                probe.secret.name in path.name or probe.word.encode() in path.read_bytes()
            ):
                copied = path.relative_to(server.scratch).as_posix()
                probe.wrong("copied", f"copied: to {copied}", "a temporary folder", {})
        probe.look_at_log("at the end", {})
    tally.seconds = time.monotonic() - began
    return tally


# --- what is asked ----------------------------------------------------------------------------


def _routes(probe: _Probe, quick: bool) -> None:
    for number, path in enumerate(
        paths(probe.secret, f"{probe.server.out}/{probe.shelf}/{probe.name}", quick=quick)
    ):
        methods = METHODS if number % (12 if quick else 3) == 0 else ("GET", "POST")
        for method in methods:
            streams = path.startswith((STREAM, "/gradio_api/heartbeat"))
            body = None if method in ("GET", "HEAD", "get") else b"{}"
            answer = probe.ask(
                probe.thief, path, body, method=method, timeout=1 if streams else _SECONDS
            )
            probe.look(answer, f"{method} {path[:60]}", {"path": path, "method": method})


def _functions(probe: _Probe, quick: bool) -> None:
    """Every function with every field a file, one that is there, one that is not, and a device."""
    shapes = FILES[:: 3 if quick else 1]
    for one in probe.config["dependencies"]:
        count = max(1, len(one["inputs"]))
        for shape in shapes:
            # Of a session whose messages nobody reads nothing more is taken in.
            probe.thief.session = secrets.token_hex(6)
            answers = []
            for path in (str(probe.secret), str(probe.absent), "/dev/zero"):
                file = json.loads(
                    json.dumps(shape).replace("{}", path).replace("{port}", str(probe.server.port))
                )
                for where in (JOIN, "/gradio_api/run/predict"):
                    told = {"data": [file] * count, "fn_index": one["id"],
                            "session_hash": probe.thief.session}  # fmt: skip
                    body = json.dumps(told).encode()
                    case = {"route": where, **told}
                    answer = probe.ask(probe.thief, where, body, Content_Type="application/json")
                    probe.look(answer, f"function {one['id']}", case)
                    answers.append((where, path, answer and (answer[0], _plain(answer[1]))))
            _told_apart(probe, answers, one["id"], shape)
        probe.awake(f"function {one['id']}", {"fn_index": one["id"]})
    for number in (-1, 999, 1000, 10**9, 1.0, "0", None, True, [0]):
        said = {"data": [], "fn_index": number, "session_hash": f"a{number}"}
        token = {"event_data": {"token": "../x"}}
        for more in ({}, token, {"simple_format": True}, {"request": 1}):
            body = json.dumps({**said, **more}).encode()
            answer = probe.ask(probe.thief, JOIN, body, Content_Type="application/json")
            probe.look(answer, "an odd function", {**said, **more})


def _told_apart(probe: _Probe, answers: list[Any], function: int, shape: Any) -> None:
    """A file that is there and one that is not must be answered alike."""
    for where in (JOIN, "/gradio_api/run/predict"):
        there, absent = (
            next(answer for route, path, answer in answers if (route, path) == (where, str(one)))
            for one in (probe.secret, probe.absent)
        )
        if there != absent:
            what = f"told apart: {there} for a file that is there, {absent} for one that is not"
            probe.wrong("told", what[:300], f"function {function}", {"shape": shape})


def _plain(body: bytes) -> bytes:
    """An answer without what is drawn by chance, and without the name of the file."""
    body = re.sub(rb"[0-9a-f]{12,}", b"", body)
    body = re.sub(rb'"(average_)?duration": ?[0-9.e-]+', b"", body)
    return re.sub(rb"(secret|absent)-[0-9a-f]{8}", b"", body)


def _sessions(probe: _Probe, quick: bool) -> None:
    """What is told to sessions that are guessed, and what is ended by others."""
    whole = probe.victim.session
    for session in ("", "*", "a", "null", whole[:-1], whole.upper(), "%"):
        answer = probe.ask(probe.thief, f"{STREAM}?session_hash={session}", timeout=1)
        probe.look(answer, "another's stream", {"session": session})
    for route in ("cancel", "reset"):
        for told in (
            {"session_hash": probe.victim.session, "fn_index": 0, "event_id": "a"},
            {"event_id": "../a"}, {"event_id": "a", "success": True}, {},
        ):  # fmt: skip
            body = json.dumps(told).encode()
            answer = probe.ask(
                probe.thief, f"/gradio_api/{route}", body, Content_Type="application/json"
            )
            probe.look(answer, route, told)


def _results(probe: _Probe, quick: bool) -> None:
    """A result is its visitor's alone, whatever name it is asked by; nothing else lists it."""
    shelf = probe.server.out / probe.shelf
    before = _files(shelf)
    for number in _numbers(probe, quick):
        thief = Visitor(probe.server.port, "127.0.0.66")
        thief.headers["Cookie"] = number
        for path, body in _asked_of_results(probe, quick):
            case = {"path": path, "cookie": number, "body": repr(body)}
            answer = probe.ask(thief, path, body, Content_Type="application/json")
            probe.look(answer, "another's result", case)
            if answer is not None and answer[0] < 400 and path != "/results":
                probe.wrong("door", f"status {answer[0]}: another's result", path[:60], case)
    if _files(shelf) != before:
        probe.wrong("copied", "changed: another visitor's results", "/results", {})
    for path in ("/config", "/gradio_api/info", "/gradio_api/startup-events", "/", "/monitoring",
                 "/gradio_api/monitoring/summary", "/gradio_api/api/info", "/api"):  # fmt: skip
        answer = probe.ask(probe.thief, path)
        probe.look(answer, path, path)
        if answer is not None and probe.name.encode() in answer[1]:
            probe.wrong("told", "told: the name of another visitor's result", path, path)
    for visitor in (Visitor(probe.server.port, user=""), Visitor(probe.server.port, user="ann:x")):
        for path in (f"/results/{probe.name}.zip", f"/results/{probe.name}/page", "/", "/uploads",
                     "/results", f"/comparison?run={probe.name}", f"/results/{probe.name}/picture",
                     "/config", STREAM, "/theme.css", "/assets/x", "/favicon.ico"):  # fmt: skip
            answer = probe.ask(visitor, path)
            probe.look(answer, f"{path} without a password", path)
            if answer is not None and answer[0] not in (401, 429):
                probe.wrong("door", f"status {answer[0]}: without a password", path, path)
    good = probe.ask(probe.victim, f"/results/{probe.name}.zip")
    if good is None or good[0] != 200:
        probe.wrong("unserved", "the victim's own result is not given out", "/results", {})


def _numbers(probe: _Probe, quick: bool) -> Iterator[str]:
    """Cookies that are not the victim's, though some look like it."""
    own, name = probe.victim.number, "heedmap-visitor"
    yield from ("", f"{name}={secrets.token_hex(16)}", f"{name}={own[:-1]}", f"{name}={own}0")
    if not quick:
        yield from (
            f"{name}={own.upper()}X", f"x{name}={own}", f"{name}={probe.shelf}", f"{name}=../..",
            f"{name}={probe.shelf[8:]}", f"{name}=*", f"{name}={'0' * 32}", f"{name}=\"{own}",
        )  # fmt: skip


def _asked_of_results(probe: _Probe, quick: bool) -> Iterator[tuple[str, bytes | None]]:
    """All that is asked of results, of the victim's and of what its name leads to."""
    names = [probe.name, f"..%2f{probe.shelf}%2f{probe.name}", f"{probe.shelf}%2f{probe.name}"]
    if not quick:
        names += [
            f"..%5c{probe.shelf}%5c{probe.name}", probe.shelf, "..", "%2e%2e", ".", "%00", "%ff",
            f"{probe.name}%00", f"{probe.name}%2f..", "a" * 300, str(probe.secret),
        ]  # fmt: skip
    bodies = [b'{"name": "x"}', b'{"name": "../x"}', b'{"name": 5}', b"{", b"[]", b"\xff"]
    bodies.append(json.dumps({"name": f"../{probe.theirs}" * 400}).encode())
    yield "/results", None
    for name in names:
        for what in (".zip", "/page", "/picture"):
            yield f"/results/{name}{what}", None
        yield f"/results/{name}/end", b"{}"
        for body in bodies[: 2 if quick else None]:
            yield f"/results/{name}/name", body
        for more in ("", "&word=cat", "&scale=x", "&format=svg", "&take=1", f"&run={name}"):
            yield f"/comparison?run={name}{more}", None


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _hosts(probe: _Probe, quick: bool) -> None:
    for path in ("/", "/config", "/uploads", JOIN):
        for host in HOSTS:
            visitor = Visitor(probe.server.port)
            visitor.headers["Host"] = host
            answer = probe.ask(visitor, path)
            probe.look(answer, f"host {host!r}", {"host": host, "path": path})
            if answer is not None and answer[0] not in (400, 421):
                probe.wrong("door", f"status {answer[0]}: for another host", f"host {host!r}", path)
        for origin in ORIGINS:
            answer = probe.ask(probe.thief, path, b"{}", Origin=origin)
            probe.look(answer, f"origin {origin!r}", {"origin": origin, "path": path})
            if answer is not None and answer[0] != 403:
                probe.wrong(
                    "door", f"status {answer[0]}: for another origin", f"origin {origin!r}", path
                )
            if answer and any(name.startswith("access-control") for name in answer[2]):
                probe.wrong("door", "told: to pages of others", f"origin {origin!r}", path)
        answer = probe.ask(probe.thief, path, **FORWARDED)
        probe.look(answer, "forwarded", {"path": path})
        if answer is not None and b"evil.example" in answer[1]:
            probe.wrong("door", "believed: what was forwarded", "forwarded", path)


def _passwords(probe: _Probe, quick: bool) -> None:
    """Whatever stands in place of a password lets nobody in."""
    odd = (
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic OnA=",
        "Bearer x",
        "Digest x",
        "basic Og==",
        "\x80",
        "Basic " + "A" * 60_000,
        "Basic YW5u",
        "Basic YW5uOgA=",
        f"Basic {USER}",
        "Basic //8=",
    )
    for number, said in enumerate(odd):
        visitor = Visitor(probe.server.port, f"127.0.3.{number + 1}", user="")
        visitor.headers["Authorization"] = said
        answer = probe.ask(visitor, "/")
        probe.look(answer, "a password", {"authorization": said[:60]})
        if answer is not None and answer[0] not in (400, 401, 429, 431):
            probe.wrong("door", f"status {answer[0]}: {said[:30]!r}", "a password", said[:60])


def _uploads(probe: _Probe, quick: bool) -> None:
    """An upload is opened by its name alone, once, and its name is no path."""
    probe.thief.session = secrets.token_hex(6)
    upload = probe.thief.function("upload")
    said = probe.thief.opened(upload, probe.archive)
    if "refused" in said or not probe.thief.shown(said):
        probe.wrong("unserved", f"an archive is not opened: {said[:150]}", "/uploads", {})
    path = str(probe.secret)
    for token in (f"{'../' * 8}{path}", path, "0" * 32, "", "x" * 32, "%00", None, 5):
        with contextlib.suppress(OSError, ValueError):
            answer = probe.thief.join(upload, [], {"token": token})
            probe.look((*answer, {}), "an upload's name", {"token": token})
            if answer[0] == 200:
                told = json.dumps(list(probe.thief.messages(_SECONDS)))
                probe.look((200, told.encode(), {}), "an upload's name", {"token": token})
    form = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="../../evil.sh"\r\n\r\nhi'
        b"\r\n--x--\r\n"
    )
    for path in ("/gradio_api/upload", "/upload", "/gradio_api/component_server", "/uploads/x"):
        kind = "multipart/form-data; boundary=x"
        answer = probe.ask(probe.thief, path, form, Content_Type=kind)
        probe.look(answer, path, path)
        if answer is not None and answer[0] == 200:
            probe.wrong("door", "open: another way of uploading", path, path)
