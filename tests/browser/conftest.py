"""A browser, the page of real runs in it, and what it asked of the network and of its console."""

import base64
import functools
import http.server
import importlib.util
import io
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

CHROMIUM = os.environ.get("HEEDMAP_CHROMIUM") or shutil.which("chromium")
PATIENCE = 10.0  # seconds: a busy machine comes late to where the pointer went
MISSING = ""
if importlib.util.find_spec("playwright") is None:
    MISSING = "playwright is not installed: pip install -c constraints.txt -e '.[dev]'"
elif not CHROMIUM:
    MISSING = "there is no chromium: apt-get install chromium, or name one in HEEDMAP_CHROMIUM"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=MISSING))


# --- a page -----------------------------------------------------------------------------------


@dataclass
class Opened:
    """A page in the browser, with all that it requested and all that it wrote to the console."""

    page: Any
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def word(self, text: str, side: str = "") -> Any:
        """A word of the prompt (of the source or the edit, in a pair)."""
        name = re.compile(rf"^{side} ?prompt$", re.I)
        group = self.page.get_by_role("group", name=name)
        return group.get_by_role("button", name=text, exact=True)

    def pin(self, *words: str) -> None:
        """Pin words, and point at nothing."""
        for word in words:
            self.word(word).click()
        self.page.mouse.move(0, 0)

    def pins(self) -> list[str]:
        return self.page.locator("#pins li bdi").all_inner_texts()

    def legend(self) -> str:
        return self.page.locator("#legend").inner_text()

    def hide_heat(self) -> None:
        """Take off the heat that the page opens with."""
        self.page.keyboard.press("Escape")

    def link(self) -> str:
        """The address, after what follows by the page's own clock has come.

        The page's clock, not ours: a busy machine's page may stand still while ours goes on.
        """
        return self.page.evaluate(
            """async () => {
              for (let n = 0; n < 2; n++) await new Promise(requestAnimationFrame);
              await new Promise((done) => setTimeout(done, 400));
              await new Promise(requestAnimationFrame);
              return location.href;
            }"""
        )

    def follow(self, address: str) -> None:
        """Open an address of the page, as who follows a link does."""
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=yes]")
        self.requests[:] = [address]  # the one file that a page may ask for

    def choose(self, label: str, value: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(value)

    def slide(self, label: str, value: int) -> None:
        self.page.get_by_label(label, exact=True).fill(str(value))

    def choose_steps(self, start: int, stop: int) -> None:
        """Choose a range by its two ends, each counted in windows of the page."""
        self.slide("First step", start)
        self.slide("Last step", stop)

    def steps(self) -> str:
        """The text that names the chosen steps."""
        return self.page.locator("#steps-said").inner_text()

    def point(self, x: float, y: float, image: int = 0) -> None:
        """Point at a place of an image, in parts of its width and height."""
        box = self.page.locator(".picture").nth(image).bounding_box()
        self.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])

    def click(self) -> None:
        """Press and release the mouse at the pointer."""
        self.page.mouse.down()
        self.page.mouse.up()

    def shares(self, image: int = 0) -> list[tuple[str, int]]:
        """The words that act where the pointer is, with their percentages."""
        # In one go: row by row, some would be of a list that has been replaced meanwhile.
        rows = self.page.locator("#reading ol").nth(image)
        texts = rows.evaluate(
            "list => [...list.children].map(row => [...row.children].map(one => one.textContent))"
        )
        return [(text, int(share.rstrip("%\u00a0"))) for text, _, share, _ in texts]

    def pixels(self, image: int = 0) -> np.ndarray:
        return read_pixels(self.page.locator("figure canvas").nth(image))


def read_pixels(canvas: Any) -> np.ndarray:
    """The pixels of a canvas as they are now, (H, W, 3)."""
    link = canvas.evaluate(
        """async (canvas) => {  // after the frame in which heat that was left is taken off
          for (let n = 0; n < 2; n++) await new Promise(requestAnimationFrame);
          return canvas.toDataURL("image/png");
        }"""
    )
    raw = base64.b64decode(link.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(raw)).convert("RGB")).astype(int)


def is_close(pixels: np.ndarray, expected: Image.Image | np.ndarray) -> bool:
    """Whether pixels are within 2 of 255 of Python's.

    In one of a hundred places rounding may fall on the next of a colour map's 256 colours, which
    differ by up to 5.
    """
    wanted = np.asarray(expected).astype(int)
    assert pixels.shape == wanted.shape
    change = np.abs(pixels - wanted).max(axis=-1)
    return bool(change.max() <= 5 and (change > 2).mean() <= 0.01)


def expect_image(opened: Opened, expected: Image.Image | np.ndarray, image: int = 0) -> None:
    """The page shows, before long, the pixels that Python gives."""
    end = time.monotonic() + PATIENCE
    while not is_close(opened.pixels(image), expected):
        assert time.monotonic() < end


def read_outline(opened: Opened) -> tuple[np.ndarray, int]:
    """Where the first outline runs: points (x, y) in cells of a grid; how many cells across.

    Cells' centres lie at half numbers.
    """
    path = opened.page.locator("svg path.line[transform]").first
    path.wait_for(state="attached")
    drawn, scale = path.evaluate("e => [e.getAttribute('d'), e.getAttribute('transform')]")
    points = [[float(n) for n in one.split(" ")] for one in re.findall(r"[ML]([^MLVH]+)", drawn)]
    return np.array(points), round(100 / float(re.findall(r"[\d.]+", scale)[0]))


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder as a web server does, and give its address."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# --- fixtures ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which the dev extra brings along."""
    found = importlib.util.find_spec("axe_playwright_python")
    if not found or not found.origin:
        pytest.skip("axe-core is not there: pip install -c constraints.txt -e '.[dev]'")
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A browser for this folder of tests.

    As long as playwright runs, this thread has an event loop, beside which nothing may start one.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root may not use the sandbox, and a container is one itself.
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture
def load_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a page's text; afterwards it must have requested nothing and logged nothing."""
    pages: list[tuple[Opened, Any]] = []

    def load(text: str, **options: Any) -> Opened:
        path = tmp_path / f"page-{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        options = {"viewport": {"width": 1400, "height": 900}, **options}
        context = browser.new_context(accept_downloads=True, **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        opened = Opened(page)
        pages.append((opened, context))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.on("console", lambda message: opened.messages.append(message.text))
        page.on("pageerror", lambda error: opened.messages.append(str(error)))
        page.on("dialog", lambda dialog: opened.messages.append(f"dialog: {dialog.message}"))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return opened

    yield load
    for opened, context in pages:
        context.close()
        requests = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
        assert len(requests) == 1
        assert requests[0].startswith("file:")
        assert not opened.messages, opened.messages


@pytest.fixture(scope="session")
def run(embedded: Any) -> Any:
    """A run of the embedded model with all axes kept, and its negative prompt."""
    import heedmap

    return heedmap.generate(
        embedded,
        "a red house next to a blue tree, in the snow",
        seed=7,
        steps=6,
        negative="a green car",
        keep={"layer", "step", "head"},
        branches={"conditional", "negative"},
    )


@pytest.fixture(scope="session")
def pair(embedded: Any) -> Any:
    """A blended edit of the embedded model."""
    import heedmap

    return heedmap.edit(
        embedded, "a cat in the snow", "a dog in the snow", seed=3, steps=6, only="cat->dog"
    )


@pytest.fixture(scope="session")
def run_page(run: Any) -> str:
    from heedmap.page import pages

    return pages.run_page(run)


@pytest.fixture(scope="session")
def pair_page(pair: Any) -> str:
    from heedmap.page import pages

    return pages.pairs_page([("", pair)])
