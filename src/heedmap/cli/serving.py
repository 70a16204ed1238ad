"""`heedmap app`: the same in the browser."""

import os
from pathlib import Path
from typing import Annotated

import typer

from heedmap.cli.console import printable
from heedmap.cli.options import Device, Dtype
from heedmap.errors import ArgumentError


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A folder or a hub id to offer besides the embedded model; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the results go.")
    ] = Path("outputs/app"),
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="To listen at; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="0 for any that is free.")
    ] = 7860,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            "--auth",
            metavar="USER:PASSWORD",
            help="Let in only who knows it; may be repeated. Others on this machine see it here: "
            "HEEDMAP_AUTH in the environment (one a line) does the same unseen.",
        ),
    ] = None,
    max_size: Annotated[
        int, typer.Option(min=8, metavar="PIXELS", help="On a side of a picture.")
    ] = 1024,
    max_steps: Annotated[int, typer.Option(min=1, metavar="N", help="Of one picture.")] = 100,
    max_upload: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Of a run's zip that is opened.")
    ] = 64,
    max_results: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Kept in --out; beyond, the oldest are deleted that hold no file of yours.",
        ),
    ] = 500,
    device: Device = "auto",
    dtype: Dtype = "auto",
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in this machine's browser.")
    ] = False,
) -> None:
    """Generate, edit and inspect in the browser.

    Serves this machine alone unless --host says otherwise. Ctrl-C ends it.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # the bars of the libraries below are for one user
    from heedmap import app, saving

    saving.check_place(out)
    options = app.Options(
        out=out,
        host=host,
        models=tuple(model or ()),
        users=parse_users([*(auth or ()), *os.environ.get("HEEDMAP_AUTH", "").splitlines()]),
        limits=app.Limits(
            size=max_size, steps=max_steps, upload=max_upload * 2**20, results=max_results
        ),
        device=device,
        dtype=dtype,
    )

    def ready(url: str) -> None:
        if not (options.users or app.is_loopback(host)):
            who = f"everybody who reaches {printable(host)} can use this app"
            typer.echo(f"Warning: {who}: --auth asks for a password", err=True)
        typer.echo(f"heedmap is at {url}\nResults go to {printable(str(out))}. Ctrl-C ends it.")
        if browser:
            import webbrowser

            webbrowser.open(url)

    app.serve(options, port=port, ready=ready)


def parse_users(texts: list[str]) -> dict[str, str]:
    """Passwords by name, from `USER:PASSWORD`; a sentence about one that is none tells no part."""
    users: dict[str, str] = {}
    for text in texts:
        if not text.strip():
            continue
        name, colon, password = text.strip().partition(":")
        if not (name and colon and password):
            raise ArgumentError("--auth, or HEEDMAP_AUTH, is not USER:PASSWORD: write both")
        if name in users:
            raise ArgumentError(f"--auth, or HEEDMAP_AUTH, has the user {name!r} twice")
        users[name] = password
    return users
