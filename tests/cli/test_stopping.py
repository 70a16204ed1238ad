"""Ctrl-C before a verb has begun."""

import subprocess
import sys

import pytest

STOPPED = """
import os, signal, sys
from heedmap.cli import stopping
signal.signal(signal.SIGINT, stopping.end_at_once)
{}
try:
    os.kill(os.getpid(), signal.SIGINT)
finally:
    print("not at once")
"""


@pytest.mark.parametrize("closed", [False, True])
def test_it_ends_in_a_sentence_and_nothing_else_runs(closed: bool):
    code = STOPPED.format("os.close(2)" if closed else "")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == ("" if closed else "Interrupted: nothing was kept.\n")


def test_it_is_heard_before_the_command_line_is_imported():
    code = "import sys, heedmap.cli; print([n for n in sys.modules if n in ('typer', 'typing')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout.strip() == "[]", shown.stderr
