"""What commands share: loading and saving, and what is printed.

Results go to stdout, progress and warnings to stderr.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedmap.errors import RunError, warnings_heard

if TYPE_CHECKING:
    from heedmap.io.writing import Destination
    from heedmap.maps.heatmaps import HeatMaps
    from heedmap.results.runs import Run

Advance = Callable[[int, int], None]


# --- loading and saving -----------------------------------------------------------------------


@contextmanager
def loading_bar(model: str | None, hidden: bool) -> Generator[None]:
    """Show a bar while a model is loaded; a download has bars of its own."""
    local = model is None or os.path.exists(model)
    if hidden or local or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    with progress_bar("Loading the model", hidden or not local):
        yield
    gc.freeze()  # the interpreter need not search modules and model for garbage when it ends


def load_model(model: str | None, device: Any, dtype: Any, hidden: bool, saved: Any = None) -> Any:
    """Load a model, or that of a saved run if no other is named."""
    with loading_bar(model, hidden):
        if saved is None:
            from heedmap.backends import loading

            return loading.load(model, device=device, dtype=dtype)
        from heedmap.pipelines import repeating

        return repeating.load_for(saved, model, device=device, dtype=dtype)


def maps_of(run: "Run", concepts: bool) -> "HeatMaps":
    """Give the maps of a run's prompt, or of its concepts."""
    found = run.concepts if concepts else run.maps
    if found is None:
        raise RunError("this run has no concepts: make one with --concept, or omit --concepts")
    return found


def destination(
    out: Path | None, *, several: bool = False, root: str | Path = "outputs"
) -> "Destination":
    """Check that results can be saved.

    Args:
        out: the folder that was named; around the results if there may be several.
        several: whether there may be several.
        root: where new folders are made if none was named.
    """
    from heedmap.io.writing import Destination

    return Destination(out, many=several, root=root)


# --- what is printed --------------------------------------------------------------------------


def print_result(
    data: Mapping[str, Any],
    names: Iterable[object],
    show: Callable[[], None],
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Print one JSON object, the names of what was saved, or a description."""
    if as_json:
        typer.echo(json.dumps(data))
    elif quiet:
        for name in names:
            typer.echo(str(name))
    else:
        show()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: object = "",
    *,
    right: Iterable[str] = ("#",),
) -> None:
    """Print a table: as wide as the terminal there, one line a row in a pipe.

    Args:
        columns: the headings.
        rows: a cell for each column.
        title: a line above.
        right: the columns that are aligned to the right.
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
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def open_in_browser(path: Path) -> None:
    """Open a file in the browser, or print that there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        typer.echo(f"No browser was found: open {path} yourself.", err=True)


@contextmanager
def warnings_printed() -> Generator[list[str]]:
    """Print heedmap's warnings on stderr at once, and collect them."""
    with warnings_heard(lambda text: typer.echo(f"Warning: {text}", err=True)) as found:
        yield found


@contextmanager
def sampling(label: str, hidden: bool) -> Generator[tuple[list[str], Advance]]:
    """Show a bar and print warnings.

    Yields:
        The list of warnings, and the function of `progress_bar`.
    """
    with warnings_printed() as warnings, progress_bar(label, hidden) as advance:
        yield warnings, advance


@contextmanager
def progress_bar(label: str, hidden: bool) -> Generator[Advance]:
    """Show a bar on stderr, if it is a terminal.

    Yields:
        A function that takes how much is done, and the total.
    """
    if hidden or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich import progress
    from rich.console import Console

    columns = (*progress.Progress.get_default_columns(), progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
