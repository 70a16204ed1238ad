"""What the page shows before anybody points: the strongest word, words at its peak, no holes."""

import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import Made, made_trust, maps_of, settings_of, small

from browser.conftest import MISSING, canvas, readings, same
from heedmap.figures import overlays
from heedmap.page import pages
from heedmap.text.prompts import is_content

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect

LONG = " ".join(f"word{n}" for n in range(40))


def strongest(maps: Any, among: set[str] | None = None) -> str:
    """The content word whose map has the largest standard deviation, computed once more."""
    heats = [heat for heat in maps if is_content(heat.label) and (not among or heat.label in among)]
    return max(heats, key=lambda heat: float(np.std(heat.values.astype(float)))).label


def test_it_opens_with_the_heat_of_the_strongest_content_word(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    word = strongest(run.maps)
    assert word != "red"  # the first of them
    same(canvas(opened), run.maps[word].overlay(scale="shared"))
    assert word in opened.legend()
    opened.word("tree").hover()
    opened.page.mouse.move(0, 0)
    same(canvas(opened), run.maps[word].overlay(scale="shared"))
    opened.bare()
    same(canvas(opened), overlays.enlarge(run.image))
    assert "without heat" in opened.legend()


def test_an_edit_opens_with_the_strongest_word_that_it_changed(
    show: Any, pair: Any, pair_page: str
):
    opened = show(pair_page)
    assert "cat → dog" in opened.legend()
    assert readings(opened, 1)[0][0] == "dog"


@pytest.mark.parametrize("latent", [(8, 20)])
def test_the_ring_is_at_the_peak_in_every_shape(show: Any, latent: tuple[int, int]):
    maps = maps_of(latent=latent)
    run = Made(maps.image, maps, settings_of(prompt=maps.tokens.prompt))
    opened = show(pages.run_page(run))
    values = maps[strongest(maps)].values
    rows, columns = values.shape
    x, y = opened.page.evaluate("placeAtRest()")
    assert values[int(y * rows), int(x * columns)] >= 0.98 * values.max()  # kept in steps of 1/255


# --- layout ---------------------------------------------------------------------------------------

TALLEST_HOLE = 170  # pixels; such a one stood here before
MEASURE = """() => {
  const seen = (e) => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
  const pick = "#figures canvas, #legend, #overview, #reading, #curve, #why, #controls";
  const main = document.querySelector("main").getBoundingClientRect();
  const all = [...document.querySelectorAll(pick)].filter(seen);
  const boxes = all.map((e) => e.getBoundingClientRect());
  const holds = (b, x, y) =>
    x >= b.left - 60 && x <= b.right + 60 && y >= b.top && y <= b.bottom;
  const free = (x, y) => !boxes.some((b) => holds(b, x, y));
  let worst = 0;
  for (let x = main.left + 30; x < main.right - 30; x += 20) {
    let run = 0;
    for (let y = main.top; y < main.bottom; y += 5) {
      run = free(x, y) ? run + 5 : 0;
      worst = Math.max(worst, run);
    }
  }
  const wide = document.documentElement.scrollWidth;
  return { worst, wide, right: Math.round(main.right), inner: innerWidth };
}"""
SHAPES = {
    "portrait": lambda words: stretched(words, (128, 256)),
    "landscape": lambda words: stretched(words, (256, 128)),
}


def stretched(words: str, size: tuple[int, int]) -> Any:
    """A run of another shape: the same maps, as far as a layout sees them."""
    from heedmap.maps.heatmaps import HeatMaps
    from heedmap.maps.recordings import Layer

    run = small(words)
    w, h = size[0] // 8, size[1] // 8
    recording = run.maps.recording
    layer = Layer(recording.layers[0].name, 2, (h, w))
    random = np.random.default_rng(0)
    array = random.random((1, 1, w * h, len(recording.positions)), dtype=np.float32)
    made = replace(recording, layers=(layer,), arrays=(array,), latent=(h, w), size=size)
    image = run.image.resize(size)
    run.image, run.maps = image, HeatMaps(made, image)
    return run


@pytest.mark.parametrize(
    ("shape", "words", "width"),
    [("portrait", LONG, 1400), ("portrait", "a red house", 390), ("landscape", LONG, 390)],
)
def test_no_hole_and_nothing_past_the_edge(show: Any, shape: str, words: str, width: int):
    opened = show(pages.run_page(SHAPES[shape](words)), viewport={"width": width, "height": 900})
    expect(opened.page.locator("#thumbs canvas").first).to_be_visible()
    found = opened.page.evaluate(MEASURE)
    assert found["wide"] <= found["inner"]
    assert found["worst"] < TALLEST_HOLE, found


@pytest.mark.parametrize("kind", ["run", "pair"])
def test_in_the_dark_everything_is_dark(show: Any, run_page: str, pair_page: str, kind: str):
    """No field, button or table is brighter than the text on it."""
    opened = show(run_page if kind == "run" else pair_page, color_scheme="dark")
    opened.page.locator("#matrix summary").click()
    opened.page.locator("#why summary").click()
    bright = opened.page.evaluate(
        """() => [...document.querySelectorAll("body, body *")].filter((e) => {
          if (!e.getClientRects().length || e.closest("svg, #range")) return false;
          const said = getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number);
          const opaque = said.length < 4 || said[3] > 0.5;
          const chip = e.matches(".swatch, .scale");
          return opaque && !chip && (said[0] + said[1] + said[2]) / 3 > 110;
        }).map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert not bright


ROWS = """() => {
  const box = document.getElementById("thumbs").getBoundingClientRect();
  const names = [...document.querySelectorAll("#thumbs li")].map((one) => {
    const { top, bottom } = one.getBoundingClientRect();
    return bottom <= box.bottom + 1 ? "whole" : top >= box.bottom - 1 ? "below" : "cut";
  });
  return [names, document.querySelector("#overview h2 span").textContent];
}"""


@pytest.mark.parametrize(
    ("words", "width"), [("a red house next to a blue tree", 1400), (LONG, 390)]
)
def test_no_word_is_cut_off_and_those_below_are_told_of(show: Any, words: str, width: int):
    opened = show(pages.run_page(small(words)), viewport={"width": width, "height": 900})
    expect(opened.page.locator("#thumbs canvas").first).to_be_visible()
    opened.settle()
    there, said = opened.page.evaluate(ROWS)
    assert len(there) == len(words.split())
    assert "cut" not in there and there[0] == "whole"
    assert said == (f"scroll for all {len(there)}" if "below" in there else "")
    if len(there) < 10:
        assert "below" not in there


def test_the_page_of_an_ablation_opens_with_what_was_left_out(show: Any):
    """Where a word stands twice, with both of its places."""
    made = small("a red house by a red tree")
    assert show(pages.run_page(made)).legend()
    for word in ("tree", "red house", "red", "a red"):
        opened = show(pages.run_page(replace(made, trust={word: made_trust()})))
        assert (
            word in opened.legend()
            and "attention and cause (columns): rank 0.62" in opened.legend()
        )
        # The command explains that text, at all of its places.
        command = opened.page.locator("#why pre").text_content()
        assert shlex.split(command)[4] == word
