"""What the page shows before anybody points: the strongest word, words at its peak, no holes."""

import re
import shlex
from typing import Any

import numpy as np
import pytest
from making import Made, maps_of, settings_of
from PIL import Image

from browser.conftest import MISSING, PINS, canvas, point, same, seen
from heedmap.figures import overlays
from heedmap.page import pages
from heedmap.text.prompts import is_content

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def strongest(maps: Any, among: set[str] | None = None) -> str:
    """The content word whose map has the largest standard deviation, computed once more."""
    heats = [maps.at(word.number) for word in maps.words if is_content(word.text)]
    heats = [heat for heat in heats if not among or heat.label in among]
    return max(heats, key=lambda heat: float(np.std(heat.values.astype(float)))).label


def test_a_page_opens_with_the_heat_of_the_strongest_content_word(
    show: Any, run: Any, run_page: str
):
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


def test_the_dark_scheme_has_no_bright_field(show: Any, pair_page: str):
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


def test_every_word_has_a_thumbnail_of_its_heat(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    thumbs = opened.page.locator("#thumbs button")
    expect(thumbs).to_have_count(len(run.maps.words))
    assert thumbs.all_inner_texts() == [word.text for word in run.maps.words]
    for number in (1, 2, 7):
        found = seen(thumbs.nth(number).locator("canvas"))
        assert found.shape == (170, 170, 3)  # as large as few words are shown
        drawn = run.maps.at(number).overlay(scale="shared")
        wanted = np.asarray(drawn.resize((170, 170), Image.Resampling.BOX)).astype(int)
        assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.97
    thumbs.nth(2).click()
    assert opened.page.locator(PINS).all_inner_texts() == ["house"]
    assert thumbs.nth(2).get_attribute("aria-pressed") == "true"
    opened.page.mouse.move(0, 0)
    thumbs.nth(7).hover()
    assert "tree" in opened.legend()


def test_layers_and_heads_are_a_table_to_choose_from(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.word("house").click()
    opened.page.mouse.move(0, 0)
    opened.page.locator("#matrix summary").click()
    recording = run.maps.recording
    rows = opened.page.locator("#matrix tbody tr")
    expect(rows).to_have_count(len(recording.layers))
    heads = [array.shape[1] for array in recording.arrays]
    assert opened.page.locator("#matrix thead th").all_inner_texts() == [
        "mean", *map(str, range(max(heads))),
    ]  # fmt: skip
    columns = [recording.positions.index(p) for p in recording.table.find("house")]
    planes = [array.mean(axis=0)[..., columns].sum(-1) for array in recording.arrays]  # (H, Q)
    low = min(plane.min() for plane in planes)
    high = max(plane.max() for plane in planes)
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], overlays.COLORMAP)[0].astype(int)
    for layer, head in ((0, 1), (2, 0)):
        cell = rows.nth(layer).locator("button").nth(1 + head)
        grid = recording.layers[layer].grid
        part = (planes[layer][head].reshape(grid) - low) / (high - low)
        wanted = ramp[np.rint(part * 255).astype(int)]
        assert np.abs(seen(cell.locator("canvas")) - wanted).max() <= 6
    assert f" to {high:.2g} · all 6 steps" in opened.page.locator("#matrix .hint").inner_text()
    rows.nth(2).get_by_role("button", name="head 1").click()
    assert opened.page.locator("#layers").input_value() == "layer 2"
    assert opened.page.locator("#head").input_value() == "1"
    chosen = rows.nth(2).get_by_role("button", name="head 1")
    expect(chosen).to_have_attribute("aria-pressed", "true")


# --- how a number comes about ---------------------------------------------------------------------


def explained(opened: Any) -> list[str]:
    return shlex.split(opened.page.locator("#why pre").text_content())


def test_the_page_shows_the_commands_that_repeat_and_explain_it(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    repeat = opened.page.get_by_role("region", name="Repeat")
    assert repeat.inner_text() == "heedmap repeat FOLDER"
    opened.page.locator("#why summary").click()
    opened.word("house").click()
    point(opened, 40.5 / 128, 72.5 / 128)
    command = explained(opened)
    assert command == shlex.split("heedmap explain FOLDER --word house --at 40,72")
    said = opened.page.locator("#why .hint").inner_text()
    assert "an average (all layers · " in said
    assert "this word’s part" in opened.page.locator("#reading").inner_text()
    opened.page.mouse.down()
    opened.page.mouse.up()
    opened.choose("Layers", "layer 2")
    opened.choose("Head", "1")
    opened.steps(3, 4)
    opened.page.mouse.move(0, 0)
    name = run.maps.recording.layers[2].short
    command = explained(opened)
    assert command[2:] == shlex.split(
        f"FOLDER --word house --at 40,72 --layer '{name}' --head 1 --step 3"
    )
    assert run.maps.select(layers=name, heads=1, steps=3)["house"].values.any()  # as Python has it
    opened.steps(3, 6)
    opened.choose("Layers", "group up")
    command = explained(opened)
    assert "--step" not in command and "--layer" not in command
    # A pixel is the one that the pointer lies in, up to the last of a line.
    opened.page.keyboard.press("Escape")
    opened.page.evaluate("scrollTo(0, 0)")  # choosing may have scrolled to what is chosen
    for x, y, said in ((127.9, 0.1, "127,0"), (0.9, 127.9, "0,127")):
        point(opened, x / 128, y / 128)
        command = explained(opened)
        assert command[command.index("--at") + 1] == said
