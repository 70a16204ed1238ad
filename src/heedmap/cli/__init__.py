"""The command line: each command calls the Python function of the same name.

A command imports its modules when it runs: `--help` is instant, `words` loads no torch, and
`inspect` neither diffusers nor, for the table alone, matplotlib. An error ends in one sentence and
exit code 2, Ctrl-C in exit code 130.
"""

import gc
import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heedmap.cli import dataset, edit, generate, inspect, repeat, serve, sweep
from heedmap.cli.words import layers, words
from heedmap.errors import HeedmapError


class Commands(TyperGroup):
    """The commands; a request that cannot be met ends in one sentence on stderr."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except HeedmapError as error:
            message = f"Error: {error}"
            code = 2
        except KeyboardInterrupt:
            message = "Interrupted."
            code = 130
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            message = "Error: out of memory: try a smaller --size or --dtype float16"
            code = 2
        typer.echo(message, err=True)
        raise typer.Exit(code)


DIFFUSERS_NAMES = {
    "num-inference-steps": "steps",
    "guidance-scale": "guidance",
    "negative-prompt": "negative",
}


def option_name(name: str) -> str:
    """Read the name of an option: with underscores for dashes, or as in diffusers."""
    name = name.replace("_", "-")
    return DIFFUSERS_NAMES.get(name, name)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than all else
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "token_normalize_func": option_name,
    },
)


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        import heedmap

        typer.echo(f"heedmap {heedmap.__version__}")
        raise typer.Exit


@app.callback()
def heedmap_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """See where a text-to-image model reads each word of a prompt, and edit the image.

    \b
    heedmap generate "a red house next to a blue tree" --seed 7 --open
    heedmap edit "a red house" "a blue house" --seed 3 --open
    heedmap generate --help

    No model is downloaded: a small Stable Diffusion is the default.
    """  # noqa: D301  # to Typer, this character means: keep the lines


for command in (
    generate.generate,
    edit.edit,
    edit.grid,
    generate.locate,
    inspect.inspect,
    inspect.segment,
    dataset.dataset,
    repeat.explain,
    repeat.ablate,
    repeat.repeat,
    words,
    layers,
    sweep.sweep,
):
    app.command()(command)
app.command("app")(serve.serve)


def main() -> None:
    """Run the command line."""
    # At 700, importing torch and diffusers takes twice as long.
    gc.set_threshold(100_000)
    # Threads that wait without rest take the processor from other work, and from each other.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is imported
    for library in ("DIFFUSERS", "TRANSFORMERS"):  # their logs are for programmers
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    app(prog_name="heedmap")
