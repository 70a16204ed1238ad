"""The page of edits: source and edit on one scale, compared, and chosen from a strip."""

from typing import Any

import numpy as np
import pytest

from browser.conftest import MISSING, expect_image
from heedmap.figures import overlays
from heedmap.pipelines import editing

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_pointing_marks_both_images_and_a_word_has_one_scale(
    load_page: Any, pair: Any, pair_page: str
):
    opened = load_page(pair_page)
    assert "cat → dog" in opened.legend()
    assert opened.shares(1)[0][0] == "dog"
    opened.point(0.5, 0.6)
    assert "cat" in dict(opened.shares(0)) and "dog" in dict(opened.shares(1))
    opened.word("dog", "edit").hover()
    ranges = [run.maps["snow"].shared for run in (pair.source, pair.edited)]
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    for number, (run, word) in enumerate(((pair.source, "cat"), (pair.edited, "dog"))):
        image = overlays.enlarge(run.image)
        expected = overlays.overlay(image, run.maps[word].values, low=low, high=high)
        expect_image(opened, expected, number)


def test_the_wipe_the_difference_and_the_blend_are_shown(load_page: Any, pair: Any, pair_page: str):
    opened = load_page(pair_page)
    radios = opened.page.get_by_role("radio")
    radios.nth(1).check()
    opened.slide("Wipe: how much of the source is seen", 25)
    edited = opened.page.locator('figure[data-kind="edited"] .picture')
    assert "25%" in edited.evaluate("e => getComputedStyle(e).clipPath")
    radios.nth(2).check()
    expect_image(opened, pair.difference(), 2)
    assert not edited.is_visible()
    radios.nth(3).check()
    blend, plain = opened.pixels(3), np.asarray(pair.edited.image).astype(int)
    assert (blend[pair.blend] == plain[pair.blend]).all()
    assert blend[~pair.blend].sum() < plain[~pair.blend].sum() * 0.3


def test_a_cell_of_a_grid_opens_as_an_edit(load_page: Any, random_model: Any):
    weights = {"red": [-1, 1, 3]}
    grid = editing.grid(random_model, "a red house", weights=weights, seeds=[7, 8], steps=2)
    opened = load_page(grid.explorer())
    table = opened.page.locator("#strip table")
    headings = table.locator("thead th").all_inner_texts()
    assert headings == ["the source", "red ×−1", "red ×1", "red ×3"]
    assert table.locator("tbody th").all_inner_texts() == ["seed 7", "seed 8"]
    button = table.locator("tbody tr").nth(1).get_by_role("button").nth(2)
    button.click()
    opened.page.locator("#why summary").click()
    command = opened.page.locator("#why pre").text_content()
    assert command.startswith("heedmap explain FOLDER/cells/006 ")
    opened.hide_heat()
    result = grid.cells[5].result
    expect_image(opened, overlays.enlarge(result.source.image), 0)
    expect_image(opened, overlays.enlarge(result.edited.image), 1)
