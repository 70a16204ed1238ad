"""The command line: thin, one function for each verb.

Only Typer is imported here; a verb imports what it uses when it runs, so that `--help` is instant,
`words` loads no torch and `inspect` no diffusers. A `HeedmapError` ends in its sentence and exit
code 2, an interrupt in 130.
"""

import os
import sys
import warnings
from inspect import signature
from io import TextIOWrapper
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from heedmap.cli.comparing import compare
from heedmap.cli.console import fail
from heedmap.cli.editing import edit
from heedmap.cli.explaining import explain
from heedmap.cli.generating import generate
from heedmap.cli.grids import grid
from heedmap.cli.inspecting import inspect
from heedmap.cli.layers import layers
from heedmap.cli.parsing import Refused, check_option
from heedmap.cli.repeating import repeat
from heedmap.cli.serving import serve
from heedmap.cli.words import words
from heedmap.errors import ArgumentError, HeedmapError

__all__ = ["app", "main"]


class Verb(TyperCommand):
    """A verb; what an option cannot be is said as it is of an argument in Python."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; whatever reads them for Typer words its refusals in its own way."""
        written = [*args]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if (said := cast(Any, error.param)) is None:
                raise
            option = max(said.opts, key=len)
            option = option if option.startswith("-") else said.metavar or option
            if isinstance(error, Refused):
                raise ArgumentError(f"{option} is {error.message}") from error
            given = self.make_parser(ctx).parse_args(written)[0].get(said.name)
            verb: Any = self.callback
            check_option(option, given, signature(verb).parameters[said.name].annotation)
            raise


class Verbs(TyperGroup):
    """The verbs; whatever a user can cause ends in one sentence on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except HeedmapError as error:
            fail(str(error))
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # `| head`: Typer ends it quietly
                raise
            reason = error.strerror or str(error) or type(error).__name__
            fail(f"{reason}: {os.fspath(error.filename)}" if error.filename else reason)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "out of memory" not in str(error).lower():
                raise
            fail("out of memory: try a smaller --size or --count, or --dtype float16")


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # frames would leave a third of the line for an option's text
    context_settings={"help_option_names": ["-h", "--help"]},
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


for verb in (generate, edit, grid, repeat, inspect, explain, compare, words, layers):
    app.command(cls=Verb)(verb)
app.command("app", cls=Verb)(serve)


def main() -> None:
    """Run the command line."""
    # What the libraries log is for programmers; errors come through as exceptions.
    for library in ("DIFFUSERS", "TRANSFORMERS"):
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a prompt may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="heedmap")
