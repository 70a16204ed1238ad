"""The verbs of the command line, put together; only Typer is imported for it."""

import os
import signal
import sys
import warnings
from io import TextIOWrapper
from typing import Annotated

import typer

from heedmap.cli.ablating import ablate
from heedmap.cli.comparing import compare
from heedmap.cli.editing import edit
from heedmap.cli.explaining import explain
from heedmap.cli.generating import generate
from heedmap.cli.grids import grid
from heedmap.cli.inspecting import inspect
from heedmap.cli.layers import layers
from heedmap.cli.locating import locate
from heedmap.cli.repeating import repeat
from heedmap.cli.segmenting import segment
from heedmap.cli.serving import serve
from heedmap.cli.usage import Verb, Verbs, own_name
from heedmap.cli.words import words

SETTINGS = {"max_content_width": 120, "token_normalize_func": own_name}
"""The widest that help may be, and how the names of options are read."""

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # frames would leave a third of the line for an option's text
    context_settings={"help_option_names": ["-h", "--help"], **SETTINGS},
)


def print_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        import heedmap

        typer.echo(f"heedmap {heedmap.__version__}")
        raise typer.Exit


@app.callback()
def heedmap_(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """See where each word of a prompt acts in a Stable Diffusion picture."""


for verb in (
    generate,
    edit,
    grid,
    locate,
    repeat,
    inspect,
    segment,
    explain,
    ablate,
    compare,
    words,
    layers,
):
    app.command(cls=Verb, context_settings=SETTINGS)(verb)
app.command("app", cls=Verb, context_settings=SETTINGS)(serve)


def fill_closed_streams() -> None:
    """Let what is printed go nowhere where a stream was closed, as by `>&-`.

    Else the next file that is opened, one of the user's, would get its number, and whatever a
    library prints past Python.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    if not closed:
        return
    while (last := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(last)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if name in closed:  # as Python makes them, and like these for good
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def run() -> None:
    """Read what was typed, and run the verb."""
    # What the libraries log is for programmers; errors come through as exceptions.
    for library in ("DIFFUSERS", "TRANSFORMERS"):
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    # Sheets are drawn without one; a name that matplotlib does not know would end its import.
    os.environ.pop("MPLBACKEND", None)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a prompt may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="heedmap")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done and told: Python shuts down
