"""`heedmap app`: the same in the browser."""

import ipaddress
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from heedmap.app.options import Limits, Options
from heedmap.checks import is_unicode
from heedmap.cli.console import open_in_browser, printable
from heedmap.cli.options import DeviceFlag, DtypeFlag, grouped, out_option
from heedmap.cli.parsing import parse_model
from heedmap.errors import ArgumentError, quoted
from heedmap.options import LoadOptions

_MEBIBYTE = 2**20  # bytes
_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class ListenFlags:
    """Where the app is, and whom it lets in."""

    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="To listen at; 0.0.0.0 lets other machines in.")
    ] = Options.host
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Under which others ask for it, such as that of a server with TLS before it; may "
            "be repeated. To other names it does not answer then.",
        ),
    ] = None
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="0 for any that is free.")
    ] = Options.port
    auth: Annotated[
        list[str] | None,
        typer.Option(
            "--auth",
            metavar="USER:PASSWORD",
            help="Let in only who knows it; may be repeated. Others on this machine see it here: "
            "HEEDMAP_AUTH in the environment (one a line) does the same unseen.",
        ),
    ] = None


@dataclass(frozen=True)
class LimitFlags:
    """What a visitor may ask for at most."""

    max_size: Annotated[
        int, typer.Option(min=8, max=2**14, metavar="PIXELS", help="On a side of a picture.")
    ] = Limits.size
    max_steps: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Of one picture.")
    ] = Limits.steps
    max_upload: Annotated[
        int, typer.Option(min=1, max=2**20, metavar="MIB", help="Of a run's zip that is opened.")
    ] = Limits.upload // _MEBIBYTE
    max_results: Annotated[
        int,
        typer.Option(
            min=1,
            max=10**6,
            metavar="N",
            help="Kept in --out; beyond, no more are drawn, or, where each visitor sees their own, "
            "the oldest are deleted.",
        ),
    ] = Limits.results
    max_cells: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Edits of one grid.")
    ] = Limits.cells

    def limits(self) -> Limits:
        """As the app has them."""
        return Limits(
            size=self.max_size,
            steps=self.max_steps,
            upload=self.max_upload * _MEBIBYTE,
            results=self.max_results,
            cells=self.max_cells,
        )


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
    out: Annotated[Path, out_option("FOLDER", "Where the results go.")] = Options.out,
    *,
    at: ListenFlags,
    bounds: LimitFlags,
    device: DeviceFlag = LoadOptions.device,
    dtype: DtypeFlag = LoadOptions.dtype,
    gallery: Annotated[
        Literal["auto", "all", "own"],
        typer.Option(
            help="Who sees a result: all who are let in, or its own visitor. auto: all, where only "
            "this machine is served and no password asked for."
        ),
    ] = Options.gallery,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in this machine's browser.")
    ] = False,
) -> None:
    """Generate, edit and inspect in the browser.

    Serves this machine alone unless --host or --name says otherwise. Ctrl-C ends it.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # the libraries' bars are for a single user
    with _leaving():
        from heedmap.app import application
        from heedmap.files import writing

        writing.check_place(out)
        options = Options(
            out=out,
            host=at.host,
            port=at.port,
            names=parse_hosts(at.name or []),
            models=tuple(model or ()),
            users=parse_users([*(at.auth or ()), *_told_unseen(os.environ.get("HEEDMAP_AUTH"))]),
            limits=bounds.limits(),
            loading=LoadOptions(device=device, dtype=dtype),
            gallery=gallery,
        )

        def ready(url: str, private: bool) -> None:
            if not (options.users or private):
                where = " or ".join(options.names) or printable(at.host)
                who = f"everybody who reaches {where} can use this app"
                typer.echo(f"Warning: {who}: --auth asks for a password", err=True)
            typer.echo(f"heedmap is at {url}\nResults go to {printable(str(out))}. Ctrl-C ends it.")
            if browser:
                open_in_browser(url, url)

        application.serve(options, ready=ready)


@contextmanager
def _leaving() -> Iterator[None]:
    """End the block at a signal as at Ctrl-C, and then the process, whatever is still running.

    The loading of a model cannot be interrupted, and a thread that computes while Python shuts down
    would abort it: once everything is cleaned up, nothing is waited for.
    """
    came: list[tuple[int, float]] = []

    def end(number: int, _: Any) -> None:
        # A second Ctrl-C at once does not interrupt the cleaning up; a later one is meant to.
        if not came or time.monotonic() - came[-1][1] > 5:
            came.append((number, time.monotonic()))
            raise KeyboardInterrupt

    usual = (signal.SIG_DFL, signal.default_int_handler)
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    former = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) in usual}
    for number in former:
        signal.signal(number, end)
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError, ValueError):  # nobody may be there to read it
            sys.stdout.flush()
            sys.stderr.flush()
        if came and came[0][0] != signal.SIGINT:
            signal.signal(came[0][0], signal.SIG_DFL)
            signal.raise_signal(came[0][0])
        if came:  # not through Python's own end, where one more Ctrl-C would be a crash
            os._exit(130)
        raise
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def parse_hosts(texts: list[str]) -> tuple[str, ...]:
    """Names of a server, as a browser sends them; ArgumentError if one is not a name."""
    for text in texts:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            if not _NAME.fullmatch(text):
                raise ArgumentError(
                    f"--name is {quoted(text)}: expected a host's name, such as app.example, "
                    "without https:// and without a port"
                ) from None
    return tuple(dict.fromkeys(text.lower() for text in texts))


def _told_unseen(text: str | None) -> list[str]:
    """The lines of HEEDMAP_AUTH; one that was meant to hold a password must not mean none."""
    lines = [] if text is None else [line for line in text.split("\n") if line.strip()]
    if text is not None and not lines:
        raise ArgumentError("HEEDMAP_AUTH is empty: write USER:PASSWORD, or unset it")
    return lines


def parse_users(texts: list[str]) -> dict[str, str]:
    """Passwords by name, from `USER:PASSWORD`; an error about a wrong one quotes no part of it."""
    users: dict[str, str] = {}
    for text in texts:
        if not is_unicode(text):
            raise ArgumentError("--auth, or HEEDMAP_AUTH, is not valid UTF-8: write it anew")
        name, colon, password = text.strip().partition(":")
        if not (name and colon and password):
            raise ArgumentError("--auth, or HEEDMAP_AUTH, is not USER:PASSWORD: write both")
        if name in users:
            raise ArgumentError(f"--auth, or HEEDMAP_AUTH, has {name!r} twice: name each once")
        users[name] = password
    return users
