"""`heedmap app`: the app in the browser."""

import os
from typing import Annotated

import typer

from heedmap.cli.console import EMBEDDED, Task, command
from heedmap.errors import ArgumentError


@command(model=EMBEDDED, out="outputs/app", without="quiet json")
def serve(
    task: Task,
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="A model to offer besides the embedded one. Repeatable."
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="0.0.0.0 serves other machines. Default: this machine alone.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: the first free one from 7860.")
    ] = None,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER:PASSWORD",
            envvar="HEEDMAP_AUTH",
            help="Require a password. Repeatable. HEEDMAP_AUTH keeps it out of the process list.",
        ),
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="Open a public address at gradio.live.")
    ] = False,
) -> None:
    """Generate, edit and inspect in the browser.

    Serves this machine alone unless --host or --share is given. Ctrl-C ends it.
    """
    parts = [text.partition(":") for text in auth or ()]
    users = [(name, password) for name, _, password in parts]
    if not all(name and password for name, password in users):
        raise ArgumentError("auth (or HEEDMAP_AUTH) has no password: expected USER:PASSWORD")
    os.environ.setdefault("TQDM_DISABLE", "1")
    from heedmap.app import launch

    launch(
        model,
        task.out,
        host=host,
        port=port,
        auth=users,
        share=share,
        open_browser=task.open_,
        device=task.device,
        dtype=task.dtype,
    )
