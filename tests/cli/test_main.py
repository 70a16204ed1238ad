"""The command line in a process of its own: exit codes, pipes, terminals, Ctrl-C."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from making import random_pipeline

import heedmap
from cli.calling import PROMPT, call, good, in_a_process, misused
from heedmap import cli
from heedmap.results.runs import Run

posix = pytest.mark.skipif(os.name == "nt", reason="signals and terminals of POSIX")


def test_version_and_help_are_printed():
    assert good("--version") == f"heedmap {heedmap.__version__}\n"
    assert good("-h") == good("--help")
    for command in cli.app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        assert name in good("--help")
        assert "Usage: " in good(name, "--help")
    assert call("genrate").exit_code == 2


def test_each_example_of_the_help_stands_on_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in good("--help").splitlines()]
    for example in filter(None, map(str.strip, (cli.heedmap_command.__doc__ or "").splitlines())):
        if example.startswith("heedmap "):
            assert example in lines
    assert not any("\b" in line or r"\b" in line for line in lines)


def test_python_runs_heedmap_as_a_module():
    done = subprocess.run([sys.executable, "-m", "heedmap", "--version"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_errors_show_no_traceback(desk: Path):
    done = in_a_process("inspect", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


STOP = """
import os, signal
from heedmap import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where it runs in the background
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
"""
WRITING = "from PIL import Image\nImage.Image.save = stop"
SAMPLING = """
from itertools import count
from diffusers import DDIMScheduler
calls, step = count(1), DDIMScheduler.step
DDIMScheduler.step = lambda *a, **b: stop() if next(calls) == 3 else step(*a, **b)"""


@posix
def test_ctrl_c_leaves_nothing_of_a_result(desk: Path):
    random_pipeline().save_pretrained(desk / "model")
    code = f"{STOP}{WRITING}\ncli.main()"
    asked = ["generate", PROMPT, "--seed", "1", "--steps", "2", "--size", "96", "--model", "model"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("Interrupted") and done.stderr.count("\n") == 1
    assert not [path for path in (desk / "outputs").rglob("*") if path.is_file()]


@posix
def test_ctrl_c_keeps_the_images_that_were_saved(desk: Path):
    random_pipeline().save_pretrained(desk / "model")
    code = f"{STOP}{SAMPLING}\ncli.main()"  # in the second image's first step
    asked = ["generate", PROMPT, "--seed", "1", "--steps", "2", "--count", "3", "--model", "model"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True)
    assert done.returncode == 130
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


def test_words_of_a_prompt_without_quotation_marks_are_explained():
    assert "quotation marks" in misused("generate", "a", "cat", "in", "the", "snow")
    assert "quotation marks" not in misused("generate", "a cat", "--stepz", 3)
    assert "quotation marks" in misused("generate", "a", "cat", "--keep", "layer")


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (("generate", "a cat", "--keep", "layer", "step"), "--keep layer,step"),
        (("generate", "a cat", "--concepts", "tree", "car"), "--concepts tree,car"),
        (("inspect", "run", "--heads", 0, 2), "--heads 0,2"),
        (("edit", "a cat", "--height", 128, "--width", 128), "--size 128x128"),
    ],
)
def test_values_in_another_form_are_shown_as_they_are_written(given, written: str):
    assert written in misused(*given)


def test_a_table_of_maps_is_printed_without_matplotlib(saved: Path):
    code = """
import sys
from heedmap.cli import app
try:
    app(["inspect", "saved"])
except SystemExit as stop:
    assert not stop.code, stop.code
assert not {"torch", "matplotlib"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["inspect", "saved"], ["compare", "saved", "saved"]])
def test_saved_runs_are_read_without_torch(saved: Path, command: list[str]):
    code = f"""
import sys
from heedmap.cli import app
try:
    app({[*command, "-w", "red", "-q"]!r})
except SystemExit as stop:
    assert not stop.code, stop.code
assert not {{"torch", "diffusers", "transformers", "matplotlib.pyplot"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
