"""Words of the page: pinned, joined to phrases, by keyboard and touch, in any script."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import made_trust, noisy_run, noting, small, with_refined

from browser.conftest import MISSING, PINS, canvas, point, readings, same
from heedmap import explorer
from heedmap.figures import overlays
from heedmap.text.words import Word

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


# --- pins, phrases --------------------------------------------------------------------------------


def test_pins_have_each_its_colour_and_escape_takes_them_off(show: Any, run: Any, run_page: str):
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
    opened.word("house").click()
    assert opened.page.locator(PINS).all_inner_texts() == ["tree"]
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(PINS).count() == 0


def test_a_word_says_by_how_much_it_was_multiplied(show: Any):
    opened = show(explorer.page(noisy_run("a (red:-2) house, (blue:0.5)", 0, "a red house, blue")))
    said = " ".join(opened.page.locator("#prompts").inner_text().split())
    assert said == "a red×−2 house, blue×0.5"


def test_the_legend_says_how_stable_a_words_map_is(show: Any):
    """Of the whole run as it was read; of a part, a phrase, a share or refined maps it is none."""
    made = with_refined(small("a red house", frozenset({"layer", "step"})))
    maps = replace(made.maps, stability={1: 0.984, 2: 0.5})
    opened = show(explorer.page(replace(made, maps=maps)))
    held = opened.page.locator("#legend li small")
    opened.word("red").hover()
    assert held.all_inner_texts() == ["stability 0.98"]
    assert "not therefore true" in held.get_attribute("title")
    opened.word("a").hover()
    assert held.count() == 0
    opened.word("house").hover()
    assert held.all_inner_texts() == ["stability 0.50, unsteady"]
    for label, value, whole in (
        ("Maps", "refined", "read"), ("Scale", "content", "shared"), ("Layers", "layer 2", "all")
    ):  # fmt: skip
        opened.choose(label, value)
        opened.word("house").hover()
        assert "house" in opened.legend() and "stability" not in opened.legend()
        opened.choose(label, whole)
    opened.steps(1, 2)
    opened.word("house").hover()
    assert "stability" not in opened.legend()
    opened.steps(0, 4)
    opened.word("a").click()
    opened.word("red").click()
    opened.page.mouse.move(0, 0)
    one, other = held.all_inner_texts()
    assert "stability" not in one and " to " in one
    assert other.endswith(" · stability 0.98") and " to " in other
    opened.page.keyboard.press("Escape")
    opened.pin_phrase("red", "house")
    assert opened.page.locator(PINS).all_inner_texts() == ["red house"]
    assert "red house" in opened.legend() and "stability" not in opened.legend()


def test_the_legend_says_how_far_attention_and_cause_agree(show: Any):
    """Of the word or phrase that was left out, by the maps that are shown; of a part it is none."""
    made = with_refined(small("a red house", frozenset({"layer", "step"})))
    causes = {"red": made_trust(), "red house": made_trust(0.31, 0.7)}
    opened = show(explorer.page(replace(made, trust=causes)))
    held = opened.page.locator("#legend li small")
    opened.word("red").hover()
    assert held.all_inner_texts() == ["attention and cause (columns): rank 0.62, AUC 0.91"]
    assert "0.5 by chance" in held.get_attribute("title")
    opened.choose("Maps", "refined")
    opened.word("red").hover()
    assert held.all_inner_texts() == ["attention and cause (columns): rank −0.62, AUC 0.91"]
    opened.choose("Maps", "read")
    opened.word("house").hover()
    assert held.count() == 0
    opened.choose("Layers", "layer 2")
    opened.word("red").hover()
    assert "cause" not in opened.legend()
    opened.choose("Layers", "all")
    opened.pin_phrase("red", "house")
    assert held.all_inner_texts() == ["attention and cause (columns): rank 0.31, AUC 0.70"]
    opened.word("red").click()  # by itself, beside the phrase
    opened.page.mouse.move(0, 0)
    assert held.count() == 2
    assert all("0.5 by chance" in (one.get_attribute("title") or "") for one in held.all())


@pytest.mark.parametrize("words", [("house", "tree"), ("red", "snow", "blue")])
def test_pins_are_mixed_by_how_much_each_word_acts(
    show: Any, run: Any, run_page: str, words: tuple[str, ...]
):
    """Computed once more in numpy: each in its hue over a picture that is almost grey."""
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


def test_a_phrase_by_dragging_and_by_shift(show: Any, run: Any, run_page: str):
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


def test_of_two_words_with_scales_of_their_own_each_says_its_range(
    show: Any, run: Any, run_page: str
):
    opened = show(run_page)
    opened.bare()
    opened.choose("Scale", "word")
    for word in ("red", "house"):
        opened.word(word).click()
    told = opened.page.locator("#legend li small").all_inner_texts()
    values = [run.maps[word].span("word") for word in ("red", "house")]
    assert told == [f"{low:.2g} to {high:.2g}" for low, high in values]
    assert "each word its own ·" in opened.legend()  # and no range of all


def test_start_and_end_tokens_and_the_negative_prompt_on_request(
    show: Any, run: Any, run_page: str
):
    opened = show(run_page)
    assert opened.page.get_by_role("button", name="start token").count() == 0
    opened.page.get_by_label("Start and end tokens").check()
    opened.choose("Scale", "word")
    opened.word("start token").hover()
    same(canvas(opened), run.maps.token(0).overlay())
    opened.page.get_by_label("Negative prompt", exact=True).and_(
        opened.page.locator("input")
    ).check()
    opened.word("car", "negative").hover()
    same(canvas(opened), run.negative_maps["car"].overlay())


def test_what_was_looked_for_stands_below_the_prompt(show: Any, sought: Any):
    from heedmap import explorer

    opened = show(explorer.page(sought))
    names = opened.page.locator("#prompts .side").all_inner_texts()
    assert names == ["Looked for"]  # the negative prompt is asked for first
    opened.choose("Scale", "word")
    for word in ("grass", "red house"):
        chip = opened.page.get_by_role("group", name="looked for").get_by_role(
            "button", name=word, exact=True
        )
        chip.hover()
        same(canvas(opened), sought.concepts[word].overlay(scale="word"))
        chip.click()
        chip.click()
    assert opened.page.locator("#negative-row").is_visible()
    opened.page.locator("#negative").check()
    names = opened.page.locator("#prompts .side").all_inner_texts()
    assert names == ["Negative", "Looked for"]
    opened.word("car", "negative").hover()
    same(canvas(opened), sought.negative_maps["car"].overlay(scale="word"))
    opened.page.locator("#negative").uncheck()
    opened.choose("Maps", "refined")
    opened.page.get_by_role("group", name="looked for").get_by_role("button", name="grass").hover()
    same(canvas(opened), sought.concepts.refined["grass"].overlay(scale="word"))


def test_what_was_looked_for_is_no_part_of_what_the_words_draw(show: Any, sought: Any):
    """One concept alone would have all of it, everywhere."""
    opened = show(explorer.page(sought))
    stronger = set()  # whether a word of the prompt is the strongest there
    for word in ("red", "blue"):
        opened.word(word).click()
        lists = opened.page.locator("#reading ol").all()
        prompt, beside = ([row.inner_text() for row in one.locator("li").all()] for one in lists)
        assert all("%" in row for row in prompt) and not any("%" in row for row in beside)
        values = [float(row.splitlines()[-1]) for row in (*prompt, *beside)]
        most, drawn = max(values), sum(values[: len(prompt)])
        bars = opened.page.locator("#reading ol").nth(1).locator(".bar").all()
        parts = [float(one.evaluate("one => one.style.getPropertyValue('--part')")) for one in bars]
        # The bars are on one scale: that of what all words of the prompt draw there.
        wanted = np.array(values[len(prompt) :]) / drawn
        np.testing.assert_allclose(parts, np.minimum(wanted, 1), rtol=0.06)
        lit = opened.page.get_by_role("group", name="looked for").get_by_role("button")
        found = {
            one.inner_text(): float(one.evaluate("one => one.style.getPropertyValue('--lit')"))
            for one in lit.all()
        }
        names = [row.splitlines()[0] for row in beside]
        lights = np.array(values[len(prompt) :]) / most
        np.testing.assert_allclose([found[name] for name in names], lights, rtol=0.06)
        stronger.add(max(values[: len(prompt)]) == most)
        opened.word(word).click()
    assert stronger == {False, True}
    said = opened.page.inner_text("#reading")
    assert "Share: of what all words of the prompt draw there together; what was looked" in said


# --- keyboard, screen readers and touch -----------------------------------------------------------


def test_all_of_it_by_keyboard(show: Any, run: Any, run_page: str):
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
    keys.press("Tab")
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
@pytest.mark.parametrize(
    "kind, scheme, width",
    [("run", "light", 1400), ("run", "dark", 390), ("pair", "dark", 1400), ("pair", "light", 390)],
)
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
    opened = show(explorer.page(run))
    assert opened.page.locator(".prompt").inner_text() == prompt
    assert opened.page.locator("img").count() == 0
    opened.word("cat").click()
    opened.page.wait_for_timeout(100)


def test_a_prompt_of_no_words_shows_its_tokens(show: Any):
    opened = show(explorer.page(small("!!!")))
    opened.page.get_by_label("Start and end tokens").check()
    opened.word("end token").hover()
    assert "end token" in opened.legend()


@pytest.mark.parametrize("prompt, word", [("눈 속의 빨간 집", "집"), ("بيت أحمر في الثلج", "أحمر")])
def test_prompts_of_other_scripts(show: Any, prompt: str, word: str):
    opened = show(explorer.page(small(prompt)))
    assert opened.page.locator(".prompt").inner_text() == prompt
    opened.word(word).click()
    assert opened.page.locator(PINS).all_inner_texts() == [word]
    first, second = (
        opened.page.locator(".prompt button").nth(n).bounding_box()["x"] for n in (0, 1)
    )
    assert (first > second) == (word == "أحمر")  # Arabic runs from right to left


def test_words_that_were_not_read_are_struck_through_and_the_page_says_so(show: Any):
    run = small()
    table = run.maps.tokens
    more = (Word(3, "over", 12, 16, (), 1), Word(4, "there", 17, 22, (), 1))
    longer = replace(table, prompt="a red house over there", words=(*table.words, *more), missing=2)
    run.maps = replace(run.maps, recording=replace(run.maps.recording, table=longer))
    opened = show(explorer.page(run))
    assert opened.page.locator(".prompt s").all_inner_texts() == ["over", "there"]
    assert "are not read, since the model reads" in opened.page.locator("header").inner_text()
    assert "greyed out" not in opened.page.locator("#held").inner_text()  # no head to choose


def test_the_legend_says_where_a_negative_weight_led_below_zero(show: Any):
    run = small()
    opened = show(explorer.page(run))
    opened.word("house").hover()
    assert "below 0" not in opened.legend()
    arrays = tuple(array - 0.5 for array in run.maps.recording.arrays)
    run.maps = replace(run.maps, recording=replace(run.maps.recording, arrays=arrays))
    opened = show(explorer.page(run))
    opened.word("house").hover()
    assert "signed weight: blue is below 0" in opened.legend()
