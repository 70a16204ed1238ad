"""What the page shows before anybody points, and what it offers to choose and to repeat."""

import shlex
from typing import Any

import pytest
from making import maps_of, settings_of

from browser.conftest import MISSING, expect_image
from heedmap.page import pages
from heedmap.results.runs import Run

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_a_page_opens_with_the_heat_of_the_strongest_content_word(load_page: Any):
    """The image is wider than it is high."""
    maps = maps_of(latent=(8, 20))
    run = Run(maps.image, maps, settings_of(prompt=maps.tokens.prompt))
    opened = load_page(pages.run_page(run))
    number = pages.strongest_word(maps)
    heat = maps.at(number)
    expect_image(opened, heat.overlay(scale="shared"))


def test_every_word_has_a_thumbnail_that_pins_it(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    thumbnails = opened.page.locator("#thumbs button")
    assert thumbnails.all_inner_texts() == [word.text for word in run.maps.words]
    thumbnails.nth(2).click()
    assert opened.pins() == ["house"]


def test_layers_and_heads_are_a_table_to_choose_from(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.page.locator("#matrix summary").click()
    rows = opened.page.locator("#matrix tbody tr")
    rows.nth(2).get_by_role("button", name="head 1").click()
    opened.choose("Scale", "word")
    opened.word("house").hover()
    name = run.maps.recording.layers[2].name
    expect_image(opened, run.maps.select(layers=name, heads=1)["house"].overlay())


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
