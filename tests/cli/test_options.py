"""Options of the command line that go together: how Typer sees them, and what a verb is given."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from heedmap.cli import options
from heedmap.errors import ArgumentError
from heedmap.options import DrawOptions, EditOptions


@dataclass(frozen=True)
class Two:
    """Two options."""

    wide: Annotated[int, typer.Option("--wide", "-w", metavar="N", help="How wide.")] = 3
    names: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None


def test_a_group_is_spelled_out_and_given_whole():
    seen = []

    @options.grouped
    def verb(what: str, *, two: Two, told: Annotated[bool, typer.Option("--told")] = False) -> None:
        """Do it."""
        seen.append((what, two, told))

    assert list(inspect.signature(verb).parameters) == ["what", "wide", "names", "told"]
    app = typer.Typer()
    app.command()(verb)
    run = CliRunner()
    assert run.invoke(app, ["x"]).exit_code == 0
    assert (
        run.invoke(app, ["x", "-w", "5", "--names", "a", "--names", "b", "--told"]).exit_code == 0
    )
    assert seen == [("x", Two(), False), ("x", Two(5, ["a", "b"]), True)]
    said = run.invoke(app, ["--help"]).stdout
    assert "How wide." in said and "Do it." in said


def test_what_is_not_said_is_what_the_library_takes():
    drawn = options.DrawFlags(keep=frozenset(DrawOptions.keep)).options()
    assert set(drawn) == {"steps", "guidance", "size", "negative", "keep"}
    for name in ("steps", "guidance", "size", "negative"):
        assert drawn[name] == getattr(DrawOptions, name)
    changed = options.EditFlags().options()
    assert changed.pop("words") == {}
    for name, value in changed.items():
        assert value == getattr(EditOptions, name), name


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ({}, "shown\n"),
        ({"quiet": True}, "a\nb\\x1b\n"),
        ({"json": True}, '{"runs": 2}\n'),
        ({"quiet": True, "json": True}, '{"runs": 2}\n'),
    ],
)
def test_what_is_told(given, printed, capsys):
    told = options.OutputFlags(**given)
    told.tell({"runs": 2}, ["a", "b\x1b"], lambda: print("shown"))
    out, err = capsys.readouterr()
    assert (out, err) == (printed, "") and told.hidden  # no bar where nobody looks


def test_a_seed_is_the_one_that_was_given_or_any():
    assert [options.DrawFlags(seed=n).first_seed() for n in (0, 7)] == [0, 7]
    drawn = {options.DrawFlags().first_seed() for _ in range(20)}
    assert len(drawn) > 1 and all(0 <= seed < 2**31 for seed in drawn)


def test_by_word():
    assert options.by_word(None, "--words") == {}
    assert options.by_word([("a", 1), ("b", 2)], "--words") == {"a": 1, "b": 2}
    with pytest.raises(ArgumentError, match="--words has 'a' twice: give all of a word at once"):
        options.by_word([("a", 1), ("a", 2)], "--words")
