"""The flags of commands: those that several declare, and those made of options."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from heedmap.cli.console import Task
from heedmap.errors import HeedmapError
from heedmap.options import parse_word

EMBEDDED, SAVED = "the embedded model, offline", "the run's own model"
OUTPUT = "a new one in outputs/"
OUTPUTS = f"{OUTPUT}. Of several results, the folder around them"


def parsed(parse: Callable[[str], Any], metavar: str | None, help: str, *names: str) -> Any:
    """Declare a flag whose text a function reads; its errors become usage errors."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except HeedmapError as error:
            raise typer.BadParameter(str(error)) from error

    return typer.Option(*names, parser=checked, metavar=metavar, help=help)


def command(
    *kinds: type, model: str = "", out: str = "", without: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags to a command: for the options of dataclasses, and for its `Task`.

    The command is called with the task, its own parameters, and the options that were given. The
    constructors of the dataclasses check these before a model is loaded. An own parameter takes the
    place of the option of this name.

    Args:
        kinds: the dataclasses, whose options `heedmap.options.option` declares.
        model: the default of --model. If empty, the command loads no model.
        out: the default of --out. If empty, the command saves nothing.
        without: the names of options that the command does not have.
    """
    shared = ["model", "device", "dtype"] if model else []
    shared += ["out", "open_", "quiet", "json"] if out else ["json"]

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        parameters = dict(inspect.signature(function).parameters)
        absent = {*parameters, *without.split()}
        options = {
            kind: [one for one in fields(kind) if one.metadata and one.name not in absent]
            for kind in kinds
        }
        of_task = [one for one in fields(Task) if one.name in shared and one.name not in absent]

        @functools.wraps(function)
        def run(**values: Any) -> None:
            values = {name: value for name, value in values.items() if value not in (None, [])}
            names = [one.name for one in of_task if one.name in values]
            task = Task(**{name: values.pop(name) for name in names})
            for kind, declared in options.items():
                declared = [one for one in declared if one.name in values]
                for one in declared:
                    if "collect" in one.metadata:
                        values[one.name] = one.metadata["collect"](values[one.name])
                kind(**{one.name: values[one.name] for one in declared})
            function(task, **values)

        for name in ("task", "options"):
            parameters.pop(name, None)
        flags = [_flag(one) for declared in options.values() for one in declared]
        flags += [_flag(one, {"model": model, "out": out}.get(one.name, "")) for one in of_task]
        run.__signature__ = inspect.Signature([*parameters.values(), *flags])  # pyright: ignore
        return run

    return declare


def _flag(one: Field[Any], usual: str = "") -> inspect.Parameter:
    """Make the Typer parameter of an option; `usual` is the default that its help names."""
    how, default = one.metadata, one.default
    kind, text = how["parse"], how["help"].format(usual)
    if default not in (None, False, ()):
        text += f" Default: {','.join(default) if isinstance(default, tuple) else default}."
    names, metavar = how.get("names", [f"--{one.name.replace('_', '-')}"]), how.get("metavar")
    info = typer.Option(*names, metavar=metavar, help=text)
    if inspect.isfunction(kind):
        kind, info = Any, parsed(kind, metavar, text, *names)
    if "collect" in how:
        kind = list[kind]
    kind, unset = (bool, False) if kind is bool else (kind | None, None)
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=unset, annotation=Annotated[kind, info]
    )


# --- flags that several commands declare ------------------------------------------------------

_WORD = "A word, a phrase, or #N for word N. May be repeated. Default: all."
_TARGET = "What it becomes. Default: SOURCE with its weights."
_CONCEPTS = "Use the maps of the run's concepts instead of its prompt's."

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The text of the image.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt to edit.")]
Targets = Annotated[list[str] | None, typer.Argument(metavar="TARGET", help=_TARGET)]
Seed = Annotated[int | None, typer.Option(min=0, help="Random seed. Default: random (printed).")]
Count = Annotated[int, typer.Option(min=1, max=10_000, help="Number of seeds, from --seed up.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a saved run.")]
Words = Annotated[list[Any] | None, parsed(parse_word, "WORD", _WORD, "--word", "-w")]
OfConcepts = Annotated[bool, typer.Option("--concepts", help=_CONCEPTS)]
Format = Annotated[
    Literal["png", "svg", "pdf"],
    typer.Option("--format", help="Of figures; svg or pdf for papers."),
]
