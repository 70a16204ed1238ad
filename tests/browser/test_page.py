"""The page in a browser: the heat it shows is what Python gives, and what acted at a place."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import small

from browser.conftest import MISSING, canvas, outline, point, readings, runs_at, same
from heedmap.figures import overlays
from heedmap.page import pages

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_a_word_shows_the_overlay_that_python_draws(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.bare()
    same(canvas(opened), overlays.enlarge(run.image))
    for scale, said in (
        ("shared", "shared by all words"), ("word", "separate for each word"), ("raw", ""),
    ):  # fmt: skip
        opened.choose("Scale", scale)
        opened.word("tree").hover()
        same(canvas(opened), run.maps["tree"].overlay(scale=scale))
        low, high = run.maps["tree"].value_range(scale)
        legend = opened.legend()
        assert "tree" in legend and "all 6 steps" in legend
        assert f"{said}: {low:.2g} to {high:.2g}" in legend
    opened.page.mouse.move(0, 0)
    same(canvas(opened), overlays.enlarge(run.image))


def test_layers_steps_and_heads_are_those_that_python_selects(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.apart()
    opened.choose("Scale", "word")
    opened.choose("Layers", "group up")
    opened.steps(2, 3)
    opened.word("red").hover()
    expected = run.maps.select(layers="up", steps=2)["red"]
    same(canvas(opened), expected.overlay())
    assert "up layers" in opened.legend() and "step 2 of 0–5" in opened.legend()
    opened.steps(0, 3)
    opened.choose("Head", "1")
    opened.choose("Layers", "layer 2")
    opened.word("red").hover()
    name = run.maps.recording.layers[2].name
    same(canvas(opened), run.maps.select(name, steps=slice(0, 3), heads=1)["red"].overlay())
    opened.steps(0, 6)
    opened.choose("Head", "-1")
    opened.choose("Layers", "grid 8×8")
    opened.word("red").hover()
    same(canvas(opened), run.maps.select(resolution=8)["red"].overlay())
    opened.slide("Opacity", 40)
    opened.choose("Colours", "cividis")
    opened.word("red").hover()
    heat = run.maps.select(resolution=8)["red"]
    low, high = heat.value_range("word")
    picture = np.asarray(overlays.enlarge(run.image), dtype=float)
    grey = picture @ [0.299, 0.587, 0.114]
    dull = (picture + (grey[..., None] - picture) * overlays.GREY) * overlays.LIGHT
    base = picture + (dull - picture) * 0.4 / overlays.OPACITY
    hot = (overlays.resize_map(heat.values, picture.shape[1::-1]) - low) / (high - low)
    colours = overlays.colour(hot.clip(0, 1), "cividis")
    same(canvas(opened), base + (colours - base) * (0.4 * hot)[..., None])


def turned(weight: float) -> Any:
    """A run whose "house" has this weight."""
    run = small()
    made = run.maps.recording
    signs = np.ones(len(made.positions), np.float32)
    signs[made.positions.index(run.maps.tokens.find("house")[0])] = weight
    changed = replace(made, arrays=tuple(array * signs for array in made.arrays))
    return replace(run, maps=replace(run.maps, recording=changed))


def test_a_negative_weight_is_not_called_a_probability(show: Any):
    """The page draws what Python draws: both signs around 0, for every word."""
    run = turned(-3)
    opened = show(pages.run_page(run))
    assert "probability" not in opened.page.locator("#reading").inner_text().split("\n")[0]
    for scale, word in (("shared", "house"), ("word", "red"), ("raw", "house")):
        opened.choose("Scale", scale)
        opened.word(word).hover()
        same(canvas(opened), run.maps[word].overlay(scale=scale))
        low, high = run.maps[word].value_range(scale)
        assert low == -high and "probability" not in opened.legend()


def test_the_outline_follows_the_edge_of_the_mask(show: Any, run: Any, run_page: str):
    """Of a selection that is where its own heat reaches the threshold."""
    opened = show(run_page)
    opened.page.get_by_label("Outline", exact=True).check()
    opened.slide("Threshold of the outline", 60)
    opened.choose("Layers", "group up")
    opened.word("house").hover()
    points, across = outline(opened)
    values = run.maps.select("up")["house"].values
    level = values.min() + 0.6 * np.ptp(values)
    assert across == 64 and runs_at(points, values, level, 1e-4)
    assert "outline at 60\u00a0% between the map’s minimum and maximum" in opened.legend()
    soft = run.maps["house"].soft_mask()
    opened.choose("Layers", "all")
    opened.word("house").hover()
    points, across = outline(opened)
    assert across == 128 and runs_at(points, soft, 0.6, 1 / 500)
    assert "outline at 60\u00a0% of the mask." in opened.legend()


def test_combinations_that_were_not_kept_are_disabled(show: Any):
    run = small("a red house next to a blue tree", frozenset({"layer", "step", "head"}))
    opened = show(pages.run_page(run, limit=326_000))
    disabled = "e => [...e.options].filter((one) => one.disabled).length"
    assert opened.page.get_by_label("Head", exact=True).evaluate(disabled) == 0
    opened.steps(1, 2)
    assert opened.page.get_by_label("Head", exact=True).evaluate(disabled) == 2
    assert "Greyed-out options" in opened.page.locator("#held").inner_text()
    opened.page.get_by_role("button", name="All steps").click()
    opened.choose("Head", "1")
    assert opened.page.get_by_label("First step").is_disabled()
    assert "mean over all steps" in opened.page.locator("#held").inner_text()
    opened.choose("Scale", "word")
    opened.word("house").hover()
    same(canvas(opened), run.maps.select(heads=1)["house"].overlay())


# --- places to words ------------------------------------------------------------------------------


def test_pointing_at_a_place_lists_the_words_that_acted_there(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    x, y = (v / 128 for v in run.maps["house"].peak)
    point(opened, x, y)
    row, column = int(y * 64), int(x * 64)
    values = {word: [] for word in run.maps}
    for heat in map(run.maps.at, range(len(run.maps.words))):
        values[heat.label].append(float(heat.values[row, column]))
    total = sum(v for several in values.values() for v in several)
    shown = readings(opened)
    assert shown == sorted(shown, key=lambda item: -item[1])
    for text, share in shown:
        assert any(abs(share - 100 * v / total) <= 0.6 for v in values[text])
    best = max(values, key=lambda text: max(values[text]))
    assert shown[0][0] == best
    lit = opened.word(best).evaluate("e => e.style.getPropertyValue('--lit')")
    assert float(lit) == 1
    control = opened.page.get_by_label("Opacity", exact=True)
    before = control.bounding_box()
    opened.bare()
    opened.page.mouse.move(0, 0)
    expect(opened.page.locator("#reading li").first).to_be_hidden()
    assert control.bounding_box() == before  # nothing below moves


NAMED = "refined by self-attention · all layers · all 6 steps · all heads"


def test_a_word_shows_the_refined_overlay_that_python_draws(show: Any, run: Any, run_page: str):
    scale = "shared"
    opened = show(run_page)
    opened.choose("Maps", "refined")
    opened.choose("Scale", scale)
    for word in ("house", "tree"):
        opened.word(word).hover()
        heat = run.maps.refined[word]
        same(canvas(opened), heat.overlay(scale=scale))
        low, high = heat.value_range(scale)
        assert f": {low:.2g} to {high:.2g} · {NAMED}" in opened.legend()
    opened.choose("Maps", "read")
    opened.word("house").hover()
    same(canvas(opened), run.maps["house"].overlay(scale=scale))
    assert "refined" not in opened.legend()


def test_refined_maps_are_offered_if_every_prompt_has_them(show: Any, run: Any):
    older = replace(run.negative_maps.recording, refined=None)
    page = pages.run_page(replace(run, negative_maps=replace(run.negative_maps, recording=older)))
    assert not show(page).page.get_by_label("Maps", exact=True).is_visible()
