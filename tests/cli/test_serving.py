"""`heedmap app`: its options, its warnings, and how it ends."""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from app.serving import FIELDS, PROMPT

from cli.calling import bad, call, files, in_a_process
from heedmap.app.options import Limits, Options
from heedmap.cli.serving import parse_hosts, parse_users
from heedmap.errors import ArgumentError
from heedmap.files import reading, values
from heedmap.options import LoadOptions
from heedmap.tiny.card import EMBEDDED

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def test_users():
    assert parse_users(["ann:pa:ss", " bob:x\n"]) == {"ann": "pa:ss", "bob": "x"}
    for text in ("ann", "ann:", ":secret", "", " ", "\n", "\u3000"):
        with pytest.raises(ArgumentError, match="is not USER:PASSWORD") as error:
            parse_users([text])
        assert "secret" not in str(error.value)
    with pytest.raises(ArgumentError, match="has 'ann' twice"):
        parse_users(["ann:1", "ann:2"])


@posix
def test_a_password_that_is_no_text(desk: Path):
    """A shell's $'…' and the environment may hold any bytes."""
    for arguments, told in (
        ([b"--auth", b"bob:secret\xff"], b"bob:x"), ([], b"bob:x\nann:secret\xff"),
    ):  # fmt: skip
        command = [sys.executable, "-m", "heedmap.cli", "app", "--port", "0"]
        done = subprocess.run(
            [*map(os.fsencode, command), *arguments], capture_output=True, timeout=60,
            env=os.environb | {b"HEEDMAP_AUTH": told},
        )  # fmt: skip
        said = done.stderr.decode()
        assert done.returncode == 2 and done.stdout == b"", said
        assert said == "Error: --auth, or HEEDMAP_AUTH, is not valid UTF-8: write it anew\n"


def served(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[Any, Options]:
    """What the verb says, and what it would serve."""
    from heedmap.app import application

    found: list[Options] = []

    def serve(options: Options, **rest: Any) -> None:
        found.append(options)
        rest["ready"]("http://x", options.is_private)

    monkeypatch.setattr(application, "serve", serve)
    result = call("app", *arguments)
    assert result.exit_code == 0, result.output
    return result, found[0]


@pytest.mark.parametrize("blank", ["", " ", "\n", "\t \n\n"])
def test_an_empty_text_is_no_word_for_none(blank: str, desk: Path, monkeypatch: pytest.MonkeyPatch):
    """Such as that of `--auth "$PASSWORD"` where the shell knows no PASSWORD."""
    from heedmap.app import application

    monkeypatch.setattr(application, "serve", lambda *_, **__: pytest.fail("it was served"))
    monkeypatch.setenv("HEEDMAP_AUTH", "ann:x")
    assert "--auth, or HEEDMAP_AUTH, is not USER:PASSWORD" in bad("app", "--auth", blank)
    assert "expected a host's name" in bad("app", "--name", blank)
    for verb in (("app",), ("generate", "a cat"), ("words", "a cat")):
        result = call(*verb, "--model", blank)
        assert result.exit_code == 2 and "expected a folder" in result.stderr
    monkeypatch.setenv("HEEDMAP_AUTH", blank)
    assert bad("app") == "Error: HEEDMAP_AUTH is empty: write USER:PASSWORD, or unset it\n"
    assert files(desk) == set()


@pytest.mark.parametrize("model", ["nosuch", "./nosuch", "empty"])
def test_a_model_that_is_not_there_is_refused_at_once(model: str, desk: Path):
    Path("empty").mkdir()
    said = bad("app", "--port", "0", "--model", EMBEDDED, "--model", model)
    assert ("there is no model" in said) == (model != "empty")
    assert model in said and said.count("\n") == 1
    assert files(desk) == set()


def test_the_options_of_the_verb(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEEDMAP_AUTH", "ann:pa ss\n \n\nbob:x\n")
    result, options = served(
        monkeypatch, "--model", "org/a", "--model", "b", "--auth", "eve:y", "--max-size", 512,
        "--max-steps", 30, "--max-upload", 8, "--max-results", 9, "--host", "0.0.0.0",
        "--port", 1234, "--device", "cpu", "--dtype", "float32",
    )  # fmt: skip
    assert options.models == ("org/a", "b")
    assert options.users == {"eve": "y", "ann": "pa ss", "bob": "x"}
    assert options.limits == Limits(size=512, steps=30, upload=8 * 2**20, results=9)
    assert options.loading == LoadOptions(device="cpu", dtype="float32")
    assert (options.host, options.port) == ("0.0.0.0", 1234)
    assert result.stderr == "" and "http://x" in result.stdout
    assert "x" not in result.stdout.replace("http://x", "").split()  # no password is told


def test_what_is_not_said_is_what_the_app_has(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    assert served(monkeypatch)[1] == Options()


def test_names_for_others(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    result, options = served(monkeypatch, "--name", "App.example", "--name", "2001:db8::1")
    assert options.names == ("app.example", "2001:db8::1") and options.host == "127.0.0.1"
    who = "everybody who reaches app.example or 2001:db8::1 can use this app"
    assert result.stderr.startswith(f"Warning: {who}: --auth asks")
    with_password = served(monkeypatch, "--name", "app.example", "--auth", "ann:x")[0]
    assert with_password.stderr == ""
    for odd in ("", "https://app.example", "app.example:443", "a/b", "a b", "a..b", "*", "a" * 64,
                "bücher.example", "a\n", "[::1]", "a." * 127 + "aa"):  # fmt: skip
        with pytest.raises(ArgumentError, match="expected a host's name, such as"):
            parse_hosts([odd])


def test_a_warning_where_everybody_is_let_in(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    result, _ = served(monkeypatch, "--host", "0.0.0.0")
    assert result.stderr.startswith("Warning: everybody who reaches 0.0.0.0 can use this app")
    assert served(monkeypatch)[0].stderr == ""


@pytest.mark.parametrize(
    "host, private",
    [*((h, True) for h in ("LOCALHOST", "127.1", "::1", "127.0.0.2", "localhost")),
     ("0.0.0.0", False), ("0", False)],
)  # fmt: skip
def test_who_is_let_in_is_judged_by_the_address_that_is_bound(
    host: str, private: bool, desk: Path, monkeypatch: pytest.MonkeyPatch
):
    from heedmap.app import application, connections

    found: list[Options] = []

    def made(options: Options) -> Any:
        found.append(options)
        queue = SimpleNamespace(close=lambda: None)
        return contextlib.nullcontext(SimpleNamespace(routes=None, queue=queue))

    server = SimpleNamespace(started=True, run=lambda sockets: None)
    monkeypatch.setattr(application, "Application", made)
    monkeypatch.setattr(connections, "Server", lambda config: server)
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    result = call("app", "--host", host, "--port", 0)
    assert result.exit_code == 0, result.output
    (options,) = found
    assert options.is_private == private == ("everybody who reaches" not in result.stderr)
    assert (options.hosts is not None) == private
    if private:
        assert {host.lower(), options.bound, "localhost"} <= set(options.hosts or ())
        assert "app.example" not in (options.hosts or ())


def test_a_port_in_use_and_an_address_that_is_none(desk: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = bad("app", "--port", port)
    assert f"port {port} of 127.0.0.1 cannot be used" in said and "--port 0" in said
    assert "is not known: expected an address" in bad("app", "--host", "no such host")
    assert files(desk) == set()


def test_without_gradio_it_says_what_to_install(desk: Path):
    code = """
import sys
sys.modules["gradio"] = None
from heedmap.cli import app
app(["app", "--port", "0"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "pip install 'heedmap[app]'" in done.stderr


LOADING = """
import sys, threading, time
from heedmap.models import pipelines as models
def load(*_, **__):
    print("loading", flush=True)
    end = time.monotonic() + 25
    while time.monotonic() < end:  # as a library that is imported: Python, and not to be stopped
        sum(range(20_000))
models.load = load
"""


@contextlib.contextmanager
def app_process(desk: Path, before: str = "", *options: str) -> Iterator[Any]:
    """The verb in a process whose temporary files are in the desk, and its URL."""
    code = f"{before}\nfrom heedmap.cli import main\nmain()"
    (desk / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", code, "app", "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(desk / "temporary")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "heedmap is at http://127.0.0.1:" in said
        yield process, int(said.rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def left(desk: Path) -> list[str]:
    """What heedmap left among the temporary files."""
    return [path.name for path in (desk / "temporary").iterdir() if "heedmap" in path.name]


def ends(process: Any, number: int) -> tuple[int, str, float]:
    """How a process ends by a signal: its code, what it says of errors, and after how long."""
    since = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors, time.monotonic() - since


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", -15), ("SIGHUP", -1)])
def test_a_signal_ends_it_cleanly(desk: Path, name: str, code: int):
    if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored by whatever started the tests (nohup), and so by the app")
    with app_process(desk) as (process, port):
        upload = f"http://127.0.0.1:{port}/uploads"
        with urllib.request.urlopen(upload, data=b"hello", timeout=20) as answer:
            assert answer.status == 200
        assert len(left(desk)) == 1
        heart = f"http://127.0.0.1:{port}/gradio_api/heartbeat/x"
        with urllib.request.urlopen(heart, timeout=20) as stream:  # a page that is open
            assert stream.readline()
            found, errors, took = ends(process, getattr(signal, name))
    assert (found, left(desk)) == (code, []) and took < 5
    assert "Traceback" not in errors and "Error" not in errors
    assert not [path for path in files(desk) if not path.startswith("temporary")]


def begin(port: int, values: list[Any]) -> None:
    """Ask for a picture."""
    url = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{url}/config", timeout=20) as answer:
        config = json.load(answer)
    labels = {one["id"]: one["props"].get("value") for one in config["components"]}
    call = next(
        one["id"] for one in config["dependencies"]
        if any(labels.get(part) == "Generate" for part, _ in one["targets"])
    )  # fmt: skip
    said = {"data": [PROMPT, *values], "fn_index": call, "session_hash": "x"}
    request = urllib.request.Request(
        f"{url}/gradio_api/queue/join", json.dumps(said).encode(),
        {"Content-Type": "application/json", "Cookie": f"heedmap-visitor={'0' * 32}"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", -15)])
def test_a_signal_while_visitors_are_served(desk: Path, name: str, code: int):
    """A page that listens while its job is drawn, an upload, passwords in a line."""
    with contextlib.ExitStack() as held:
        process, port = held.enter_context(app_process(desk, "", "--auth", "ann:x"))
        known = "Basic " + base64.b64encode(b"ann:x").decode()
        opener = urllib.request.build_opener()
        opener.addheaders = [("Authorization", known)]
        held.callback(urllib.request.install_opener, None)
        urllib.request.install_opener(opener)
        begin(port, [FIELDS[0], "7", "100", *FIELDS[3:]])
        data = f"http://127.0.0.1:{port}/gradio_api/queue/data?session_hash=x"
        stream = held.enter_context(urllib.request.urlopen(data, timeout=20))
        while b"process_generating" not in stream.readline():
            pass
        upload = ("POST /uploads HTTP/1.1", "Content-Length: 900", f"Authorization: {known}")
        guess = ("GET / HTTP/1.1", "Authorization: Basic YTpi")
        for said in (upload, *[guess] * 8):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            one.sendall("\r\n".join([*said, f"Host: 127.0.0.1:{port}", "", "x"]).encode())
        time.sleep(0.2)
        found, errors, took = ends(process, getattr(signal, name))
    assert (found, errors, left(desk)) == (code, "", []) and took < 5


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", -15)])
def test_a_signal_while_a_model_loads(desk: Path, name: str, code: int):
    with app_process(desk, LOADING) as (process, port):
        begin(port, FIELDS)
        while process.stdout.readline() != "loading\n":
            pass
        found, errors, took = ends(process, getattr(signal, name))
    assert (found, errors, left(desk)) == (code, "", []) and took < 5


STARTING = """
import time
from heedmap.files import writing
def check(_):
    print("it begins", flush=True)
    time.sleep(20)
writing.check_place = check
from heedmap.cli import main
main()
"""


@posix
def test_an_impatient_operator(desk: Path):
    """Ctrl-C again and again, while it starts."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTING, "app", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    with process:
        assert process.stdout is not None and process.stdout.readline() == "it begins\n"
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 130


def test_help_tells_every_option(desk: Path):
    done = in_a_process("app", "--help")
    assert done.returncode == 0
    for option in ("--auth", "--host", "--max-size", "--max-steps", "--max-upload", "HEEDMAP_AUTH"):
        assert option in done.stdout


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_a_place_for_results_that_cannot_be_written_to_is_told_at_once(desk: Path, monkeypatch):
    from heedmap.app import application

    monkeypatch.setattr(application, "serve", lambda *_, **__: pytest.fail("it was served"))
    (desk / "file").write_text("mine")
    assert "nothing can be written to /proc" in bad("app", "--out", "/proc/x")
    assert "file is not a folder" in bad("app", "--out", "file")


@pytest.mark.parametrize(
    ("option", "most", "files_take"),
    [("--max-size", 2**14, reading.MAX_SIDE), ("--max-steps", 10_000, values.MAX_STEPS)],
)
def test_a_limit_allows_what_can_be_read_back(desk: Path, monkeypatch, option, most, files_take):
    assert most == files_take
    _, options = served(monkeypatch, option, most)
    assert most in (options.limits.size, options.limits.steps)
    refused = call("app", option, most + 1)
    assert refused.exit_code == 2 and option in refused.stderr
