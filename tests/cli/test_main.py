"""The command line in a process of its own: errors, pipes, terminals, Ctrl-C."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import heedmap
from cli.calling import PROMPT, good, in_a_process
from heedmap.maps.heatmaps import HeatMaps
from heedmap.results.runs import Run
from heedmap.tiny.card import EMBEDDED


def test_version():
    assert good("--version") == f"heedmap {heedmap.__version__}\n"


def test_python_runs_it_by_its_name():
    done = subprocess.run([sys.executable, "-m", "heedmap", "--version"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == good("--version")


def test_errors_show_no_traceback(desk: Path):
    done = in_a_process("inspect", "nowhere")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: nowhere")
    assert "Traceback" not in done.stderr


@pytest.fixture
def tokenizer_folder(random_model, desk: Path) -> Path:
    """A model of which nothing but the tokenizer is there."""
    folder = desk / "model"
    random_model.tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "model_index.json").write_text("{}")
    return folder


def test_words_reads_no_weights(tokenizer_folder: Path):
    done = in_a_process("words", PROMPT, "--model", tokenizer_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "house" in done.stdout


def test_prompt_that_is_not_text(tokenizer_folder: Path):
    command = [sys.executable.encode(), b"-m", b"heedmap.cli", b"words", b"a \xff"]
    done = subprocess.run([*command, b"--model", b"model"], capture_output=True)
    assert done.returncode == 2
    assert b"is not valid Unicode" in done.stderr


def test_a_terminal_that_knows_no_unicode(tokenizer_folder: Path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = in_a_process("words", "집 🏠", "--model", "model", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\uc9d1" in done.stdout


def test_a_backend_that_matplotlib_does_not_know(saved: Path):
    done = in_a_process("inspect", saved, "-q", env={**os.environ, "MPLBACKEND": "nosuch"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_reader_that_leaves_early(saved: Path):
    command = f"'{sys.executable}' -m heedmap.cli inspect '{saved}' | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_colour_and_frames_only_at_a_terminal(saved: Path):
    import pty

    command = [sys.executable, "-m", "heedmap.cli", "inspect", str(saved)]
    seen = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 1024)
        seen.extend(data)
        return data

    environment = ["env", "-u", "NO_COLOR", "TERM=xterm", "COLUMNS=80"]
    assert pty.spawn([*environment, *command], read) == 0
    assert b"\x1b[1m" in seen
    plain = in_a_process("inspect", saved).stdout
    assert "\x1b" not in plain


@pytest.mark.slow
def test_first_light(desk: Path):
    """What the README promises, but for the installation: offline, from any folder."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(desk / "hub")}
    prompt = "a red house next to a blue tree"
    done = in_a_process("generate", prompt, "--seed", 7, "--json", env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (about,) = json.loads(done.stdout)["runs"]
    assert about["folder"] == "outputs/a-red-house-next-to-a-blue-tree-7"
    assert [word["word"] for word in about["words"]] == prompt.split()
    loaded = Run.load(about["folder"])
    assert loaded.image.size == (128, 128)
    assert loaded.settings.model == EMBEDDED
    assert isinstance(loaded.maps, HeatMaps)
    done = in_a_process("inspect", about["folder"], "--word", "blue tree", "--layers", "up")
    assert done.returncode == 0, done.stderr
