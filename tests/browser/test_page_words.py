"""Words of the page: pinned, joined to phrases, by keyboard and touch, in any script."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import noting, small

from browser.conftest import MISSING, PINS, canvas, point, readings, same
from heedmap.figures import overlays
from heedmap.page import pages
from heedmap.text.words import Word

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


# --- pins, phrases --------------------------------------------------------------------------------


def test_each_pin_has_its_colour_and_its_scale(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.word("house").click()
    opened.word("tree").click()
    opened.page.mouse.move(0, 0)
    assert opened.page.locator(PINS).all_inner_texts() == ["house", "tree"]
    assert opened.word("house").get_attribute("aria-pressed") == "true"
    hues = opened.page.locator("#pins .swatch").evaluate_all(
        "all => all.map((e) => getComputedStyle(e).backgroundColor)"
    )
    assert len(set(hues)) == 2
    shown = canvas(opened).pixels()
    x, y = (2 * v for v in run.maps["house"].peak)
    orange = np.array([int(v) for v in hues[0][4:-1].split(",")])
    grey = np.asarray(overlays.enlarge(run.image)).astype(int)[y, x]
    assert np.abs(shown[y, x] - orange).sum() < np.abs(grey - orange).sum()
    opened.choose("Scale", "word")
    items, bars = (opened.page.locator(f"#legend {one}") for one in ("li", ".scale"))
    for n, word in enumerate(("house", "tree")):
        low, high = run.maps[word].value_range("word")
        assert items.nth(n).inner_text().split("\n") == [word, f"{low:.2g} to {high:.2g}"]
        hue = ("rgb(230, 159, 0)", "rgb(86, 180, 233)")[n]
        assert hues[n] == hue
        assert hue in bars.nth(n).evaluate("e => getComputedStyle(e).backgroundImage")
    opened.word("house").click()
    assert opened.page.locator(PINS).all_inner_texts() == ["tree"]
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(PINS).count() == 0


def test_pins_are_mixed_by_how_much_each_word_acts(show: Any, run: Any, run_page: str):
    """Computed once more in numpy: each in its hue over a picture that is almost grey."""
    words = ("red", "snow", "blue")
    opened = show(run_page)
    opened.slide("Opacity", 60)
    for word in words:
        opened.word(word).click()
    opened.page.mouse.move(0, 0)
    hues = np.array([[230, 159, 0], [86, 180, 233], [0, 158, 115]])[: len(words)]
    picture = np.asarray(overlays.enlarge(run.image), dtype=float)
    grey = picture @ [0.299, 0.587, 0.114]
    dull = (picture + (grey[..., None] - picture) * 0.9) * overlays.LIGHT
    base = picture + (dull - picture) * 0.6 / overlays.OPACITY
    low, high = run.maps["house"].shared
    heats = [overlays.resize_map(run.maps[word].values, picture.shape[1::-1]) for word in words]
    cover = 0.6 * np.clip((np.stack(heats, axis=-1) - low) / (high - low), 0, 1)
    clear = np.prod(1 - cover, axis=-1, keepdims=True)
    hue = cover @ hues / np.maximum(cover.sum(axis=-1, keepdims=True), 1e-12)
    expected = base * clear + hue * (1 - clear)
    off = np.abs(canvas(opened).pixels() - expected)
    assert off.max() <= 1.5 and np.abs(expected - base).max() > 60


def test_a_phrase_is_pinned_by_dragging_and_by_shift(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.choose("Scale", "word")
    first, last = (opened.word(text).bounding_box() for text in ("red", "house"))
    mouse = opened.page.mouse
    mouse.move(first["x"] + 5, first["y"] + 12)
    mouse.down()
    mouse.move(last["x"] + 5, last["y"] + 12, steps=4)
    mouse.up()
    mouse.move(0, 0)
    assert opened.page.locator(PINS).all_inner_texts() == ["red house"]
    same(canvas(opened), run.maps["red house"].overlay())
    opened.page.keyboard.press("Escape")
    opened.word("blue").click()
    opened.word("tree").click(modifiers=["Shift"])
    assert opened.page.locator(PINS).all_inner_texts() == ["blue tree"]
    opened.page.keyboard.press("Escape")
    mouse.move(first["x"] + 5, first["y"] + 12)  # there and back: the one word
    mouse.down()
    mouse.move(last["x"] + 5, last["y"] + 12, steps=4)
    mouse.move(first["x"] + 5, first["y"] + 12, steps=4)
    mouse.up()
    assert opened.page.locator(PINS).all_inner_texts() == ["red"]


def test_start_and_end_tokens_and_the_negative_prompt_are_shown(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    assert opened.page.get_by_role("button", name="start token").count() == 0
    opened.page.get_by_label("Start and end tokens").check()
    opened.choose("Scale", "word")
    opened.word("start token").hover()
    same(canvas(opened), run.maps.token(0).overlay())
    opened.word("car", "negative").hover()
    same(canvas(opened), run.negative_maps["car"].overlay())


def test_concepts_are_listed_below_the_prompt(show: Any, sought: Any):
    opened = show(pages.run_page(sought))
    opened.choose("Scale", "word")
    for word in ("grass", "red house"):
        chip = opened.page.get_by_role("group", name="concepts").get_by_role(
            "button", name=word, exact=True
        )
        chip.hover()
        same(canvas(opened), sought.concepts[word].overlay(scale="word"))
        chip.click()
        chip.click()
    names = opened.page.locator("#prompts .side").all_inner_texts()
    assert names == ["Negative", "Concepts"]
    opened.word("car", "negative").hover()
    same(canvas(opened), sought.negative_maps["car"].overlay(scale="word"))
    opened.choose("Maps", "refined")
    opened.page.get_by_role("group", name="concepts").get_by_role("button", name="grass").hover()
    same(canvas(opened), sought.concepts.refined["grass"].overlay(scale="word"))


# --- keyboard, screen readers and touch -----------------------------------------------------------


def test_the_page_works_by_keyboard(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    keys = opened.page.keyboard
    keys.press("Tab")
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    focused = "document.activeElement.textContent"
    assert opened.page.evaluate(focused) == "house"
    same(canvas(opened), run.maps["house"].overlay(scale="shared"))
    expect(opened.page.locator("#said")).to_contain_text("house: strongest at ")
    keys.press("Enter")
    assert opened.page.locator(PINS).all_inner_texts() == ["house"]
    keys.press("End")
    assert opened.page.evaluate(focused) == "snow"
    status = opened.page.locator("#said")
    expect(status).to_contain_text("snow")
    for _ in range(3):  # past the words of the negative prompt, the pin
        keys.press("Tab")
    assert "picture" in opened.page.evaluate("document.activeElement.className")
    before = readings(opened)
    for _ in range(4):
        keys.press("Shift+ArrowRight")
    keys.press("ArrowDown")
    assert readings(opened) != before
    expect(status).to_contain_text("across")
    assert "%" in status.inner_text()
    keys.press("Escape")
    assert opened.page.locator(PINS).count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind, scheme, width", [("run", "light", 1400), ("pair", "dark", 390)])
def test_axe_finds_nothing_serious(
    axe: str, show: Any, run_page: str, pair_page: str, kind: str, scheme: str, width: int
):
    text = run_page if kind == "run" else pair_page
    opened = show(text, color_scheme=scheme, viewport={"width": width, "height": 900})
    opened.word(*(("house",) if kind == "run" else ("dog", "edit"))).click()
    opened.page.get_by_label("Start and end tokens").check()
    for summary in opened.page.locator("summary").all():
        summary.click()
    point(opened, 0.5, 0.5)
    opened.page.evaluate(axe)
    found = opened.page.evaluate("axe.run({resultTypes: ['violations']})")
    bad = [
        (one["id"], one["help"], [node["html"][:120] for node in one["nodes"]][:4])
        for one in found["violations"]
    ]
    assert not bad, json.dumps(bad, indent=1)


def test_a_phone_scrolls_down_only_and_taps_pin(show: Any, run_page: str):
    opened = show(run_page, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    opened.word("house").tap()
    assert opened.page.locator(PINS).all_inner_texts() == ["house"]
    opened.page.locator(".picture").tap()
    assert readings(opened)


# --- hostile and foreign text ---------------------------------------------------------------------


def test_a_hostile_prompt_stays_text(show: Any):
    prompt = "a <img src=x onerror=alert(1)> </script><script>alert(2)</script> cat"
    run = noting(small(prompt), negative="<svg onload=alert(3)>")
    opened = show(pages.run_page(run))
    assert opened.page.locator(".prompt").inner_text() == prompt
    assert opened.page.locator("img").count() == 0
    opened.word("cat").click()
    opened.page.wait_for_timeout(100)


def test_words_past_the_limit_are_struck_through_with_a_note(show: Any):
    run = small()
    table = run.maps.tokens
    more = (Word(3, "over", 12, 16, (), 1), Word(4, "there", 17, 22, (), 1))
    longer = replace(table, prompt="a red house over there", words=(*table.words, *more), missing=2)
    run.maps = replace(run.maps, recording=replace(run.maps.recording, table=longer))
    opened = show(pages.run_page(run))
    assert opened.page.locator(".prompt s").all_inner_texts() == ["over", "there"]
    assert longer.unread[1:] in opened.page.locator("header").inner_text()
    assert "greyed out" not in opened.page.locator("#held").inner_text()  # no head to choose
