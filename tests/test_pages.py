"""What the pages tell a reader to type: the Python and the commands run as they stand."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from codeop import compile_command
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("scripts/**/*.md"), *ROOT.glob("src/**/*.md")])


@cache
def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language; commands have none."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def commands(page: Path) -> Iterator[str]:
    """The commands of a page, one a line, without what is said of them."""
    for block in blocks(page, ""):
        yield from (re.split(r" +# ", line)[0].rstrip() for line in block.splitlines() if line)


def beginning(page: Path, start: str) -> list[str]:
    return [command for command in commands(page) if command.startswith(start)]


def of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# The Python of the app's page serves until it is stopped: tests/app builds the app.
PYTHON = [page for page in PAGES if blocks(page, "python") and page.parent.name != "app"]
VERBS = dict.fromkeys(line for page in PAGES for line in beginning(page, "heedmap "))
SCRIPTS = [(page, line) for page in PAGES for line in beginning(page, "python scripts/")]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, whose embedded models take 4 steps by default."""
    folder = tmp_path_factory.mktemp("src")
    shutil.copytree(ROOT / "src/heedmap", folder / "heedmap")
    for card in folder.glob("heedmap/tiny/*/card.json"):
        data = json.loads(card.read_bytes())
        data["defaults"]["steps"] = 4
        card.write_text(json.dumps(data), encoding="utf-8")
    return folder


def run_texts(language: str, texts: list[str], package: Path, folder: Path) -> None:
    """Run Python or commands, one after the other in an empty folder, with a package."""
    environment = {**os.environ, "PYTHONPATH": str(package), "TQDM_DISABLE": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "tests/running.py", language], input=json.dumps(texts), text=True,
        capture_output=True, cwd=folder, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_python_of_the_pages_runs(package: Path, tmp_path: Path):
    run_texts("python", ["\n".join(blocks(page, "python")) for page in PYTHON], package, tmp_path)


@pytest.mark.parametrize("page", PYTHON, ids=of)
def test_the_python_of_a_page_can_be_pasted_into_an_interpreter(page: Path):
    """A block behind `with` ends with an empty line there."""
    for code in blocks(page, "python"):
        typed: list[str] = []
        for line in code.splitlines():
            typed.append(line)
            if compile_command("\n".join(typed)) is not None:
                typed = []


@pytest.mark.slow
def test_a_type_checker_finds_no_mistake_in_the_readme(tmp_path: Path):
    code = tmp_path / "readme.py"
    code.write_text("\n".join(blocks(README, "python")), encoding="utf-8")
    check = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", code]
    done = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [one for one in found if one["severity"] == "error"] == []


@pytest.mark.slow
def test_the_commands_of_the_pages_run(package: Path, tmp_path: Path):
    """Each runs once, all in one folder; the sweep has the guide's jobs.

    Those of a cluster then find its jobs done: `sweeps.test_processes` divides jobs among
    processes, and runs Ray.
    """
    guide = ROOT / "src/heedmap/GUIDE.md"
    (jobs,), (block,) = blocks(guide, "toml"), blocks(guide, "sh")
    assert blocks(README, "toml") == [jobs]
    (tmp_path / "jobs.toml").write_text(jobs, encoding="utf-8")
    run_texts("commands", list(VERBS), package, tmp_path)
    lines = "\n".join(line for line in block.splitlines() if "--ray" not in line)
    environment = {
        **os.environ, "PYTHONPATH": str(package), "TQDM_DISABLE": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-e", "-c", lines], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(tmp_path / "sweep/results.parquet")) == 8


@pytest.mark.parametrize(("page", "command"), SCRIPTS, ids=lambda of: str(of).rpartition("/")[2])
def test_a_script_understands_the_options_of_a_page(page: Path, command: str):
    """They take hours: only their options are read."""
    _, script, *arguments = shlex.split(command)
    runpy.run_path(str(ROOT / script))["parse"](arguments)
