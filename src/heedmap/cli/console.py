"""What a person sees: tables, bars, JSON, and errors of one sentence.

Results go to stdout, progress and errors to stderr.
"""

import os
import sys
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import NoReturn

import typer

from heedmap.cli.interrupts import kept
from heedmap.cli.tongue import TYPED
from heedmap.errors import HeedmapError, sentence_of, warnings_heard


@contextmanager
def failures_told() -> Generator[None]:
    """Whatever a user can cause within the block ends in a sentence on stderr: 2, or 130."""
    try:
        yield
    except KeyboardInterrupt as stop:
        say(printable(kept(stop)), err=True)
        raise typer.Exit(130) from None
    except HeedmapError as error:
        fail(sentence_of(error.said, TYPED))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # `| head`: Typer ends it quietly
            raise
        reason = error.strerror or str(error) or type(error).__name__
        fail(f"{reason}: {os.fspath(error.filename)}" if error.filename else reason)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "out of memory" not in str(error).lower():
            raise
        fail("out of memory: try a smaller --size or --count, or --dtype float16")


def fail(sentence: str) -> NoReturn:
    """Say what went wrong, in one line on stderr, and leave with exit code 2."""
    say(f"Error: {printable(' '.join(sentence.split()))}", err=True, red="Error:")
    raise typer.Exit(2)


@contextmanager
def warnings_told() -> Generator[list[str]]:
    """Say on stderr what heedmap warns of, when it does; the list is that of `warnings_heard`."""

    def tell(one: str) -> None:
        say(f"Warning: {printable(one)}", err=True)

    with warnings_heard(tell, TYPED) as said:
        yield said


def open_in_browser(address: str, what: str) -> None:
    """Open an address in this machine's browser; say where it is if there is none."""
    import webbrowser

    try:
        opened = webbrowser.open(address)
    except (webbrowser.Error, OSError):  # one that is named in BROWSER, and not there
        opened = False
    if not opened:
        say(printable(f"No browser was found: open {what} in one yourself."), err=True)


def printable(text: str) -> str:
    """Text with its control characters spelled out: a prompt must not steer the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def dumps(data: Mapping[str, object]) -> str:
    """JSON on one line."""
    import json  # not at the top: there `json` is the name of an option

    return json.dumps(data)


def print_json(data: Mapping[str, object]) -> None:
    """Print one JSON object."""
    typer.echo(dumps(data))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, such as the names of folders."""
    for line in lines:
        typer.echo(printable(line))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    *,
    right: Container[str] = ("#",),
    shorter: Sequence[Sequence[str]] | None = None,
) -> None:
    """Print a table: framed to fit at a terminal, plain and whole in a pipe.

    Args:
        columns: their headings.
        rows: a cell for each column.
        title: a line above.
        right: which columns stand at the right.
        shorter: what to print instead of `rows` where the terminal is too narrow for these; the
            last columns may be left out.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width, height = get_terminal_size()  # rich takes 80 columns where a terminal knows no colours
    console = Console(highlight=False, width=width, height=height)
    framed = console.is_terminal
    if not framed:
        console.width = 1_000_000  # nothing is wrapped: a program may read it

    def room(rows: Sequence[Sequence[str]], most: Callable[[str], int]) -> list[int]:
        """Of each column, the most that a heading or a cell takes."""
        return [max(map(most, column)) for column in zip(columns, *rows, strict=True)]

    around = 2 + 2 * len(columns)  # beside the columns
    cells = [[printable(cell) for cell in row] for row in rows]
    if framed and shorter is not None and sum(room(cells, _long)) + around > console.width:
        cells = [[printable(cell) for cell in row] for row in shorter]
        columns = columns[: len(cells[0])] if cells else columns
        around = 2 + 2 * len(columns)
    if title:
        say(printable(title), bold=True)
    widths: Sequence[int | None] = [None] * len(columns)
    if framed:
        found = narrowed(room(cells, _long), room(cells, _longest_word), console.width - around)
        if found is None:
            for row in cells:
                beside = zip(columns[1:], row[1:], strict=True)
                say(" · ".join([row[0], *(f"{name} {cell}" for name, cell in beside)]), indent="  ")
            return
        widths = [found[0] + 1, *found[1:]]  # rich forgets that the first has a padding more
    table = Table(box=box.SIMPLE_HEAD if framed else None, pad_edge=framed, collapse_padding=framed)
    for column, width in zip(columns, widths, strict=True):
        justify = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Widths of columns that have room together, the one with most to spare narrowed first.

    Args:
        widths: that they would have.
        least: of each its longest word; within one no line is broken.
        room: for all of them.

    Returns:
        None where there is no room for the longest words.
    """
    found = [*widths]
    if sum(least) > room:
        return None
    while sum(found) > room:
        spare = [width - word for width, word in zip(found, least, strict=True)]
        found[spare.index(max(spare))] -= 1
    return found


def _long(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(_long, text.split()), default=0)


def say(
    text: str, *, err: bool = False, indent: str = "", bold: bool = False, red: str = ""
) -> None:
    """Print a line: at a terminal broken between words, in a pipe whole.

    Args:
        text: what is printed.
        err: whether on stderr.
        indent: before all lines but the first.
        bold: whether in bold, where there are colours.
        red: what it begins with and is red there.
    """
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        from textwrap import wrap

        columns = get_terminal_size().columns
        lines = wrap(
            text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        text = "\n".join(lines)
        if not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":  # see no-color.org
            marked = typer.style(red, fg="red", bold=True) if red else ""
            text = typer.style(text, bold=True) if bold else marked + text.removeprefix(red)
    typer.echo(text, err=err)


def print_files(folder: str, files: Mapping[str, str]) -> None:
    """Print what was saved in a folder: each file, by its path, and what it is."""
    rows = [(Path(file).relative_to(folder).as_posix(), what) for file, what in files.items()]
    print_table(("file", "what it is"), rows, title=folder)


@contextmanager
def loading(model: str | None, *, hidden: bool) -> Generator[None]:
    """Show that a model is being loaded: by a bar, or by the hub's own bars while it downloads."""
    local = model is None or os.path.exists(model)  # whatever length its name may have
    if hidden or local:
        os.environ.setdefault("TQDM_DISABLE", "1")
    with progress_bar("Loading the model", hidden=hidden or not local):
        yield


@contextmanager
def progress_bar(label: str, *, hidden: bool) -> Generator[Callable[[int, int], None]]:
    """Show a bar on stderr while the block runs, gone when it is done.

    Yields:
        A function to be called with how much is done, and how much there is in all.
    """
    if hidden:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    # How much there is, and so how long it takes, is not known yet: those columns stay empty.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None, count="", left="")

        def advance(done: int, total: int) -> None:
            count = f"{done}/{total}"
            progress.update(task, completed=done, total=total, count=count, left="left")

        yield advance
