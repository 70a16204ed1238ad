"""The app as a whole: its parts put together, and served until it is interrupted."""

import asyncio
import contextlib
import ctypes
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from heedmap.app.options import Options
from heedmap.errors import ArgumentError, HeedmapError, quoted

if TYPE_CHECKING:
    from heedmap.app.connections import Server
    from heedmap.app.routes import Routes

_ARENAS = -8  # glibc's M_ARENA_MAX
_PATIENCE = 10.0  # seconds; the server is given fewer to end (`connections.configured`)


class Application:
    """The app as a whole; a context manager, at whose end all jobs end.

    Raises:
        HeedmapError: if Gradio is not installed.
    """

    routes: "Routes"

    def __init__(self, options: Options) -> None:
        try:
            # Gradio reads these itself: nothing is sent to its makers, and no table of all events
            # is computed anew after each event.
            os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
            os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(2**31)
            import gradio  # noqa: F401
        except ImportError as error:
            raise HeedmapError(
                "the app needs Gradio, which is not installed: pip install 'heedmap[app]'"
            ) from error
        from heedmap.app.jobs import JobQueue
        from heedmap.app.result_store import ResultStore
        from heedmap.app.worker import Worker

        store = ResultStore(options.out, options.limits.results, shared=options.is_shared)
        self.worker = Worker(store, options)
        self.queue = JobQueue(options.limits.waiting)
        # Everything that visitors send and have unpacked is in here, and goes with it.
        self._uploads = tempfile.TemporaryDirectory(
            prefix="heedmap-uploads-", ignore_cleanup_errors=True
        )
        try:
            self.routes = self._built(options)
        except BaseException:
            self.close()
            raise

    def _built(self, options: Options) -> "Routes":
        import gradio as gr
        from gradio.routes import App

        from heedmap.app import tabs, theme
        from heedmap.app.forms import VisitorJobs
        from heedmap.app.gradio_filter import PageCall
        from heedmap.app.routes import Routes
        from heedmap.app.sessions import Sessions
        from heedmap.app.upload_pages import UploadPages
        from heedmap.app.upload_reader import UploadReader
        from heedmap.app.uploads import Uploads

        folder = Path(self._uploads.name)
        uploads, pages = Uploads(folder, options.limits.upload), UploadPages(folder / "pages")
        reader = UploadReader(uploads, pages, folder, options.limits)
        sessions = Sessions()

        async def mounted() -> tuple[App, gr.Blocks]:
            page = tabs.build(self.worker, VisitorJobs(self.queue, sessions.listening), reader)
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
                js=theme.beside_this("frames.js"),
                app_kwargs={"docs_url": None, "redoc_url": None},
            )
            sessions.bound(page)
            return inner, page

        # Outside of an event loop Gradio makes loops that nobody closes; this one ends with its
        # thread, and does no harm where the caller runs one.
        with ThreadPoolExecutor(1) as thread:
            inner, self._page = thread.submit(asyncio.run, mounted()).result()
        calls = {n: PageCall(one.queue, len(one.inputs)) for n, one in self._page.fns.items()}
        return Routes(
            inner,
            self.worker.store,
            uploads,
            pages,
            calls=calls,
            users=options.users,
            hosts=options.hosts,
            sessions=sessions,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the jobs, and delete the uploads."""
        self.queue.close()
        self._uploads.cleanup()


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
        raise ArgumentError(f"the host {quoted(host)} is not known: expected an address") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise ArgumentError(
            f"port {port} of {host} cannot be used ({error.strerror}): choose another with --port; "
            "--port 0 takes any that is free"
        ) from error
    return bound


def serve(options: Options, *, ready: Callable[[str, bool], Any] | None = None) -> None:
    """Serve the app until it is interrupted.

    Args:
        options: what the operator decides.
        ready: called with the app's URL, and whether it serves this machine alone, when it
            answers. Left out: the URL is printed.

    Raises:
        HeedmapError: if Gradio is not installed, the port is in use, or a model is not there.
        KeyboardInterrupt: when it was interrupted, after all has come to its end.
    """
    from heedmap.models import pipelines

    for model in options.models:  # else whoever chooses it would be the first to hear
        pipelines.check_name(model)
    _share_memory()
    with contextlib.ExitStack() as held:
        bound = held.enter_context(bind(options.host, options.port))
        options = replace(options, bound=bound.getsockname()[0])
        made = held.enter_context(Application(options))
        from heedmap.app.connections import Server, configured

        server = Server(configured(made.routes))
        # A descriptor of the server's own: it may still listen when this one is closed.
        thread = threading.Thread(
            target=_run, args=(server, bound.dup()), name="heedmap-server", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                thread.join(0.05)
                if not thread.is_alive():
                    raise HeedmapError("the server could not start: the log above says why")
            url = address(options.host, bound.getsockname()[1])
            print(url) if ready is None else ready(url, options.is_private)
            while thread.is_alive():
                thread.join(0.5)
        finally:
            server.should_exit = True
            with contextlib.suppress(KeyboardInterrupt):
                made.queue.close()
                thread.join(_PATIENCE)


def _run(server: "Server", own: socket.socket) -> None:
    with own:
        server.run(sockets=[own])


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
