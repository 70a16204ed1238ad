"""The verbs put together, and Ctrl-C before any of them has begun, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedmap import cli
from heedmap.cli import verbs

START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where it runs in the background
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:  # what is imported may make an error of its own of it
                raise ImportError("C extensions") from None
sys.meta_path.insert(0, Finder())
from heedmap.cli import main
{before}
main()
"""


def interrupted(name: str, before: str = "", *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", START.format(name=name, before=before), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["heedmap.cli.verbs", "typer", "heedmap.errors", "typer.core"])
def test_it_is_interrupted_while_it_is_imported(name: str):
    said = (130, "", "Interrupted: nothing was kept.\n")
    assert interrupted(name, "", "--help") == said


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_who_ignores_ctrl_c_is_not_interrupted():
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code, out, err = interrupted("typer", ignored, "--version")
    assert (code, err) == (0, "") and out.startswith("heedmap ")


def test_nothing_that_takes_time_is_imported_before_ctrl_c_is_heard():
    code = "import signal, sys; before = {*sys.modules}; import heedmap.cli; "
    code += "print(sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "['heedmap', 'heedmap.cli', 'heedmap.cli.stopping']\n"


def test_its_door_hands_out_the_verbs():
    assert cli.app is verbs.app
    with pytest.raises(AttributeError, match="no attribute 'verb'"):
        _ = cli.verb  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.skipif(os.name == "nt", reason="file descriptors of POSIX")
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_streams_that_were_closed_take_what_is_printed(closed: tuple[int, ...], tmp_path: Path):
    """`heedmap words cat >&-`: no trouble, and a file that is opened does not get their numbers."""
    code = "import os, sys; from heedmap.cli import verbs; verbs.fill_closed_streams(); "
    code += "file = open(sys.argv.pop(), 'w'); number = file.fileno(); os.write(1, b'stray'); "
    code += "print(number, file=file, flush=True); verbs.run()"
    command = [sys.executable, "-c", code, "words", "a cat", str(tmp_path / "file")]
    done = subprocess.run(
        command,
        preexec_fn=lambda: [os.close(one) for one in closed],
        capture_output=1 not in closed,
    )
    assert done.returncode == 0
    number = (tmp_path / "file").read_text()
    assert int(number) > 2
    if 1 not in closed:
        assert done.stdout.startswith(b"stray")


@pytest.mark.skipif(os.name == "nt", reason="file descriptors of POSIX")
def test_an_error_is_told_where_the_other_stream_was_closed():
    command = [sys.executable, "-m", "heedmap.cli", "inspect", "nowhere"]
    done = subprocess.run(
        command, preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("Error: nowhere")
