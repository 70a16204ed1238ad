"""`heedmap app`: heedmap in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from heedmap.cli.options import DeviceFlag, DtypeFlag, grouped
from heedmap.cli.parsing import parse_model
from heedmap.errors import ArgumentError
from heedmap.options import LoadOptions


@grouped
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            parser=parse_model,
            metavar="MODEL",
            help="A folder or a hub id to offer besides the embedded model; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results. Default: outputs/app.")
    ] = None,
    *,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen at. Default: this machine alone."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", help="Port. Default: the first free one from 7860 on."),
    ] = None,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER:PASSWORD",
            envvar="HEEDMAP_AUTH",
            help="Ask for a name and a password; may be repeated.",
        ),
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="Let Gradio open a public address for the app.")
    ] = False,
    device: DeviceFlag = LoadOptions.device,
    dtype: DtypeFlag = LoadOptions.dtype,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in this machine's browser.")
    ] = False,
) -> None:
    """Generate, edit and inspect in the browser. Ctrl-C ends it."""
    users = [tuple(one.split(":", 1)) for one in auth or ()]
    if any(len(user) != 2 or not all(user) for user in users):
        raise ArgumentError("auth is not USER:PASSWORD")
    from heedmap.app import launch

    launch(
        model,
        out,
        host=host,
        port=port,
        auth=users,  # pyright: ignore[reportArgumentType]
        share=share,
        open_browser=browser,
        ready=lambda url: typer.echo(f"heedmap is at {url}\nCtrl-C ends it."),
        device=device,
        dtype=dtype,
    )
