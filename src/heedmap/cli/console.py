"""The work that commands share: their flags, loading a model, saving, printing.

Results go to stdout, progress and warnings to stderr.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import chain
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import heedmap as hm
from heedmap.errors import (
    HeedmapError,
    plural,
    record_warnings,
)
from heedmap.options import LoadOptions, option
from heedmap.parsing import READERS, parse_word

EMBEDDED = "the embedded model, offline"
SAVED = "the run's own model"
OUTPUT = "a new one in outputs/"
OUTPUTS = f"{OUTPUT}. With several results, each gets a subfolder"


@dataclass(frozen=True, kw_only=True)
class Task(LoadOptions):
    """The flags that commands share. A command adds the defaults of `model` and `out`.

    Attributes:
        warnings: heedmap's warnings since the command has begun.
    """

    model: str | None = option(
        None,
        "A folder, a .safetensors file, a hub id, or joint (a small Stable Diffusion 3). "
        "Default: {}.",
        names=["--model", "-m"],
    )
    out: Path | None = option(
        None, "A new or an empty folder. Default: {}.", names=["--out", "-o"]
    )
    open_: bool = option(False, "Open the result in the browser.", names=["--open"])
    quiet: bool = option(False, "Print only what was saved.", names=["--quiet", "-q"])
    json: bool = option(False, "Print one JSON object.")
    warnings: list[str] = field(default_factory=list, init=False)

    @property
    def verbose(self) -> bool:
        """True if a description is printed, for people."""
        return not (self.json or self.quiet)

    @property
    def bars(self) -> bool:
        """True if progress is shown: on a terminal."""
        return self.verbose and sys.stderr.isatty()

    def place(self, root: str | Path = "outputs", *, several: bool = False) -> Any:
        """Check that results can be saved: in --out, around it if several, or within a root."""
        from heedmap.io.writing import Destination

        return Destination(self.out, many=several, root=root)

    def load(self, saved: Any = None) -> Any:
        """Load a model, or that of a saved result if no other is named."""
        options: Any = {"device": self.device, "dtype": self.dtype}
        if saved is None:
            from heedmap.backends import loading

            pipe = loading.load(self.model, **options)
        else:
            from heedmap.pipelines import repeating

            pipe = repeating.load_for(saved, self.model, **options)
        pipe.set_progress_bar_config(disable=not self.bars)
        return pipe

    def warn(self, text: str) -> None:
        """Print a warning, and collect it."""
        self.warnings.append(text)
        typer.echo(f"Warning: {text}", err=True)

    def finish(
        self,
        data: Mapping[str, Any],
        folders: Sequence[Path] = (),
        lines: Iterable[str] = (),
        page: str = "index.html",
    ) -> None:
        """Print lines and pages of folders, or JSON, or the folders; open the first page."""
        pages = [folder / page for folder in folders]
        if self.json:
            from heedmap.io.schemas import to_json

            lines = [dumps(to_json({**data, "warnings": self.warnings}))]
        elif self.quiet:
            lines = map(str, folders)
        else:
            lines = [*lines, *map(str, pages)]
        for line in lines:
            typer.echo(line)
        if self.open_ and pages:
            import webbrowser

            webbrowser.open(pages[0].resolve().as_uri())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, as wide as the terminal; in a pipe each row is one line."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 1_000_000
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def summary(folder: Path, run: "hm.Run") -> list[str]:
    """Describe a run: its folder, size, seed and steps, and what its guides did."""
    size = "{}×{}".format(*run.image.size)
    steps = plural(run.settings.steps or 0, "step")
    lines = [str(folder), f"{size}, seed {run.settings.seed}, {steps}."]
    report = run.guide_report
    if report is not None:
        losses = zip(run.settings.guide, report.before, report.after, strict=True)
        for guide, before, after in losses:
            loss = f"Loss {before[0]:.2f} at first, {min(after):.2f} at least"
            lines.append(f"{loss}, {after[-1]:.2f} at last: {guide}.")
        lines.append(f"Extra passes of the model: {report.passes}.")
    return lines


# --- flags ------------------------------------------------------------------------------------


def parsed(
    parse: Callable[[str], Any],
    metavar: str | None,
    help: str,
    *names: str,
) -> Any:
    """Declare a flag whose text a function reads; its errors become usage errors."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except HeedmapError as error:
            raise typer.BadParameter(str(error)) from error

    return typer.Option(*names, parser=checked, metavar=metavar, help=help)


def command(
    *kinds: type,
    model: str = "",
    out: str = "",
    without: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags to a command: for the options of dataclasses, and for its `Task`.

    The command is called with the task, its own parameters, and the options that were given. These
    are checked before a model is loaded. An own parameter takes the place of the option of this
    name.

    Args:
        kinds: the dataclasses, whose options `heedmap.options.option` declares.
        model: the default of --model. If empty, the command loads no model.
        out: the default of --out. If empty, the command saves nothing.
        without: the names of options that the command does not have.
    """
    absent = set(without.split())
    if not model:
        absent |= {"model", "device", "dtype"}
    if not out:
        absent |= {"out", "open_", "quiet"}

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        parameters = dict(inspect.signature(function).parameters)
        del parameters["task"]
        parameters.pop("options", None)
        flags: dict[str, Field[Any]] = {}
        for one in chain.from_iterable(map(fields, (*kinds, Task))):
            if one.metadata.get("help") and one.name not in {*parameters, *absent}:
                flags[one.name] = one
                default = {"model": model, "out": out}.get(one.name, "")
                parameters[one.name] = _flag(one, default)

        @functools.wraps(function)
        def run(**values: Any) -> None:
            options = {
                name: value for name, value in values.items() if value not in (None, [])
            }
            for name in options.keys() & flags.keys():
                options[name] = _check(flags[name], options[name])
            shared = {one.name for one in fields(Task)} & flags.keys() & options.keys()
            task = Task(**{name: options.pop(name) for name in shared})
            arguments = options.pop("arguments", {})
            for name in arguments.keys() & parameters.keys():
                raise typer.BadParameter(
                    f"--set: {name} is an option of this command itself"
                )
            if not task.bars:
                os.environ.setdefault("TQDM_DISABLE", "1")
            with record_warnings(task.warn):
                function(task, **options, **arguments)

        vars(run)["__signature__"] = inspect.Signature([*parameters.values()])
        return run

    return declare


def _check(one: Field[Any], value: Any) -> Any:
    """Return the checked value of an option, of one text or of several."""
    reader = READERS.get(one.type)
    if reader is not None and reader.collect is not None:
        value = reader.collect(value)
    check = one.metadata.get("check")
    return value if check is None else check(one.name, value)


def _flag(one: Field[Any], default: str) -> inspect.Parameter:
    """Make the Typer parameter of an option; its help names the command's default, if any."""
    text = one.metadata["help"].format(default)
    value = one.default
    if isinstance(value, tuple):
        value = ",".join(value)
    if value not in (None, False, "", MISSING):
        text += f" Default: {value}."
    names = one.metadata.get("names", [f"--{one.name.replace('_', '-')}"])
    kind: Any = one.metadata.get("type", one.type)
    reader = READERS.get(kind)
    if reader is not None:
        info = parsed(reader.parse, reader.metavar, text, *names)
        kind = Any if reader.collect is None else list[Any]
    else:
        info = typer.Option(*names, help=text)
        info.metavar = one.metadata.get("metavar")
        info.exists = one.metadata.get("exists", False)
    if default == EMBEDDED:
        info.envvar = "HEEDMAP_MODEL"
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, info],
    )


# --- flags that several commands declare ------------------------------------------------------

_WORD = (
    "A word, a phrase, or #N for word number N, from 0. May be repeated. Default: all."
)
_TARGET = "Edited prompts. Without one, the weights in SOURCE are edited, as in 'a (red:3) house'."
_CONCEPTS = "Use the maps of the run's concepts instead of its prompt's."

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt to edit.")]
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET", help=_TARGET),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Random seed. Default: random (printed).")
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a saved run.")
]
Words = Annotated[list[Any] | None, parsed(parse_word, "WORD", _WORD, "--word", "-w")]
PLACE = "X,Y|L,T,R,B|WORD"
OfConcepts = Annotated[bool, typer.Option("--concepts", help=_CONCEPTS)]
Format = Annotated[
    Literal["png", "svg", "pdf"],
    typer.Option("--format", help="Of figures; svg or pdf for papers."),
]
