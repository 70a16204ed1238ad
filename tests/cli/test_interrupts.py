"""Ctrl-C in a process of its own, at every stage: a sentence that is true, nothing half-done."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from making import random_pipeline

from cli.calling import files
from heedmap.cli.interrupts import Interrupted, interruptible, kept, kept_told
from heedmap.files.placing import Places
from heedmap.results.runs import Run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

START = """
import os, signal, sys
from heedmap import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where it runs in the background
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
"""
STAGES = {
    "importing": """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn":
            stop()
sys.meta_path.insert(0, Finder())
""",
    "loading": """
import heedmap.models.pipelines as models
models.load = stop
""",
    "drawing": """
import heedmap.recording.recorder as recorder
after = recorder.Trace._after_call
recorder.Trace._after_call = lambda self, latents: (stop(), after(self, latents))[1]
""",
    "writing": """
import heedmap.results.runs as runs
runs.word_file = stop
""",
    "placing": """
import heedmap.files.writing as writing
writing._put_folder = stop
""",
}
GENERATE = ["generate", "a red house", "--seed", "1", "--steps", "2", "--size", "96x96"]


def interrupted(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{START}{code}\ncli.main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_was_kept(stage: str, desk: Path):
    done = interrupted(STAGES[stage], *GENERATE, "--model", str(model_folder(desk)))
    told = (130, "", "Interrupted: nothing was kept.\n")
    assert (done.returncode, done.stdout, done.stderr) == told
    assert sorted(path.name for path in desk.iterdir()) == ["model"]


def model_folder(desk: Path) -> Path:
    """A small model, saved."""
    random_pipeline().save_pretrained(desk / "model")
    return desk / "model"


def test_what_was_saved_before_is_told(desk: Path):
    """In the second picture, and in the moment in which the second is in its place."""
    model = str(model_folder(desk))
    drawing = """
import heedmap.drawing.generation as generation
draw = generation.generate
generation.generate = lambda *a, seed, **b: stop() if seed == 2 else draw(*a, seed=seed, **b)
"""
    first = "outputs/a-red-house-1"
    done = interrupted(drawing, *GENERATE, "--count", "3", "--model", model)
    told = f"Interrupted: what was saved before is whole, {first}.\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)
    assert os.listdir("outputs") == ["a-red-house-1"]
    Run.load(first)
    placed = """
import heedmap.files.writing as writing
put = writing._put_folder
writing._put_folder = lambda new, target: (put(new, target), stop())
"""
    done = interrupted(placed, *GENERATE, "--count", "3", "--model", model)
    assert done.stderr == f"Interrupted: what was saved before is whole, {first}-2.\n"
    assert sorted(os.listdir("outputs")) == ["a-red-house-1", "a-red-house-1-2"]
    Run.load(f"{first}-2")


def test_a_second_one_does_not_interrupt_the_cleaning_up(desk: Path):
    code = """
import heedmap.results.runs as runs, shutil
runs.word_file = stop
remove = shutil.rmtree
shutil.rmtree = lambda *a, **b: (stop(), remove(*a, **b))[1]
"""
    done = interrupted(code, *GENERATE, "--model", str(model_folder(desk)))
    assert (done.returncode, done.stderr) == (130, "Interrupted: nothing was kept.\n")
    assert sorted(path.name for path in desk.iterdir()) == ["model"]


def test_inspect_and_compare(saved: Path, desk: Path):
    before = files(saved)
    code = "import heedmap.maps.heatmaps as h\nh.HeatMaps.laid_out = stop\n"
    done = interrupted(code, "inspect", str(saved))
    assert (done.returncode, done.stderr) == (130, "Interrupted: nothing was kept.\n")
    assert files(saved) == before
    code = "import heedmap.files.writing as w\nput = w._put_file\n"
    code += "w._put_file = lambda new, target: (put(new, target), stop())\n"
    done = interrupted(code, "compare", str(saved), str(saved), "-o", "x.png")
    told = "Interrupted: what was saved before is whole, x.png.\n"
    assert (done.returncode, done.stderr) == (130, told)
    done = interrupted(code, "compare", str(saved), str(saved))
    assert "is whole, outputs/compare-saved-saved.png" in done.stderr


def test_an_error_that_the_interrupt_made_of_an_import_is_none(desk: Path):
    code = """
import heedmap.models.pipelines as models
def tokenizer(model):
    try:
        stop()
    except KeyboardInterrupt:
        raise ImportError("C extensions")
models.tokenizer = tokenizer
"""
    done = interrupted(code, "words", "a")
    assert (done.returncode, done.stderr) == (130, "Interrupted: nothing was kept.\n")


def test_what_is_told():
    assert kept(KeyboardInterrupt()) == kept(Interrupted([])) == "Interrupted: nothing was kept."
    told = kept(Interrupted([Path(f"x-{n}") for n in range(9)]))
    assert told.endswith("whole, x-0, x-1, x-2, x-3, x-4 and 4 more.")


@pytest.fixture
def heard():
    """Ctrl-C as in a terminal: what runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_handlers_come_back_and_other_threads_have_none():
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(Interrupted) as stopped, kept_told(Places()):
        raise KeyboardInterrupt
    assert stopped.value.saved == []
    thread = threading.Thread(target=lambda: interruptible().__enter__())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
