"""Refined maps on the page: they are Python's, named wherever they are shown, and all of a run."""

from dataclasses import replace
from typing import Any

from browser.conftest import canvas, outline, runs_at, same
from heedmap.page import pages

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


def test_the_outline_is_the_mask_at_the_threshold(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.choose("Maps", "refined")
    opened.word("house").click()
    opened.page.get_by_label("Outline", exact=True).check()
    opened.slide("Threshold of the outline", 30)
    points, _ = outline(opened)
    assert runs_at(points, run.maps["house"].soft_mask(), 0.3, 1 / 500)
