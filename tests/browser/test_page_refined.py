"""Refined maps on the page: they are Python's, named wherever they are shown, and all of a run."""

import re
from dataclasses import replace
from typing import Any

import pytest

from browser.conftest import canvas, outline, runs_at, same
from heedmap.page import pages

NAMED = "refined by self-attention · all layers · all 6 steps · all heads"


@pytest.mark.parametrize("scale", ["shared"])
def test_a_word_shows_the_refined_overlay_that_python_draws(
    show: Any, run: Any, run_page: str, scale: str
):
    opened = show(run_page)
    opened.choose("Maps", "refined")
    opened.choose("Scale", scale)
    for word in ("house", "tree"):
        opened.word(word).hover()
        heat = run.maps.refined[word]
        same(canvas(opened), heat.overlay(scale=scale))
        low, high = heat.span(scale)
        assert f": {low:.2g} to {high:.2g} · {NAMED}" in opened.legend()
    opened.choose("Maps", "read")
    opened.word("house").hover()
    same(canvas(opened), run.maps["house"].overlay(scale=scale))
    assert "refined" not in opened.legend()


def test_layers_steps_and_heads_rest_and_come_back_as_they_were(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.apart()
    opened.choose("Layers", "group up")
    opened.steps(2, 4)
    opened.choose("Head", "1")
    opened.choose("Scale", "word")
    opened.word("red").click()
    opened.choose("Maps", "refined")
    opened.page.mouse.move(0, 0)
    same(canvas(opened), run.maps.refined["red"].overlay())
    why = opened.page.locator("#whole")
    assert "of all layers, steps and heads together" in why.inner_text()
    for label in ("Layers", "Head", "First step", "Last step", "One scale for all steps"):
        assert opened.page.get_by_label(label, exact=True).is_disabled(), label
    for name in ("Steps before", "Play the steps", "Steps after", "All steps"):
        assert opened.page.get_by_role("button", name=name).is_disabled(), name
    layers = opened.page.get_by_label("Layers", exact=True)
    assert layers.input_value() == "all" and layers.get_attribute("aria-describedby") == "whole"
    assert opened.steps_said() == "all 6 steps"
    assert not opened.page.locator("#matrix").is_visible()
    assert not opened.page.locator("#curve").is_visible()
    opened.choose("Maps", "read")
    assert not why.is_visible() and not layers.is_disabled()
    chosen = run.maps.select(layers="up", steps=slice(2, 4), heads=1)
    same(canvas(opened), chosen["red"].overlay())
    assert opened.page.locator("#matrix").is_visible()
    assert opened.page.locator("#curve").is_visible()


def test_refined_maps_are_offered_where_every_prompt_in_sight_has_them(show: Any, run: Any):
    older = replace(run.negative_maps.recording, refined=None)
    page = pages.run_page(replace(run, negative_maps=replace(run.negative_maps, recording=older)))
    opened = show(page)
    offered = opened.page.get_by_label("Maps", exact=True)
    opened.choose("Maps", "refined")
    opened.word("house").click()
    opened.page.mouse.move(0, 0)
    same(canvas(opened), run.maps.refined["house"].overlay(scale="shared"))
    opened.page.get_by_label("Negative prompt", exact=True).check()
    assert not offered.is_visible() and "refined" not in opened.legend()
    opened.choose("Scale", "word")
    same(canvas(opened), run.maps["house"].overlay())
    opened.page.get_by_label("Negative prompt", exact=True).uncheck()
    assert offered.is_visible() and offered.input_value() == "refined"
    same(canvas(opened), run.maps.refined["house"].overlay())


@pytest.mark.parametrize("maps", ["refined"])
def test_the_outline_of_several_words_is_around_the_mask_of_all(
    show: Any, run: Any, run_page: str, maps: str
):
    """Of words in different phrases; of words of a phrase; of one that is in none."""
    opened = show(run_page)
    opened.choose("Maps", maps)
    opened.page.get_by_label("Outline", exact=True).check()
    for first, last, text in (
        ("red", "tree", "red house next to a blue tree"),
        ("red", "house", "red house"),
        ("a", "house", "a red house"),
        ("next", "next", "next"),
        ("next", "to", "next to"),
    ):
        opened.word(first).first.click()
        if first != last:
            opened.word(last).click(modifiers=["Shift"])
        opened.page.mouse.move(0, 0)
        points, across = outline(opened)
        assert across == 128
        assert runs_at(points, run.maps[text].soft_mask(), 0.5, 1 / 500), text
        assert "outline: its mask at 50\u00a0%" in opened.legend()
        opened.bare()


def test_the_outline_is_the_mask_at_the_threshold(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.choose("Maps", "refined")
    opened.word("house").click()
    opened.page.get_by_label("Outline", exact=True).check()
    opened.slide("Threshold of the outline", 30)
    points, _ = outline(opened)
    assert runs_at(points, run.maps["house"].soft_mask(), 0.3, 1 / 500)


def test_an_edit_has_the_masks_of_both_pictures(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    opened.page.get_by_label("Outline", exact=True).check()
    opened.choose("Maps", "refined")
    opened.word("dog", "edit").click()
    opened.page.mouse.move(0, 0)
    for n, (side, maps) in enumerate((("source", pair.source.maps), ("edited", pair.edited.maps))):
        word = "dog" if n else "cat"
        points, _ = outline(opened, f'figure[data-kind="{side}"]')
        assert runs_at(points, maps[word].soft_mask(), 0.5, 1 / 500), side
    opened.page.get_by_role("radio").nth(2).check()
    assert re.search("outline: its mask at 50\u00a0% · refined by", opened.legend())


def masks_told(opened: Any) -> str:
    """What the page says of how it holds masks; "" for nothing."""
    (*_, last) = ["", *re.findall(r"[^.]*masks[^.]*\.", opened.page.inner_text("#held"))]
    return last.strip()
