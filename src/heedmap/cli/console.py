"""The work that commands share: their flags, loading a model, saving, printing.

Results go to stdout, progress and warnings to stderr.
"""

import functools
import gc
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from json import dumps
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from heedmap.checks import check_int
from heedmap.errors import ArgumentError, HeedmapError, join_words, record_warnings
from heedmap.options import LoadOptions, option
from heedmap.parsing import READERS, parse_integer, parse_word

EMBEDDED = "the embedded model, offline"
SAVED = "the run's own model"
OUTPUT = "a new one in outputs/"
RESERVED = {"pipe", "progress", "preview", "edits", "picture", "arguments"}
"""Arguments of Python's functions that `--set` does not take, besides a command's own options."""
OUTPUTS = f"{OUTPUT}. With several results, each gets a subfolder"


@dataclass(frozen=True, kw_only=True)
class Task(LoadOptions):
    """The flags that commands share. A command adds the defaults of `model` and `out`."""

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
        """True if progress and a description are printed, for people."""
        return not (self.json or self.quiet)

    def place(self, root: str | Path = "outputs", *, several: bool = False) -> Any:
        """Check that results can be saved: in --out, around it if several, or within a root."""
        from heedmap.io.writing import Destination

        return Destination(self.out, many=several, root=root)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Show a bar while a model is loaded; a download has bars of its own."""
        local = self.model is None or os.path.exists(self.model)
        if local or not self.verbose or not sys.stderr.isatty():
            os.environ.setdefault("TQDM_DISABLE", "1")
        with progress_bar("Loading the model", self.verbose and local):
            yield
        gc.freeze()  # the interpreter need not search modules and model for garbage when it ends

    def load(self, saved: Any = None) -> Any:
        """Load a model, or that of a saved result if no other is named."""
        with self.loading():
            if saved is None:
                from heedmap.backends import loading

                return loading.load(self.model, device=self.device, dtype=self.dtype)
            from heedmap.pipelines import repeating

            return repeating.load_for(
                saved, self.model, device=self.device, dtype=self.dtype
            )

    @contextmanager
    def sampling(
        self, saved: Any = None
    ) -> Iterator[tuple[Any, Callable[[int, int], None]]]:
        """Load a model, print warnings, and yield the pipeline and the function of a bar."""
        pipe = self.load(saved)
        with self.warnings_printed(), progress_bar("Sampling", self.verbose) as advance:
            yield pipe, advance

    @contextmanager
    def warnings_printed(self) -> Iterator[None]:
        """Print heedmap's warnings on stderr at once, and collect them."""

        def hear(text: str) -> None:
            self.warnings.append(text)
            typer.echo(f"Warning: {text}", err=True)

        with record_warnings(hear):
            yield

    def finish(
        self, data: Mapping[str, Any], saved: Iterable[object], page: object = None
    ) -> None:
        """Print JSON or the saved files, and open a page, as the flags say."""
        if self.json:
            typer.echo(dumps({**data, "warnings": self.warnings}))
        elif self.quiet:
            for name in saved:
                typer.echo(str(name))
        if self.open_:
            import webbrowser

            if not webbrowser.open(Path(str(page)).resolve().as_uri()):
                typer.echo(f"No browser was found: open {page} yourself.", err=True)


@contextmanager
def progress_bar(
    label: str, visible: bool, interval: float = inf
) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr if it is a terminal, and yield the function that moves it.

    Elsewhere, print a line every `interval` seconds.
    """
    if not visible or not sys.stderr.isatty():
        printed = time.monotonic()

        def report(done: int, total: int) -> None:
            nonlocal printed
            if visible and time.monotonic() - printed >= interval:
                printed = time.monotonic()
                typer.echo(f"{label}: {done} of {total}", err=True)

        yield report
        return
    from rich import progress
    from rich.console import Console

    columns = (*progress.Progress.get_default_columns(), progress.TimeElapsedColumn())
    columns = (*columns, progress.TextColumn("{task.fields[rate]}"))
    with progress.Progress(
        *columns, console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(label, total=None, rate="")
        before = -1
        start = time.monotonic()

        def advance(done: int, total: int) -> None:
            nonlocal before, start
            if before < 0:  # what was done before the bar began has no rate
                before = done
                start = time.monotonic()
            rate = (done - before) / max(time.monotonic() - start, 1e-3) * 60
            bar.update(task, completed=done, total=total, rate=f"{rate:.3g} a minute")

        yield advance


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: object = ""
) -> None:
    """Print a table, as wide as the terminal; in a pipe each row is one line.

    Numbers are aligned to the right, and columns of empty cells are left out.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1_000_000
    if title:
        console.print(Text(str(title), "bold"))
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    cells_by_column = {
        name: cells for name, *cells in zip(columns, *rows, strict=True) if any(cells)
    }
    for name, cells in cells_by_column.items():
        number = all(cell[:1].isdigit() or cell[:1] in "-−–" for cell in cells)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in zip(*cells_by_column.values(), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)


class HelpCommand(TyperCommand):
    """A command whose help names arguments without Python's types."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None  # pyright: ignore


# --- flags ------------------------------------------------------------------------------------


def parsed(
    parse: Callable[[str], Any], metavar: str | None, help: str, *names: str
) -> Any:
    """Declare a flag whose text a function reads; its errors become usage errors."""

    def checked(text: str) -> Any:
        try:
            return parse(str(text))  # a default is a number already
        except HeedmapError as error:
            raise typer.BadParameter(str(error)) from error

    return typer.Option(*names, parser=checked, metavar=metavar, help=help)


def whole(what: str, help: str, least: int, most: float = inf, *names: str) -> Any:
    """Declare a flag of a whole number in a range; its errors are those of Python."""

    def parse(text: str) -> int:
        return check_int(what, parse_integer(text), least=least, most=most)

    return parsed(parse, "N", help, *names)


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
            kind: [
                one
                for one in fields(kind)
                if one.metadata.get("help") and one.name not in absent
            ]
            for kind in kinds
        }
        of_task = [
            one for one in fields(Task) if one.name in shared and one.name not in absent
        ]

        @functools.wraps(function)
        def run(**values: Any) -> None:
            given = {
                name: value for name, value in values.items() if value not in (None, [])
            }
            task = Task(**_take(of_task, given))
            for kind, declared in options.items():
                kind(**_take(declared, given, keep=True))
            arguments = given.pop("arguments", {})
            for name in arguments:
                if name in known or name in RESERVED:
                    raise typer.BadParameter(
                        f"{name} is no argument of the pipeline alone: heedmap sets it itself; "
                        "`-h` lists its options",
                        param_hint="--set",
                    )
            function(task, **given, **arguments)

        for name in ("task", "options"):
            parameters.pop(name, None)
        flags = [_flag(one) for declared in options.values() for one in declared]
        flags += [
            _flag(one, {"model": model, "out": out}.get(one.name, ""))
            for one in of_task
        ]
        run.__signature__ = inspect.Signature([*parameters.values(), *flags])  # pyright: ignore
        known = run.__signature__.parameters  # pyright: ignore
        return run

    return declare


def _take(
    declared: Iterable[Field[Any]], given: dict[str, Any], *, keep: bool = False
) -> dict[str, Any]:
    """Return the given values of some options; unless they are to `keep`, remove them."""
    taken: dict[str, Any] = {}
    for one in declared:
        if one.name in given:
            reader = READERS.get(one.type)
            if reader is not None and reader.collect is not None:
                given[one.name] = reader.collect(given[one.name])
            taken[one.name] = given[one.name] if keep else given.pop(one.name)
    return taken


def _flag(one: Field[Any], usual: str = "") -> inspect.Parameter:
    """Make the Typer parameter of an option; `usual` is the default that its help names."""
    how = one.metadata
    default = one.default
    text = how["help"].format(usual)
    if default not in (None, False, (), MISSING):
        shown = ",".join(default) if isinstance(default, tuple) else default
        text += f" Default: {shown}."
    names = how.get("names", [f"--{one.name.replace('_', '-')}"])
    variable = "HEEDMAP_MODEL" if usual == EMBEDDED else None
    kind: Any = how.get("type", one.type)
    reader = READERS.get(kind)
    if reader is None:
        metavar = how.get("metavar")
        info = typer.Option(*names, metavar=metavar, envvar=variable, help=text)
    else:
        info = parsed(reader.parse, reader.metavar, text, *names)
        kind = Any if reader.collect is None else list[Any]
    unset = None
    if kind is bool:
        unset = False
    else:
        kind = kind | None
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=unset,
        annotation=Annotated[kind, info],
    )


def check_targets(texts: list[str] | None) -> list[str]:
    """Refuse targets that are the words of one prompt, or the numbers of one list."""
    from heedmap.text.prompts import is_unspaced

    texts = texts or []
    if len(texts) > 1 and not any(" " in one or is_unspaced(one) for one in texts):
        raise ArgumentError(
            f"the edited prompts are {join_words([*map(repr, texts)])}: put a prompt of several "
            "words in quotation marks, and commas between numbers, as in 0,0.5,1; give prompts of "
            "one word one at a time"
        )
    return texts


# --- flags that several commands declare ------------------------------------------------------

_WORD = (
    "A word, a phrase, or #N for word number N, from 0. May be repeated. Default: all."
)
_TARGET = "Edited prompts. Without one, the weights in SOURCE are edited, as in 'a (red:3) house'."
_COUNT = "Number of seeds, from --seed up."
_CONCEPTS = "Use the maps of the run's concepts instead of its prompt's."

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt to edit.")]
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET", help=_TARGET, callback=check_targets),
]
Seed = Annotated[Any, whole("the seed", "Random seed. Default: random (printed).", 0)]
Count = Annotated[Any, whole("count", _COUNT, 1, 10_000)]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a saved run.")
]
Words = Annotated[list[Any] | None, parsed(parse_word, "WORD", _WORD, "--word", "-w")]
OfConcepts = Annotated[bool, typer.Option("--concepts", help=_CONCEPTS)]
Format = Annotated[
    Literal["png", "svg", "pdf"],
    typer.Option("--format", help="Of figures; svg or pdf for papers."),
]
