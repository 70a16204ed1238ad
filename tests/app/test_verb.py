"""`heedmap app`: its options, its warnings, and how it ends."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.calling import bad, call, files, in_a_process

from heedmap.app import Limits, Options, address, is_loopback
from heedmap.cli.serving import parse_users
from heedmap.errors import ArgumentError

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


def test_it_is_bound_to_this_machine_and_knows_which_addresses_are():
    assert Options().host == "127.0.0.1"
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.1.2.3")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.4", "example.com", "")))
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert address("::1", 80) == "http://[::1]:80"


def test_users():
    assert parse_users(["ann:pa:ss", " bob:x\n", ""]) == {"ann": "pa:ss", "bob": "x"}
    for text in ("ann", "ann:", ":secret"):
        with pytest.raises(ArgumentError, match="is not USER:PASSWORD") as error:
            parse_users([text])
        assert "secret" not in str(error.value)
    with pytest.raises(ArgumentError, match="has the user 'ann' twice"):
        parse_users(["ann:1", "ann:2"])


def served(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[Any, Options]:
    """What the verb says, and what it would serve."""
    from heedmap import app

    found: list[Options] = []

    def serve(options: Options, **rest: Any) -> None:
        found.append(options)
        rest["ready"]("http://x")

    monkeypatch.setattr(app, "serve", serve)
    result = call("app", *arguments)
    assert result.exit_code == 0, result.output
    return result, found[0]


def test_the_options_of_the_verb(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEEDMAP_AUTH", "ann:pa ss\nbob:x")
    result, options = served(
        monkeypatch, "--model", "org/a", "--model", "b", "--auth", "eve:y", "--max-size", 512,
        "--max-steps", 30, "--max-upload", 8, "--max-results", 9, "--host", "0.0.0.0",
    )  # fmt: skip
    assert options.models == ("org/a", "b")
    assert options.users == {"eve": "y", "ann": "pa ss", "bob": "x"}
    assert options.limits == Limits(size=512, steps=30, upload=8 * 2**20, results=9)
    assert result.stderr == "" and "http://x" in result.stdout
    assert "x" not in result.stdout.replace("http://x", "").split()  # no password is told


def test_a_warning_where_everybody_is_let_in(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    result, _ = served(monkeypatch, "--host", "0.0.0.0")
    assert result.stderr.startswith("Warning: everybody who reaches 0.0.0.0 can use this app")
    assert served(monkeypatch)[0].stderr == ""


def test_a_port_in_use_and_an_address_that_is_none(desk: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = bad("app", "--port", port)
    assert f"Port {port} of 127.0.0.1 cannot be used" in said and "--port 0" in said
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_it_cleanly(desk: Path):
    import signal

    process = subprocess.Popen(
        [sys.executable, "-m", "heedmap.cli", "app", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    assert "heedmap is at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    assert files(desk) == set()


def test_help_tells_every_option(desk: Path):
    done = in_a_process("app", "--help")
    assert done.returncode == 0
    for option in ("--auth", "--host", "--max-size", "--max-steps", "--max-upload", "HEEDMAP_AUTH"):
        assert option in done.stdout


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_a_place_for_results_that_cannot_be_written_to_is_told_at_once(desk: Path, monkeypatch):
    from heedmap import app

    monkeypatch.setattr(app, "serve", lambda *_, **__: pytest.fail("it was served"))
    (desk / "file").write_text("mine")
    assert "nothing can be written to /proc" in bad("app", "--out", "/proc/x")
    assert "file is no folder" in bad("app", "--out", "file")
