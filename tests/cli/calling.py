"""Calling the command line in a test, and what a run's folder holds."""

import subprocess
import sys
from pathlib import Path

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


def raising(error: BaseException):
    def function(*_, **__):
        raise error

    return function


def call(*arguments: object):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def good(*arguments: object) -> str:
    """What a verb prints that goes well; nothing may be on stderr."""
    result = call(*arguments)
    assert result.exception is None, (result.output, result.exception)
    assert result.stderr == ""
    return result.stdout


def bad(*arguments: object) -> str:
    """The sentence of a verb that fails; nothing may be on stdout."""
    result = call(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def in_a_process(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heedmap.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)
