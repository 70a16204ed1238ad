"""The page of edits: source and edit on one scale, compared, and chosen from a strip."""

from typing import Any

import numpy as np
import pytest
from making import Edited
from msgspec import structs

from browser.conftest import MISSING, canvas, point, readings, same
from heedmap.figures import overlays
from heedmap.page import pages

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_a_word_shows_in_source_and_edit_on_one_scale(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    opened.word("dog", "edit").hover()
    spans = [run.maps["snow"].shared for run in (pair.source, pair.edited)]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    for nth, (run, word) in enumerate(((pair.source, "cat"), (pair.edited, "dog"))):
        expected = overlays.overlay(
            overlays.enlarge(run.image), run.maps[word].values, low=low, high=high
        )
        same(canvas(opened, nth), expected)
    assert "cat → dog" in opened.legend()


def test_pointing_is_linked(show: Any, pair_page: str):
    opened = show(pair_page)
    point(opened, 0.5, 0.6, nth=0)
    assert "cat" in dict(readings(opened, 0)) and "dog" in dict(readings(opened, 1))
    crosses = opened.page.locator("svg g:last-child path.line").evaluate_all(
        "all => all.slice(0, 2).map((e) => e.getAttribute('d'))"
    )
    assert crosses[0] == crosses[1]


def test_wipe_difference_and_blend(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    radios = opened.page.get_by_role("radio")
    radios.nth(1).check()
    opened.slide("Wipe: how much of the source is seen", 25)
    edited = opened.page.locator('figure[data-kind="edited"] .picture')
    assert "25%" in edited.evaluate("e => getComputedStyle(e).clipPath")
    boxes = [opened.page.locator(".picture").nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0] == boxes[1]
    radios.nth(2).check()
    same(canvas(opened, 2), pair.difference())
    assert not edited.is_visible()
    radios.nth(3).check()
    shown, plain = canvas(opened, 3).pixels(), np.asarray(pair.edited.image).astype(int)
    assert (shown[pair.blend] == plain[pair.blend]).all()
    if not pair.blend.all():
        assert shown[~pair.blend].sum() < plain[~pair.blend].sum() * 0.3
    radios.nth(0).check()
    assert edited.is_visible()
    assert "MSE" in opened.page.locator("#about").inner_text()


def test_a_strip_of_edits_is_chosen_from(show: Any, pair: Any):
    weak = Edited(pair.source, pair.source, structs.replace(pair.about, why="nothing"))
    opened = show(pages.pairs_page([("dog", pair), ("same", weak)]))
    assert opened.page.locator("#strip button").all_inner_texts() == ["dog", "same"]
    opened.page.get_by_role("button", name="same").click()
    expect(opened.page.locator(".prompt").nth(1)).to_contain_text("cat")
    expect(opened.page.locator("#figures figure")).to_have_count(3)
    opened.bare()
    same(canvas(opened, 1), overlays.enlarge(pair.source.image))
