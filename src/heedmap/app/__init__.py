"""The web app: heedmap's functions in the browser, on Gradio.

from heedmap.app import launch

launch()
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Read when Gradio is imported.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
try:
    import gradio as gr
except ImportError as error:
    from heedmap.errors import HeedmapError

    raise HeedmapError(
        "the app needs Gradio, which is not installed: pip install '.[app]' in heedmap's folder"
    ) from error
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from heedmap.app.jobs import Models
from heedmap.app.tabs import App
from heedmap.errors import ArgumentError

if TYPE_CHECKING:
    from heedmap.backends.base import Pipeline

OUT = Path("outputs/app")
"""Where results are saved unless another folder is named."""
MAX_UPLOAD = 32 * 2**20
"""Bytes of an uploaded file."""
_LOOPBACK = ("localhost", "127.0.0.1")
_THEME = gr.themes.Default(
    primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["monospace"]
).set(
    block_info_text_color="*neutral_600", button_primary_background_fill="*primary_600"
)


def build(
    model: "Pipeline | str | Sequence[str] | None" = None, out: Path | None = None
) -> Any:
    """Build the page, as a `gradio.Blocks`.

    Args:
        model: a pipeline, or the names of models to choose from besides the embedded one.
        out: a folder of results, which everybody who opens the page sees. If
            None, each session has a temporary folder.
    """
    return App(Models(model), out).build()


def launch(
    model: "Pipeline | str | Sequence[str] | None" = None,
    out: Path | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    auth: Sequence[tuple[str, str]] = (),
    share: bool = False,
    open_browser: bool = False,
    **options: Any,
) -> None:
    """Serve the app until it is interrupted.

    Args:
        model: as in `build`.
        out: a folder for the results; `outputs/app` if None. It is for this machine alone: with
            another `host`, with `auth` or with `share` each session has its own results.
        host: the address to listen at; this machine alone if None.
        port: the port; the first free one from 7860 on if None.
        auth: names and passwords; everybody is let in without.
        share: whether Gradio opens a public address for the app.
        open_browser: whether the page is opened in this machine's browser.
        options: `device` and `dtype`, as in `heedmap.load`.

    Raises:
        ArgumentError: if the port is in use, or `out` is given where sessions have their own.
    """
    host = host or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    local = host in _LOOPBACK and not auth and not share
    if out is not None and not local:
        raise ArgumentError(
            "--out cannot be combined with host, auth or share: results are then kept for each "
            "session alone"
        )
    hosts = [*_LOOPBACK, host]
    if host == "0.0.0.0":
        hosts = ["*"]
    if share:
        hosts.append("*.gradio.live")
    folder = None
    if local:
        folder = out or OUT
    app = App(Models(model, **options), folder)
    # No other app reads or fills it.
    os.environ["GRADIO_TEMP_DIR"] = str(app.temporary / "gradio")
    page = app.build()
    try:
        page.launch(
            server_name=host,
            server_port=port,
            auth=[*auth] or None,
            share=share,
            inbrowser=open_browser,
            show_error=True,
            max_file_size=MAX_UPLOAD,
            app_kwargs={
                "middleware": [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]
            },
            theme=_THEME,
            css_paths=Path(__file__).with_name("app.css"),
            footer_links=[],
            ssr_mode=False,
            run_history=False,
            enable_monitoring=False,
            prevent_thread_lock=True,  # also in a notebook, this waits
        )
        page.block_thread()
    except OSError as error:
        raise ArgumentError(f"cannot listen on {host}: {error}") from error
    finally:
        page.close(verbose=False)
        shutil.rmtree(app.temporary, ignore_errors=True)
