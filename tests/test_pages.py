"""What the pages tell a reader to type: the Python and the commands run as they stand."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from codeop import compile_command
from pathlib import Path

import pandas as pd
import pytest
from accelerate.commands.launch import launch_command_parser
from msgspec import structs

from heedmap import tiny
from heedmap.cli import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GUIDE = ROOT / "src/heedmap/GUIDE.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("scripts/**/*.md"), *ROOT.glob("src/**/*.md")])


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language; commands have none."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def commands(start: str) -> list[str]:
    """The commands of the pages, each once, without their comments."""
    lines = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    return [*dict.fromkeys(re.split(r" +# ", line)[0] for line in lines if line.startswith(start))]


# The Python of the app's page serves until it is stopped: tests/app starts the app.
PYTHON = [page for page in PAGES if blocks(page, "python") and page.parent.name != "app"]


@pytest.fixture
def two_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, where the embedded models take two steps by default."""
    quick = {name: structs.replace(tiny.defaults(name), steps=2) for name in tiny.FOLDERS}
    monkeypatch.setattr(tiny, "defaults", quick.__getitem__)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("two_steps")
@pytest.mark.filterwarnings("ignore:a guide changed nothing")  # in two steps
@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path):
    code = "\n".join(blocks(page, "python"))
    # The embedded model stands for one of the hub.
    code = code.replace('"stabilityai/stable-diffusion-xl-base-1.0"', "")
    # Called by itself, the pipeline takes diffusers' 50 steps.
    code = code.replace("num_images_per_prompt=2", "num_images_per_prompt=2, num_inference_steps=2")
    exec(compile(code, page.name, "exec"), {})


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_can_be_pasted_into_an_interpreter(page: Path):
    """A block behind `with` ends with an empty line there."""
    for code in blocks(page, "python"):
        typed: list[str] = []
        for line in code.splitlines():
            typed.append(line)
            if compile_command("\n".join(typed)) is not None:
                typed = []


def test_a_type_checker_finds_no_mistake_in_the_readme(tmp_path: Path):
    code = tmp_path / "readme.py"
    code.write_text("\n".join(blocks(README, "python")), encoding="utf-8")
    check = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", code]
    done = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [one for one in found if one["severity"] == "error"] == []


def run_command(line: str) -> None:
    words = shlex.split(os.path.expandvars(line), comments=True)
    if words[0] == "accelerate":
        launched = launch_command_parser().parse_args(words[2:])
        assert launched.module
        words = [launched.training_script, *launched.training_script_args]
    assert words[0] == "heedmap"
    assert not app(words[1:], standalone_mode=False), line


@pytest.mark.usefixtures("two_steps")
def test_the_commands_of_the_pages_run(monkeypatch: pytest.MonkeyPatch):
    """All in one folder; those of a cluster find their jobs done."""
    (jobs,) = blocks(GUIDE, "toml")
    Path("jobs.toml").write_text(jobs.replace("[1, 2]", "[1]"), encoding="utf-8")
    for line in commands("heedmap "):
        run_command(line)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "1")
    (cluster,) = blocks(GUIDE, "sh")
    for line in cluster.splitlines():
        run_command(line)
    assert len(pd.read_parquet("sweep/results.parquet")) == 4


@pytest.mark.parametrize("command", commands("python scripts/"))
def test_a_script_understands_the_options_of_a_page(command: str):
    """They take hours: only their options are read."""
    _, script, *arguments = shlex.split(command)
    runpy.run_path(str(ROOT / script))["parse"](arguments)
