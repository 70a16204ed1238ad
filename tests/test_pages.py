"""What the pages tell a reader to type: the Python and the commands run as they stand."""

import argparse
import json
import re
import runpy
import secrets
import shlex
import subprocess
import sys
from codeop import compile_command
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from diffusers import StableDiffusionPipeline
from msgspec import structs
from typer.testing import CliRunner

from heedmap import cli, tiny

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


@pytest.fixture
def few_steps(monkeypatch):
    """Few steps where a page names none, in place of heedmap's 25 and diffusers' 50."""
    few = structs.replace(tiny.defaults(), steps=4)
    monkeypatch.setattr(tiny, "defaults", lambda: few)
    call = StableDiffusionPipeline.__call__.__wrapped__
    defaults = tuple(4 if default == 50 else default for default in call.__defaults__)
    monkeypatch.setattr(call, "__defaults__", defaults)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("page", PYTHON, ids=of)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch):
    """In the order in which it stands there, in an empty folder, with the embedded model.

    Every example names its seed: what it shows does not go by chance.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.delattr(secrets, "randbelow")
    names: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, of(page), "exec"), names)


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
@pytest.mark.usefixtures("few_steps")
def test_the_commands_of_the_pages_run(tmp_path: Path, monkeypatch):
    """One after the other, in one folder, each once; the sweep has the guide's jobs."""
    monkeypatch.chdir(tmp_path)
    (jobs,) = blocks(ROOT / "src/heedmap/GUIDE.md", "toml")
    Path("jobs.toml").write_text(jobs, encoding="utf-8")
    monkeypatch.setenv("TQDM_DISABLE", "1")
    for command in VERBS:
        result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
        assert result.exit_code == 0, (command, result.output)


@pytest.mark.parametrize(("page", "command"), SCRIPTS, ids=lambda of: str(of).rpartition("/")[2])
def test_a_script_understands_what_a_page_says(page: Path, command: str, monkeypatch):
    """They take hours: it is their options alone that are read."""
    parse = argparse.ArgumentParser.parse_args

    def stop(self, arguments=None, namespace=None):
        parse(self, arguments, namespace)
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    _, script, *arguments = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(KeyboardInterrupt):
        runpy.run_path(str(ROOT / script), run_name="__main__")
