"""What a terminal shows: bars with the time left, colour where it is wanted, shell completion."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heedmap.cli.console import narrowed

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_a_terminal(code: str, **environment: str) -> str:
    """What a fresh interpreter writes to a terminal."""
    ours, theirs = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    done = subprocess.Popen(
        [sys.executable, "-c", code], stdout=theirs, stderr=theirs, stdin=theirs,
        env=variables | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    done.wait()
    return said.decode()


def test_a_bar_says_how_long_it_will_take():
    code = (
        "import time\n"
        "from heedmap.cli.console import progress_bar\n"
        "with progress_bar('Drawing', hidden=False) as advance:\n"
        "    time.sleep(0.2)\n"
        "    for done in range(1, 11):\n"
        "        advance(done, 25)\n"
        "        time.sleep(0.15)\n"
    )
    shown = [CONTROL.sub("", line) for line in at_a_terminal(code).split("\r")]
    assert any("Drawing" in line and "/" not in line and "left" not in line for line in shown)
    assert any(re.search(r"10/25 0:00:0\d left 0:00:0[1-9]", line) for line in shown), shown[-3:]


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_an_error_is_red_where_colour_is_wanted(environment: dict[str, str], coloured: bool):
    code = "from heedmap.cli import app\napp(['inspect', '/nowhere'])"
    said = at_a_terminal(code, **environment)
    assert CONTROL.sub("", said).startswith("Error: /nowhere")
    assert ("\x1b[31m" in said) is coloured


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("heedmap gen", {"generate"}),
        ("heedmap generate --gui", {"--guidance"}),
        ("heedmap generate --device ", {"auto", "cpu", "cuda", "mps"}),
    ],
)
def test_a_shell_completes(typed: str, wanted: set[str], tmp_path: Path):
    asked = {
        "_HEEDMAP_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - (not typed.endswith(" "))),
    }
    done = subprocess.run(
        [sys.executable, "-m", "heedmap.cli"], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | asked, check=True,
    )  # fmt: skip
    assert set(done.stdout.split()) == wanted


NO_BROWSER = {"PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)}
OPENS = "from heedmap.cli import console; console.open_in_browser('file:///x/index.html', 'x')"


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="browsers of Linux")
def test_a_page_is_opened_in_the_users_browser(tmp_path: Path):
    """A program of the user's own, which notes what it was given."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    command = [sys.executable, "-c", OPENS]
    environment = {**NO_BROWSER, "PATH": os.environ["PATH"], "BROWSER": f"{browser} %s"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "opened").read_text() == "file:///x/index.html\n"


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="browsers of Linux")
@pytest.mark.parametrize("browser", [{}, {"BROWSER": "/nowhere/browser"}], ids=["none", "lost"])
def test_without_a_browser_it_is_a_sentence(browser: dict[str, str]):
    done = subprocess.run(
        [sys.executable, "-c", OPENS], capture_output=True, text=True, env=NO_BROWSER | browser
    )
    told = (0, "", "No browser was found: open x in one yourself.\n")
    assert (done.returncode, done.stdout, done.stderr) == told


# --- in any width, no word is broken ----------------------------------------------------------

GRID = ["cell", "seed", "target", "weight of astronaut", "cross", "self", "moved", "MSE outside"]
CELLS = ["1", "4294967295", "a photograph of a cosmonaut on a brown-and-white horse", "1.5", "0.8",
         "0.4", "12.3%", "0.0012"]  # fmt: skip
FILES = [("index.html", "the page of all: open it in a browser, or wherever it shall be seen"),
         ("cells/", "the 12 edits, the same")]  # fmt: skip
SENTENCE = "Shares of attention, averaged over 6 layers; the self-attention of all: sheet.png"
TABLES = f"""
import typer
from heedmap.cli.console import print_table, say, failures_told
from heedmap.errors import ArgumentError
print_table({GRID}, [{CELLS}] * 2, "outputs/a-grid")
print_table(["file", "what it is"], {FILES}, right=["file"])
say({SENTENCE!r})
try:
    with failures_told():
        raise ArgumentError({SENTENCE!r})
except typer.Exit:
    pass
"""
WORDS = " ".join([*GRID[1:], *CELLS, *(" ".join(one) for one in FILES), SENTENCE]).split()


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("terminal", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_word_is_broken_and_no_line_too_long(width: int, terminal: dict[str, str]):
    if terminal and width != 60:
        return
    shown = at_a_terminal(TABLES, COLUMNS=str(width), **terminal)
    lines = [CONTROL.sub("", line) for line in shown.splitlines()]
    assert max(map(len, lines)) <= width, lines
    assert not {*WORDS} - {*" ".join(lines).split()}
    coloured = "\x1b[31m" in shown
    assert coloured == (not terminal) and ("\x1b" in shown) == (terminal.get("TERM") != "dumb")


def test_a_pipe_gets_whole_lines():
    done = subprocess.run([sys.executable, "-c", TABLES], capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "40"})  # fmt: skip
    title, heads, *cells = done.stdout.splitlines()
    assert title == "outputs/a-grid" and heads.split() == " ".join(GRID).split()
    assert cells[0].split() == " ".join(CELLS).split() and cells[-1] == SENTENCE
    assert done.stderr == f"Error: {SENTENCE}\n"


def test_columns_give_way_where_they_have_most_to_spare():
    assert narrowed([10, 10], [3, 3], 30) == [10, 10]
    assert narrowed([10, 20], [3, 3], 20) == [10, 10]
    assert narrowed([10, 20], [10, 3], 20) == [10, 10]
    assert narrowed([10, 20], [10, 15], 25) == [10, 15]
    assert narrowed([10, 20], [10, 15], 24) is None
    assert narrowed([], [], 0) == []
