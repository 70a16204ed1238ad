"""What the page shows before anybody points, and what it offers to choose and to repeat."""

import re
import shlex
from typing import Any

import numpy as np
import pytest
from making import Made, maps_of, settings_of
from PIL import Image

from browser.conftest import MISSING, expect_image, read_pixels
from heedmap.figures import overlays
from heedmap.page import pages
from heedmap.text.prompts import is_content

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def strongest(maps: Any) -> str:
    """The content word whose map has the largest standard deviation, computed once more."""
    heats = [maps.at(word.number) for word in maps.words if is_content(word.text)]
    return max(heats, key=lambda heat: float(np.std(heat.values.astype(float)))).label


def test_a_page_opens_with_the_heat_of_the_strongest_content_word(
    load_page: Any, run: Any, run_page: str
):
    opened = load_page(run_page)
    word = strongest(run.maps)
    assert word != "red"  # the first of them
    expect_image(opened, run.maps[word].overlay(scale="shared"))
    opened.word("tree").hover()
    opened.page.mouse.move(0, 0)
    expect_image(opened, run.maps[word].overlay(scale="shared"))
    assert word in opened.legend()


def test_the_ring_is_at_the_peak(load_page: Any):
    maps = maps_of(latent=(8, 20))
    run = Made(maps.image, maps, settings_of(prompt=maps.tokens.prompt))
    opened = load_page(pages.run_page(run))
    values = maps[strongest(maps)].values
    rows, columns = values.shape
    ring = opened.page.locator("svg g.ring path.line").get_attribute("d")
    x, y, radius = (float(number) / 100 for number in re.findall(r"-?[\d.]+", ring)[:3])
    peak = values[int(y * rows), int((x + radius) * columns)]
    assert peak >= 0.98 * values.max()  # kept in steps of 1/255


def test_the_dark_scheme_has_no_bright_field(load_page: Any, pair_page: str):
    """No field, button or table is brighter than the text on it."""
    opened = load_page(pair_page, color_scheme="dark")
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


def test_every_word_has_a_thumbnail_of_its_heat(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    thumbnails = opened.page.locator("#thumbs button")
    expect(thumbnails).to_have_count(len(run.maps.words))
    assert thumbnails.all_inner_texts() == [word.text for word in run.maps.words]
    for number in (1, 2, 7):
        pixels = read_pixels(thumbnails.nth(number).locator("canvas"))
        overlay = run.maps.at(number).overlay(scale="shared")
        wanted = np.asarray(overlay.resize((170, 170), Image.Resampling.BOX)).astype(int)
        assert pixels.shape == wanted.shape
        assert np.corrcoef(pixels.ravel(), wanted.ravel())[0, 1] > 0.97
    thumbnails.nth(2).click()
    assert opened.pins() == ["house"]
    opened.page.mouse.move(0, 0)
    thumbnails.nth(7).hover()
    assert "tree" in opened.legend()


def test_layers_and_heads_are_a_table_to_choose_from(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.pin("house")
    opened.page.locator("#matrix summary").click()
    recording = run.maps.recording
    rows = opened.page.locator("#matrix tbody tr")
    expect(rows).to_have_count(len(recording.layers))
    columns = [recording.positions.index(p) for p in recording.table.find("house")]
    planes = [array.mean(axis=0)[..., columns].sum(-1) for array in recording.arrays]  # (H, Q)
    low = min(plane.min() for plane in planes)
    high = max(plane.max() for plane in planes)
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], overlays.COLORMAP)[0].astype(int)
    for layer, head in ((0, 1), (2, 0)):
        cell = rows.nth(layer).locator("button").nth(1 + head)
        plane = planes[layer][head].reshape(recording.layers[layer].grid)
        wanted = ramp[np.rint((plane - low) / (high - low) * 255).astype(int)]
        assert np.abs(read_pixels(cell.locator("canvas")) - wanted).max() <= 6
    cell = rows.nth(2).get_by_role("button", name="head 1")
    cell.click()
    expect(cell).to_have_attribute("aria-pressed", "true")
    assert opened.page.locator("#layers").input_value() == "layer 2"
    assert opened.page.locator("#head").input_value() == "1"


def test_the_page_shows_the_commands_that_repeat_and_explain_it(
    load_page: Any, run: Any, run_page: str
):
    opened = load_page(run_page)
    text = opened.page.locator("#why pre")
    repeat = opened.page.get_by_role("region", name="Repeat")
    assert repeat.inner_text() == "heedmap repeat FOLDER"
    opened.page.locator("#why summary").click()
    opened.word("house").click()
    opened.point(40.5 / 128, 72.5 / 128)
    command = "heedmap explain FOLDER --word house --at 40,72"
    assert text.text_content() == command
    opened.click()
    opened.choose("Layers", "layer 2")
    opened.choose("Head", "1")
    opened.choose_steps(3, 4)
    opened.page.mouse.move(0, 0)
    name = run.maps.recording.layers[2].short
    expected = f"{command} --layer '{name}' --head 1 --step 3"
    assert shlex.split(text.text_content()) == shlex.split(expected)
    opened.choose_steps(3, 6)
    opened.choose("Layers", "group up")
    assert "--step" not in text.text_content() and "--layer" not in text.text_content()
    # A pixel is the one that the pointer lies in, up to the last of a line.
    opened.page.keyboard.press("Escape")
    opened.page.evaluate("scrollTo(0, 0)")  # choosing may have scrolled to what is chosen
    for x, y, pixel in ((127.9, 0.1, "127,0"), (0.9, 127.9, "0,127")):
        opened.point(x / 128, y / 128)
        assert f" --at {pixel}" in text.text_content()
