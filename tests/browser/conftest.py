"""A browser, the page of real runs in it, and what it asked of the network and told its console."""

import base64
import importlib.util
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

CHROMIUM = os.environ.get("HEEDMAP_CHROMIUM") or shutil.which("chromium")
PINS = "#pins li bdi"
PATIENCE = 10.0  # seconds: a busy machine comes late to where the pointer went
MISSING = (
    "playwright is not installed: pip install -c constraints.txt -e '.[dev]'"
    if importlib.util.find_spec("playwright") is None
    else "there is no chromium: apt-get install chromium, or name one in HEEDMAP_CHROMIUM"
    if not CHROMIUM
    else ""
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=MISSING))


@dataclass
class Opened:
    """A page in the browser, with all that it asked for and all that it complained of."""

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def word(self, text: str, side: str = "") -> Any:
        """A word of the prompt (of the source or the edit, in a pair)."""
        name = re.compile(rf"^{side} ?prompt$", re.I)
        return self.page.get_by_role("group", name=name).get_by_role(
            "button", name=text, exact=True
        )

    def pin_phrase(self, first: str, last: str) -> None:
        """Pin what stands from one word to another, and point at nothing."""
        self.word(first).click()
        self.page.keyboard.down("Shift")
        self.word(last).click()
        self.page.keyboard.up("Shift")
        self.page.mouse.move(0, 0)

    def legend(self) -> str:
        return self.page.locator("#legend").inner_text()

    def bare(self) -> None:
        """Take off the heat that the page opens with."""
        self.page.keyboard.press("Escape")

    def apart(self) -> None:
        """Show each step on its own scale, over the finished picture, as Python's overlays do."""
        for label in ("One scale for all steps", "Image at the step"):
            box = self.page.get_by_label(label)
            if box.is_visible() and box.is_enabled():
                box.uncheck()

    def settle(self) -> None:
        """Wait until what follows by the page's own clock has come: a link, a word that was left.

        The page's clock, not ours: a busy machine's page may stand still while ours goes on.
        """
        self.page.evaluate(
            """async () => {
              for (let n = 0; n < 2; n++) await new Promise(requestAnimationFrame);
              await new Promise((done) => setTimeout(done, 400));
              await new Promise(requestAnimationFrame);
            }"""
        )

    def choose(self, label: str, value: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(value)

    def slide(self, label: str, value: int) -> None:
        self.page.get_by_label(label, exact=True).fill(str(value))

    def steps(self, start: int, stop: int) -> None:
        """Choose a range by its two ends, each counted in what the page tells apart."""
        self.slide("First step", start)
        self.slide("Last step", stop)

    def steps_said(self) -> str:
        return self.page.locator("#steps-said").inner_text()


def again(opened: Any, address: str) -> None:
    """Open an address of the page, as who follows a link does."""
    opened.page.goto("about:blank")
    opened.page.goto(address)
    opened.page.wait_for_selector("html[data-ready=yes]")
    opened.asked.clear()
    opened.asked.append(address)  # the one file that a page may ask for


# --- what is seen ------------------------------------------------------------------------------


def seen(canvas: Any) -> np.ndarray:
    """The pixels of a canvas as they are now, (H, W, 3)."""
    link = canvas.evaluate(
        """async (canvas) => {  // after the frame in which heat that was left is taken off
          for (let n = 0; n < 2; n++) await new Promise(requestAnimationFrame);
          return canvas.toDataURL("image/png");
        }"""
    )
    raw = base64.b64decode(link.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(raw)).convert("RGB")).astype(int)


@dataclass(frozen=True)
class Canvas:
    """A picture on the page, which follows what is done there when the browser comes to it."""

    opened: Any
    nth: int

    def pixels(self) -> np.ndarray:
        """As they are now, (H, W, 3)."""
        return seen(self.opened.page.locator("figure canvas").nth(self.nth))


def canvas(opened: Any, nth: int = 0) -> Canvas:
    return Canvas(opened, nth)


def same(shown: np.ndarray | Canvas, expected: Image.Image) -> None:
    """The pixels are those that Python gives, to 2 of 255; of a page, before long.

    In one of a hundred places rounding may fall on the next of a colour map's 256 colours, which
    differ by up to 5.
    """
    wanted, end = np.asarray(expected).astype(int), time.monotonic() + PATIENCE
    while True:
        pixels = shown.pixels() if isinstance(shown, Canvas) else shown
        assert pixels.shape == wanted.shape
        off = np.abs(pixels - wanted).max(axis=-1)
        if off.max() <= 5 and (off > 2).mean() <= 0.01:
            return
        if not isinstance(shown, Canvas) or time.monotonic() > end:
            raise AssertionError(f"differs by up to {off.max()}, {(off > 2).mean():.1%} of pixels")


def point(opened: Any, x: float, y: float, nth: int = 0) -> None:
    box = opened.page.locator(".picture").nth(nth).bounding_box()
    opened.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])


def readings(opened: Any, nth: int = 0) -> list[tuple[str, int]]:
    # In one go: row by row, some would be of a list that has been replaced meanwhile.
    rows = (
        opened.page.locator("#reading ol")
        .nth(nth)
        .evaluate(
            "list => [...list.children].map(row => [...row.children].map(one => one.textContent))"
        )
    )
    return [(text, int(share.rstrip("%\u00a0"))) for text, _, share, _ in rows]


def outline(opened: Any, within: str = "") -> tuple[np.ndarray, int]:
    """Where the first outline runs: points (x, y) in the cells of what it is of; how many across.

    Cells' centres lie at half numbers.
    """
    path = opened.page.locator(f"{within} svg path.line[transform]").first
    path.wait_for(state="attached")
    drawn, scale = path.evaluate("e => [e.getAttribute('d'), e.getAttribute('transform')]")
    points = [[float(n) for n in one.split(" ")] for one in re.findall(r"[ML]([^MLVH]+)", drawn)]
    return np.array(points), round(100 / float(re.findall(r"[\d.]+", scale)[0]))


def runs_at(points: np.ndarray, plane: np.ndarray, level: float, room: float) -> bool:
    """Whether each point has values of a plane on both sides of a level, but for some room."""
    h, w = plane.shape
    for x, y in points:
        i, j = int(min(max(y - 0.5, 0), h - 1)), int(min(max(x - 0.5, 0), w - 1))
        near = plane[i : i + 2, j : j + 2]
        if not near.min() - room <= level <= near.max() + room:
            return False
    return len(points) > 20


# --- pages -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which the dev extra brings along."""
    found = importlib.util.find_spec("axe_playwright_python")
    shipped = found and found.origin and Path(found.origin).with_name("axe.min.js")
    named = os.environ.get("HEEDMAP_AXE")
    path = Path(named) if named else shipped
    if not path or not path.is_file():
        pytest.skip(
            "axe-core is not there: pip install -c constraints.txt -e '.[dev]', or name its file "
            "in HEEDMAP_AXE"
        )
    return path.read_text(encoding="utf-8")


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
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a page's text; afterwards it must have asked for nothing and complained of nothing."""
    shown: list[tuple[Opened, Any]] = []

    def open_page(text: str, **options: Any) -> Opened:
        path = tmp_path / f"page-{len(shown)}.html"
        path.write_text(text, encoding="utf-8")
        options = {"viewport": {"width": 1400, "height": 900}, **options}
        context = browser.new_context(accept_downloads=True, **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        opened = Opened(page)
        shown.append((opened, context))
        page.on("request", lambda request: opened.asked.append(request.url))
        page.on("console", lambda said: opened.complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("dialog", lambda dialog: opened.complaints.append(f"dialog: {dialog.message}"))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return opened

    yield open_page
    for opened, context in shown:
        context.close()
        kinds = ("data:", "blob:", "file:")
        away = [url for url in opened.asked if not url.startswith(kinds)]
        files = [url for url in opened.asked if url.startswith("file:")]
        assert not away and len(files) == 1, "the page asked for something"
        assert not opened.complaints, opened.complaints


@pytest.fixture(scope="session")
def run(embedded: Any) -> Any:
    """A run of the embedded model with all axes kept, and its negative prompt."""
    import heedmap

    return heedmap.generate(
        embedded, "a red house next to a blue tree, in the snow", seed=7, steps=6,
        negative="a green car", keep={"layer", "step", "head"},
        branches={"conditional", "negative"},
    )  # fmt: skip


@pytest.fixture(scope="session")
def sought(embedded: Any) -> Any:
    """A run with words that its prompt does not hold, and its negative prompt."""
    import heedmap

    return heedmap.generate(
        embedded, "a red house next to a blue tree", seed=7, steps=4, negative="a green car",
        branches={"conditional", "negative"}, concepts=["grass", "red house"],
    )  # fmt: skip


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
