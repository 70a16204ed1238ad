"""What the page shows before anybody points: the strongest word, words at its peak, no holes."""

import re
from typing import Any

import numpy as np
import pytest
from making import Made, maps_of, settings_of

from browser.conftest import MISSING, canvas, readings, same
from heedmap.figures import overlays
from heedmap.page import pages
from heedmap.text.prompts import is_content

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


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


def test_the_ring_is_at_the_peak(show: Any):
    maps = maps_of(latent=(8, 20))
    run = Made(maps.image, maps, settings_of(prompt=maps.tokens.prompt))
    opened = show(pages.run_page(run))
    values = maps[strongest(maps)].values
    rows, columns = values.shape
    ring = opened.page.locator("svg g.ring path.line").get_attribute("d")
    x, y, radius = (float(number) / 100 for number in re.findall(r"-?[\d.]+", ring)[:3])
    x += radius
    assert values[int(y * rows), int(x * columns)] >= 0.98 * values.max()  # kept in steps of 1/255


# --- layout ---------------------------------------------------------------------------------------


def test_in_the_dark_everything_is_dark(show: Any, pair_page: str):
    """No field, button or table is brighter than the text on it."""
    opened = show(pair_page, color_scheme="dark")
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
