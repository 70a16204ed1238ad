"""Words of the page: pinned, joined to phrases, by keyboard and touch, in any script."""

import json
from typing import Any

import numpy as np
import pytest
from making import small, with_settings

from browser.conftest import MISSING, expect_image
from heedmap.figures import overlays
from heedmap.page import pages

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect
HUES = ((230, 159, 0), (86, 180, 233), (0, 158, 115))
"""The colours of the first pins."""

# --- pins, phrases --------------------------------------------------------------------------------


def test_each_pin_has_its_scale(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.pin("house", "tree")
    assert opened.pins() == ["house", "tree"]
    opened.choose("Scale", "word")
    items = opened.page.locator("#legend li")
    for n, word in enumerate(("house", "tree")):
        low, high = run.maps[word].value_range("word")
        assert items.nth(n).inner_text().split("\n") == [word, f"{low:.2g} to {high:.2g}"]
    opened.word("house").click()
    assert opened.pins() == ["tree"]
    opened.page.keyboard.press("Escape")
    assert opened.pins() == []


def test_pins_are_mixed_by_how_much_each_word_acts(load_page: Any, run: Any, run_page: str):
    """Computed once more in numpy: each in its hue over an image that is almost grey."""
    words = ("red", "snow", "blue")
    opened = load_page(run_page)
    opened.slide("Opacity", 60)
    opened.pin(*words)
    image = np.asarray(overlays.enlarge(run.image), dtype=float)
    grey = image @ [0.299, 0.587, 0.114]
    dull = (image + (grey[..., None] - image) * 0.9) * overlays.LIGHT
    base = image + (dull - image) * 0.6 / overlays.OPACITY
    low, high = run.maps["house"].shared
    heats = [overlays.resize_map(run.maps[word].values, image.shape[1::-1]) for word in words]
    cover = 0.6 * np.clip((np.stack(heats, axis=-1) - low) / (high - low), 0, 1)
    clear = np.prod(1 - cover, axis=-1, keepdims=True)
    hue = cover @ np.array(HUES) / np.maximum(cover.sum(axis=-1, keepdims=True), 1e-12)
    expected = base * clear + hue * (1 - clear)
    assert np.abs(opened.pixels() - expected).max() <= 1.5
    assert np.abs(expected - base).max() > 60


def test_a_phrase_is_pinned_by_dragging_and_by_shift(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.choose("Scale", "word")
    opened.word("red").drag_to(opened.word("house"))
    opened.page.mouse.move(0, 0)
    assert opened.pins() == ["red house"]
    expect_image(opened, run.maps["red house"].overlay())
    opened.page.keyboard.press("Escape")
    opened.word("blue").click()
    opened.word("tree").click(modifiers=["Shift"])
    assert opened.pins() == ["blue tree"]


def test_other_tokens_and_the_negative_prompt_are_shown(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.page.get_by_label("Start and end tokens").check()
    opened.choose("Scale", "word")
    opened.word("start token").hover()
    expect_image(opened, run.maps.token(0).overlay())
    opened.word("car", "negative").hover()
    expect_image(opened, run.negative_maps["car"].overlay())


def test_concepts_are_listed_below_the_prompt(load_page: Any, embedded: Any):
    import heedmap

    run: Any = heedmap.generate(embedded, "a blue tree", steps=2, concepts=["grass", "red house"])
    opened = load_page(pages.run_page(run))
    opened.choose("Scale", "word")
    concepts = opened.page.get_by_role("group", name="concepts")
    concepts.get_by_role("button", name="red house", exact=True).hover()
    expect_image(opened, run.concepts["red house"].overlay(scale="word"))


# --- keyboard, screen readers and touch -----------------------------------------------------------


def test_the_page_works_by_keyboard(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    keys, status = opened.page.keyboard, opened.page.locator("#said")
    for key in ("Tab", "ArrowRight", "ArrowRight"):
        keys.press(key)
    expect_image(opened, run.maps["house"].overlay(scale="shared"))
    expect(status).to_contain_text("house: strongest at ")
    keys.press("Enter")
    assert opened.pins() == ["house"]
    keys.press("End")
    expect(status).to_contain_text("snow")
    for _ in range(3):  # past the words of the negative prompt, the pin
        keys.press("Tab")
    assert "picture" in opened.page.evaluate("document.activeElement.className")
    keys.press("ArrowDown")
    expect(status).to_contain_text("across")
    keys.press("Escape")
    assert opened.pins() == []


@pytest.mark.parametrize("kind, scheme", [("run", "light"), ("pair", "dark")])
def test_axe_finds_nothing_serious(
    axe: str, load_page: Any, run_page: str, pair_page: str, kind: str, scheme: str
):
    text = run_page if kind == "run" else pair_page
    opened = load_page(text, color_scheme=scheme, viewport={"width": 390, "height": 900})
    opened.page.get_by_label("Start and end tokens").check()
    for summary in opened.page.locator("summary").all():
        summary.click()
    opened.point(0.5, 0.5)
    opened.page.evaluate(axe)
    violations = opened.page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    found = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in violations]
    assert not found, json.dumps(found, indent=1)


def test_a_phone_scrolls_down_only_and_taps_pin(load_page: Any, run_page: str):
    viewport = {"width": 390, "height": 844}
    opened = load_page(run_page, viewport=viewport, has_touch=True, is_mobile=True)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    opened.word("house").tap()
    assert opened.pins() == ["house"]


# --- hostile and foreign text ---------------------------------------------------------------------


def test_a_hostile_prompt_stays_text(load_page: Any):
    prompt = "a <img src=x onerror=alert(1)> </script><script>alert(2)</script> cat"
    run = with_settings(small(prompt), negative="<svg onload=alert(3)>")
    opened = load_page(pages.run_page(run))
    assert opened.page.locator(".prompt").inner_text() == prompt
    assert opened.page.locator("img").count() == 0
    opened.word("cat").click()
    opened.page.wait_for_timeout(100)
