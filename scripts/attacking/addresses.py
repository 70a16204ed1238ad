"""Where a server is asked, by which names, and what stands for a file there."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FOO",
            "get")  # fmt: skip

# What stands for a file to Gradio, with {} for its path.
FILES: tuple[Any, ...] = (
    {"path": "{}", "meta": {"_type": "gradio.FileData"}},
    {"path": "{}", "meta": {"_type": "gradio.FileData"}, "orig_name": "x", "is_stream": True},
    {"path": "{}", "url": "file://{}", "meta": {"_type": "gradio.FileData"}},
    {"url": "file://{}", "meta": {"_type": "gradio.FileData"}},
    {"path": "http://127.0.0.1:{port}/config", "meta": {"_type": "gradio.FileData"}},
    {"video": {"path": "{}", "meta": {"_type": "gradio.FileData"}}},
    {"__type__": "update", "value": {"path": "{}", "meta": {"_type": "gradio.FileData"}}},
    "{}", ["{}"], {"files": [{"path": "{}"}]}, {"background": {"path": "{}"}},
)  # fmt: skip
HOSTS = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "0x7f.1",
          "127.0.0.1@evil.example", "evil.example:80", "127.0.0.1, evil.example")  # fmt: skip
ORIGINS = ("http://evil.example", "null", "", "http://[", "http://localhost:3000", "file://",
            "http://127.0.0.1.evil.example", "https://127.0.0.1")  # fmt: skip
FORWARDED = {"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "127.0.0.1",
              "X-Forwarded-Proto": "https", "X-Original-URL": "/etc/passwd",
              "X-Rewrite-URL": "/etc/passwd", "X-Real-IP": "127.0.0.1"}  # fmt: skip


def paths(secret: Path, result: str, *, quick: bool) -> Iterator[str]:
    """Gradio's own routes, with a file or a session where they take one, and traversals.

    Args:
        secret: a file.
        result: the folder of a result.
        quick: a part of them.
    """
    name = result.rpartition("/")[2]
    files = [str(secret), f"{result}/run.json", "/etc/passwd"]
    up = ["../" * 8, "%2e%2e/" * 8, "..%2f" * 8, "%252e%252e/" * 8, "..\\" * 8, "....//" * 8]
    for route in gradio_routes():
        for file in files if "{" in route else [""]:
            for value in [file, file[1:], *([] if quick else (f"{one}{file[1:]}" for one in up))]:
                yield re.sub(r"\{[^}]*\}", lambda _, value=value: value, route)
    for start in ("/", "/static/", "/assets/", "/results/", "/uploads/", "/pages/", "/gradio_api/"):
        for one in up:
            yield f"{start}{one}{secret}"[: 1 if quick and start != "/" else None]
    yield from (
        f"/results/{name}", f"/results/{name}/run.json", f"/{name}/run.json",
        f"/results/..%2f{name}.zip", f"/results/{name[:-1]}.zip", "/results/*.zip",
        "/results", "/comparison",
        f"/results/{name}/picture", f"/results/{name}/name", f"/results/{name}/end",
        f"/comparison?run={name}&run={name}&word=cat&scale=raw&format=svg&take=1",
        f"/comparison?{'run=x&' * 900}",
        f"/results/{name}.zip/../../run.json", "/results/", "/results/.zip", "/uploads",
        "/" + "a" * 9000, "/%00", "/\u00ff".encode().decode("latin-1"), "//evil.example/",
        "/?__theme=../",
        f"/gradio_api/queue/data?session_hash={'x' * 9000}", "/gradio_api/startup-events/../info",
    )  # fmt: skip


def gradio_routes() -> list[str]:
    """All routes that Gradio's application has, its parameters in braces."""
    import gradio as gr
    from gradio.routes import App

    async def built() -> list[Any]:
        with gr.Blocks(analytics_enabled=False) as page:
            gr.Textbox()
        return list(App.create_app(page).routes)

    # Outside of an event loop Gradio makes some that nobody closes.
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(asyncio.run, built()).result()
    found: list[str] = []
    while waiting:
        route = waiting.pop()
        within = getattr(route, "original_router", route)
        waiting += getattr(within, "routes", None) or []
        found.append(getattr(route, "path", ""))
    # Those of a router may be told without where it stands.
    return sorted({f"{start}{path}" for start in ("", "/gradio_api") for path in found if path})
