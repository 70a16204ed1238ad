"""Calling the command line in a test, and what a run's folder holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from heedmap import cli

PROMPT = "a red house"
FILES = {
    "image.png",
    "index.html",
    "sheet.png",
    "words/0-a.png",
    "words/1-red.png",
    "words/2-house.png",
    "maps.safetensors",
    "run.json",
}


def quiet(step: int, total: int) -> None:
    """No progress bar."""


def fail_with(error: BaseException):
    def function(*_, **__):
        raise error

    return function


def invoke(*arguments: object):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run_command(*arguments: object) -> str:
    """What a command prints that goes well; nothing may be on stderr."""
    result = invoke(*arguments)
    assert result.exception is None, (result.output, result.exception)
    assert result.stderr == ""
    return result.stdout


def run_json(*arguments: object) -> dict[str, Any]:
    """What a command that goes well prints with --json; warnings may be on stderr."""
    result = invoke(*arguments, "--json")
    assert result.exception is None, (result.output, result.exception)
    return json.loads(result.stdout)


def error_of(*arguments: object) -> str:
    """The one sentence of a command that fails."""
    result = invoke(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    return result.stderr


def usage_error_of(*arguments: object) -> str:
    """The last line of a usage error."""
    result = invoke(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == "" and result.stderr.startswith("Usage: ")
    return result.stderr.splitlines()[-1]


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def run_process(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heedmap", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)
