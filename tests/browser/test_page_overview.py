"""All words at once, layers × heads, pins with scales, and how a number comes about."""

import shlex
from typing import Any

import numpy as np
import pytest
from PIL import Image

from browser.conftest import MISSING, PINS, point
from heedmap.figures import overlays

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect

PIXELS = """async (canvas) => {
  for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
  const { width, height } = canvas;
  return [width, height, ...canvas.getContext("2d").getImageData(0, 0, width, height).data];
}"""


def seen(locator: Any) -> np.ndarray:
    width, height, *data = locator.evaluate(PIXELS)
    return np.array(data).reshape(height, width, 4)[..., :3]


def test_every_word_has_a_thumbnail_of_its_heat(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    thumbs = opened.page.locator("#thumbs button")
    expect(thumbs).to_have_count(len(run.maps))
    assert thumbs.all_inner_texts() == [heat.label for heat in run.maps]
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


def test_each_pin_has_its_scale(show: Any, run: Any, run_page: str):
    scale = "word"
    opened = show(run_page)
    opened.choose("Scale", scale)
    for word in ("house", "tree"):
        opened.word(word).click()
    opened.page.mouse.move(0, 0)
    items = opened.page.locator("#legend li")
    bars = opened.page.locator("#legend .scale")
    for n, word in enumerate(("house", "tree")):
        low, high = run.maps[word].value_range(scale)
        assert items.nth(n).inner_text().split("\n") == [word, f"{low:.2g} to {high:.2g}"]
        hue = ("rgb(230, 159, 0)", "rgb(86, 180, 233)")[n]
        assert hue in bars.nth(n).evaluate("e => getComputedStyle(e).backgroundImage")


# --- how a number comes about ---------------------------------------------------------------------


def explained(opened: Any) -> list[str]:
    return shlex.split(opened.page.locator("#why pre").text_content())


def test_a_place_says_how_its_number_is_explained(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.page.locator("#why summary").click()
    opened.word("house").click()
    point(opened, 40.5 / 128, 72.5 / 128)
    command = explained(opened)
    assert command == shlex.split("heedmap explain FOLDER --word house --at 40,72")
    said = opened.page.locator("#why .hint").inner_text()
    assert "is a mean (all layers · " in said
    assert "Share: of what all words" in opened.page.locator("#reading").inner_text()
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
