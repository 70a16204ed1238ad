"""The page in a browser: the heat it shows is Python's, and which words act at a place."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
from making import small
from scipy.ndimage import map_coordinates

from browser.conftest import expect_image, read_outline
from heedmap.figures import overlays
from heedmap.page import pages


def test_a_word_shows_the_overlay_of_python(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.hide_heat()
    expect_image(opened, overlays.enlarge(run.image))
    for maps, of_python in (("read", run.maps), ("refined", run.maps.refined)):
        opened.choose("Maps", maps)
        for scale in ("shared", "word", "raw"):
            opened.choose("Scale", scale)
            opened.word("tree").hover()
            expect_image(opened, of_python["tree"].overlay(scale=scale))
            low, high = of_python["tree"].value_range(scale)
            legend = opened.legend()
            assert "tree" in legend and f": {low:.2g} to {high:.2g}" in legend
            assert "all 6 steps" in legend and ("refined" in legend) == (maps == "refined")
    opened.page.mouse.move(0, 0)
    expect_image(opened, overlays.enlarge(run.image))


def test_layers_steps_and_heads_are_those_that_python_selects(
    load_page: Any, run: Any, run_page: str
):
    opened = load_page(run_page)
    opened.page.get_by_label("Image at the step").uncheck()
    opened.page.get_by_label("One scale for all steps").uncheck()
    opened.choose("Scale", "word")
    name = run.maps.recording.layers[2].name
    for layers, head, steps, selection in (
        ("group up", "-1", (2, 3), {"layers": "up", "steps": 2}),
        ("layer 2", "1", (0, 3), {"layers": name, "steps": slice(0, 3), "heads": 1}),
        ("grid 8×8", "-1", (0, 6), {"resolution": 8}),
    ):
        opened.choose("Head", head)
        opened.choose_steps(*steps)
        opened.choose("Layers", layers)
        opened.word("red").hover()
        expect_image(opened, run.maps.select(**selection)["red"].overlay())


def test_a_negative_weight_is_not_called_a_probability(load_page: Any):
    """The page shows both signs around 0, for every word, as Python does."""
    run = small()
    recording = run.maps.recording
    signs = np.ones(len(recording.positions), np.float32)
    signs[recording.positions.index(run.maps.tokens.find("house")[0])] = -3
    changed = replace(recording, arrays=tuple(array * signs for array in recording.arrays))
    run = replace(run, maps=replace(run.maps, recording=changed))
    opened = load_page(pages.run_page(run))
    assert "probability" not in opened.page.locator("#reading").inner_text().split("\n")[0]
    opened.word("house").hover()
    expect_image(opened, run.maps["house"].overlay(scale="shared"))
    assert "probability" not in opened.legend()


def test_the_outline_follows_the_edge_of_the_mask(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.page.get_by_label("Outline", exact=True).check()
    opened.slide("Threshold of the outline", 60)
    opened.word("house").hover()
    points, across = read_outline(opened)
    mask = run.maps["house"].soft_mask()
    assert across == mask.shape[1] and len(points) > 20
    values = map_coordinates(mask, points.T[::-1] - 0.5, order=1, mode="nearest")
    np.testing.assert_allclose(values, 0.6, atol=0.01)


def test_combinations_that_were_not_kept_are_disabled(load_page: Any):
    small_run = small("a red house next to a blue tree", frozenset({"layer", "step", "head"}))
    opened = load_page(pages.run_page(small_run, limit=540_000))
    head = opened.page.get_by_label("Head", exact=True)
    disabled = "e => [...e.options].filter((one) => one.disabled).length"
    assert head.evaluate(disabled) == 0
    opened.choose_steps(1, 2)
    assert head.evaluate(disabled) == 2
    opened.page.get_by_role("button", name="All steps").click()
    opened.choose("Head", "1")
    assert opened.page.get_by_label("First step").is_disabled()
    opened.choose("Scale", "word")
    opened.word("house").hover()
    expect_image(opened, small_run.maps.select(heads=1)["house"].overlay())


def test_pointing_at_a_place_lists_the_words_that_act_there(
    load_page: Any, run: Any, run_page: str
):
    opened = load_page(run_page)
    x, y = (v / 128 for v in run.maps["house"].peak)
    opened.point(x, y)
    heats = [run.maps.at(number) for number in range(len(run.maps.words))]
    values = [(heat.label, float(heat.values[int(y * 64), int(x * 64)])) for heat in heats]
    total = sum(value for _, value in values)
    shares = opened.shares()
    assert shares == sorted(shares, key=lambda item: -item[1])
    for text, share in shares:
        assert any(
            abs(share - 100 * value / total) <= 0.6 for label, value in values if label == text
        )
    best, _ = max(values, key=lambda item: item[1])
    assert shares[0][0] == best
    assert float(opened.word(best).evaluate("e => e.style.getPropertyValue('--lit')")) == 1


def test_a_click_asks_what_the_place_reads(load_page: Any, run: Any):
    opened = load_page(pages.run_page(replace(run, places=run.maps)))
    shown = opened.page.locator("#places li")
    assert shown.all_inner_texts() == [word.text for word in run.maps.words]
    canvas = opened.page.locator("#figures canvas").first
    box = canvas.bounding_box()
    canvas.click(position={"x": 0.25 * box["width"], "y": 0.75 * box["height"]})
    width, height = run.image.size
    command = opened.page.get_by_role("region", name="Ask what this place reads").inner_text()
    place = re.search(r"--place (\d+),(\d+)", command)
    assert place is not None
    assert abs(int(place[1]) - width / 4) <= 1 and abs(int(place[2]) - 3 * height / 4) <= 1
