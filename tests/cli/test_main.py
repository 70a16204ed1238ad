"""The command line as a whole: exit codes, Ctrl-C, and what it imports in a process of its own."""

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from diffusers import DDIMScheduler

import heedmap
from cli.calling import PROMPT, invoke, run_command, run_process
from heedmap import cli
from heedmap.results.runs import Run


def test_version_and_help_are_printed():
    assert run_command("--version") == f"heedmap {heedmap.__version__}\n"
    assert run_command("-h") == run_command("--help")
    for command in cli.app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        assert name in run_command("--help")
        assert "Usage: " in run_command(name, "--help")
    assert invoke("genrate").exit_code == 2


def test_errors_show_no_traceback(desk: Path):
    done = run_process("inspect", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_ctrl_c_keeps_the_images_that_were_saved(model, desk: Path, monkeypatch):
    calls, step = count(1), DDIMScheduler.step

    def stop(*given, **more):  # in the second image's first step
        if next(calls) == 3:
            raise KeyboardInterrupt
        return step(*given, **more)

    monkeypatch.setattr(DDIMScheduler, "step", stop)
    asked = ("generate", PROMPT, "--seed", 1, "--steps", 2, "--count", 3)
    assert invoke(*asked).exit_code == 130
    assert os.listdir("outputs") == ["a-red-house-1"]
    assert Run.load("outputs/a-red-house-1").settings.seed == 1


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_threads_wait_without_work_unless_the_user_chose(given, expected):
    code = """
import os, sys
from heedmap import cli
cli.app = lambda **_: print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules)
cli.main()
"""
    environment = {name: v for name, v in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.stdout.decode().split() == [expected, "False"]


READ = """
import sys
from heedmap.cli import app
def run(*words):
    try:
        app([*words])
    except SystemExit as stop:
        assert not stop.code, stop.code
run("inspect", "saved")
assert not {"torch", "matplotlib"} & set(sys.modules)
run("inspect", "saved", "-w", "red", "-q")
assert not {"torch", "diffusers", "transformers", "matplotlib.pyplot"} & set(sys.modules)
"""


def test_saved_runs_are_read_without_torch(saved: Path):
    """And a table of maps is printed without matplotlib."""
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
