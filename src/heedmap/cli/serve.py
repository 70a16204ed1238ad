"""`heedmap app`: the app in the browser."""

import os
import signal
import sys
from typing import Annotated

import typer

from heedmap.cli.console import EMBEDDED, Task, command
from heedmap.errors import ArgumentError

_MODEL = "A model to offer besides the embedded ones. Repeatable."
_AUTH = (
    "Require a password. Repeatable. HEEDMAP_AUTH does the same and hides the password from the "
    "process list."
)
_OUT = "outputs/app; it may hold results. Not with --host, --auth or --share"
_HOST = "0.0.0.0 serves other machines. Default: this machine alone."


@command(model=EMBEDDED, out=_OUT, without="json quiet")
def serve(
    task: Task,
    *,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", metavar="NAME", help=_MODEL)
    ] = None,
    host: Annotated[str | None, typer.Option(help=_HOST)] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Default: the first free one from 7860."),
    ] = None,
    auth: Annotated[
        list[str] | None,
        typer.Option(metavar="USER:PASSWORD", envvar="HEEDMAP_AUTH", help=_AUTH),
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="Open a public address at gradio.live.")
    ] = False,
) -> None:
    """Generate, edit and inspect in the browser.

    Only reachable from this machine unless --host or --share is given, or the variable
    GRADIO_SERVER_NAME is set. Ctrl-C ends it.
    """
    parts = [text.partition(":") for text in auth or ()]
    users = [(name, password) for name, _, password in parts]
    if not all(name and password for name, password in users):
        raise ArgumentError("auth (or HEEDMAP_AUTH) is not USER:PASSWORD")
    # End as after Ctrl-C: temporary results are deleted.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
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
    sys.stdout.flush()
    os._exit(0)  # Python would wait for the threads of PyTorch and Gradio
