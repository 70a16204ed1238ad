"""The work that commands share: loading a model, saving, printing.

Results go to stdout, progress and warnings to stderr.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from typing import Any

import typer

from heedmap.errors import warnings_heard
from heedmap.options import LoadOptions, option


@dataclass(frozen=True, kw_only=True)
class Task(LoadOptions):
    """The flags that commands share. A command adds the defaults of `model` and `out`."""

    model: str | None = option(
        None, "A folder, a .safetensors file or a hub id. Default: {}.", names=["--model", "-m"]
    )
    out: Path | None = option(
        None, "A new or an empty folder. Default: {}.", Path, names=["--out", "-o"]
    )
    open_: bool = option(False, "Open the result in the browser.", bool, names=["--open"])
    quiet: bool = option(False, "Print only what was saved.", bool, names=["--quiet", "-q"])
    json: bool = option(False, "Print one JSON object.", bool)
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

            return repeating.load_for(saved, self.model, device=self.device, dtype=self.dtype)

    @contextmanager
    def sampling(self, saved: Any = None) -> Iterator[tuple[Any, Callable[[int, int], None]]]:
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

        with warnings_heard(hear):
            yield

    def finish(self, data: Mapping[str, Any], saved: Iterable[object], page: object = None) -> None:
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
def progress_bar(label: str, visible: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr if it is a terminal, and yield the function that moves it."""
    if not visible or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich import progress
    from rich.console import Console

    columns = (*progress.Progress.get_default_columns(), progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: object = "") -> None:
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
