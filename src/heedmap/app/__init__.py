"""The web app: generate, edit and inspect in the browser, on the machine that runs it.

    with app.Application(app.Options()) as made:      # made.gate is an ASGI application
        ...
    app.serve(app.Options(), host="127.0.0.1", port=7860)

One implementation: the jobs call what the command line calls, and give the same bytes. Nothing
heavy is imported until an application is made.
"""

import asyncio
import contextlib
import ctypes
import ipaddress
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from heedmap.app.limits import Limits
from heedmap.errors import ArgumentError, HeedmapError, quoted

if TYPE_CHECKING:
    from heedmap.app.gate import Gate

__all__ = ["Application", "Limits", "Options", "is_loopback", "serve"]


_ARENAS = -8  # glibc's M_ARENA_MAX


@dataclass(frozen=True)
class Options:
    """What the operator decides.

    Attributes:
        out: the folder of the results.
        host: the address that the server is bound to.
        names: under which others ask this server, such as that of a server with TLS before it. If
            there are any, or it is bound to an address of this machine alone, it answers to these
            names, that address and those of this machine, and to no other.
        models: offered besides the embedded one. Others may be typed only where the server is bound
            to an address of this machine alone, and has no name for others: a folder's name tells
            what is on it.
        users: passwords by name; everybody is let in if there are none.
        limits: what visitors may ask for.
        device: as in `heedmap.load`.
        dtype: as in `heedmap.load`.
    """

    out: Path = Path("outputs/app")
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    device: str = "auto"
    dtype: str = "auto"

    @property
    def is_private(self) -> bool:
        """Whether only this machine is served."""
        return is_loopback(self.host) and not self.names

    @property
    def hosts(self) -> list[str] | None:
        """The names to which the server answers; None for any."""
        if not (self.names or is_loopback(self.host)):
            return None
        own = ("localhost", "127.0.0.1", "::1", self.host)
        return sorted({name.lower() for name in (*own, *self.names)})


class Application:
    """The app as a whole; a context manager, at whose end all jobs end.

    Raises:
        HeedmapError: if Gradio is not installed.
    """

    gate: "Gate"

    def __init__(self, options: Options) -> None:
        try:
            # Gradio reads these itself: nothing is sent to its makers, and no table of all events
            # is computed anew after each event.
            os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
            os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(2**31)
            import gradio  # noqa: F401
        except ImportError as error:
            raise HeedmapError(
                "The app needs Gradio, which is not installed: pip install 'heedmap[app]'"
            ) from error
        from heedmap.app.jobs import Line
        from heedmap.app.results import Shelf
        from heedmap.app.workshop import Workshop

        self.workshop = Workshop(
            Shelf(options.out, options.limits.results),
            options.limits,
            named=options.models,
            free=options.is_private,
            device=options.device,
            dtype=options.dtype,
        )
        self.line = Line(options.limits.waiting)
        # Everything that visitors send and have unpacked is in here, and goes with it.
        self._uploads = tempfile.TemporaryDirectory(
            prefix="heedmap-uploads-", ignore_cleanup_errors=True
        )
        try:
            self.gate = self._built(options)
        except BaseException:
            self.close()
            raise

    def _built(self, options: Options) -> "Gate":
        import gradio as gr
        from gradio.routes import App

        from heedmap.app import keeping, tabs, theme
        from heedmap.app.forms import Sessions
        from heedmap.app.gate import Call, Gate
        from heedmap.app.opening import Desk
        from heedmap.app.pages import Pages
        from heedmap.app.uploads import Uploads

        folder = Path(self._uploads.name)
        uploads, pages = Uploads(folder, options.limits.upload), Pages(folder / "pages")
        desk = Desk(uploads, pages, folder, options.limits)
        guests = keeping.Guests()

        async def mounted() -> tuple[App, gr.Blocks]:
            page = tabs.build(self.workshop, Sessions(self.line, guests.listening), desk)
            inner = App(docs_url=None, redoc_url=None, openapi_url=None)
            gr.mount_gradio_app(
                inner,
                page,
                path="/",
                server_name=options.host,
                footer_links=[],
                run_history=False,
                show_error=False,
                ssr_mode=False,
                enable_monitoring=False,
                mcp_server=False,
                pwa=False,
                theme=theme.theme(),
                css=theme.style(),
                app_kwargs={"docs_url": None, "redoc_url": None},
            )
            guests.bound(page)
            return inner, page

        # Outside of an event loop Gradio makes loops that nobody closes; this one ends with its
        # thread, and does no harm where the caller runs one.
        with ThreadPoolExecutor(1) as thread:
            inner, self._page = thread.submit(asyncio.run, mounted()).result()
        calls = {n: Call(one.queue, len(one.inputs)) for n, one in self._page.fns.items()}
        return Gate(
            inner,
            self.workshop.shelf,
            uploads,
            pages,
            calls=calls,
            users=options.users,
            hosts=options.hosts,
            guests=guests,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the jobs, and delete the uploads."""
        self.line.close()
        self._uploads.cleanup()


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """A socket for the server; 0 is any port that is free.

    Raises:
        ArgumentError: if the port is in use, or the address is not one, or not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, ValueError) as error:  # such as a name with a NUL, or of too many letters
        raise ArgumentError(
            f"The host {quoted(host)} is not known: expected an address."
        ) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise ArgumentError(
            f"Port {port} of {host} cannot be used ({error.strerror}): choose another with --port; "
            "--port 0 takes any that is free."
        ) from error
    return bound


def serve(options: Options, *, port: int = 7860, ready: Callable[[str], Any] = print) -> None:
    """Serve the app until it is interrupted.

    Args:
        options: what the operator decides.
        port: of the address; 0 is any that is free.
        ready: called with the app's URL when it answers.

    Raises:
        HeedmapError: if Gradio is not installed, or the port is in use.
        KeyboardInterrupt: when it was interrupted, after all has come to its end.
    """
    _share_memory()
    with bind(options.host, port) as bound, Application(options) as made:
        from uvicorn import Server

        from heedmap.app.wire import configured

        server = Server(configured(made.gate))
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [bound]}, name="heedmap-server", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                thread.join(0.05)
                if not thread.is_alive():
                    raise HeedmapError("The server could not start: the log above says why.")
            ready(address(options.host, bound.getsockname()[1]))
            while thread.is_alive():
                thread.join(0.5)
        finally:
            server.should_exit = True
            with contextlib.suppress(KeyboardInterrupt):
                made.line.close()
                thread.join(3)


def _share_memory() -> None:
    """Let the threads of this process take from two heaps, where the system's library is glibc.

    By default each thread gets its own, and what one has freed is of no use to another: after a
    load of many visitors 50 MB lay idle.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_ARENAS, 2)


def address(host: str, port: int) -> str:
    """The URL of the app; that of this machine where it is bound to all its addresses."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
