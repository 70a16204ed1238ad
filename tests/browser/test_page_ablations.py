"""The page of an ablation: the image, the image without the word, the heat and the change."""

from typing import Any

import numpy as np
import pytest
from making import made_ablation, with_refined
from PIL import Image

from browser.conftest import MISSING, same, seen
from heedmap.figures import overlays
from heedmap.results.ablations import Ablation

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


@pytest.fixture(scope="module")
def found() -> Ablation:
    made = made_ablation()
    runs = {way: with_refined(run) for way, run in made.without.items()}
    return Ablation(made.word, with_refined(made.run), runs)


def check(opened: Any, kind: str, expected: Image.Image) -> None:
    """The picture of a kind is seen, and is the expected one."""
    figure = opened.page.locator(f'figure[data-kind="{kind}"]')
    assert figure.is_visible()
    same(seen(figure.locator("canvas")), expected)


def change_image(found: Ablation, way: Any) -> Image.Image:
    values = found.difference(way)
    return Image.fromarray(overlays.colour(values / values.max()))


def test_all_four_are_seen_at_once_in_each_way(show: Any, found: Ablation):
    opened = show(found.page())
    heat = found.run.maps["house"]
    for number, way in enumerate(("attention", "prompt")):
        opened.page.locator("#strip button").nth(number).click()
        expect(opened.page.locator("#verdict")).to_contain_text(found.verdict(way))
        expect(opened.page.locator("#figures figure:visible")).to_have_count(4)
        check(opened, "plain-source", overlays.enlarge(found.run.image))
        check(opened, "plain-edited", overlays.enlarge(found.without[way].image))
        check(opened, "source", heat.overlay(scale="word"))
        check(opened, "difference", change_image(found, way))
        agreement = found.agreement[way].heat
        row = opened.page.locator("#evidence tr", has=opened.page.get_by_text("heat", exact=True))
        cells = [text.replace("\u2212", "-") for text in row.locator("td").all_inner_texts()]
        expected = [agreement.auc, agreement.rank]
        np.testing.assert_allclose([float(cell) for cell in cells], expected, atol=0.006)
        again = opened.page.locator("#about pre").inner_text()
        assert again.startswith(f"heedmap repeat FOLDER/{way}")


def test_the_word_is_named_in_both_prompts_and_other_words_can_be_shown(show: Any, found: Ablation):
    opened = show(found.page())
    assert opened.page.locator(".prompt").all_inner_texts() == [
        "at house, at sea",
        "at house\u00d70, at sea",
    ]
    assert "house" in opened.legend()
    opened.page.locator("#strip button").nth(1).click()
    expect(opened.page.locator(".prompt").nth(1)).to_have_text("at , at sea")
    opened.word("sea", "original").click()
    opened.page.mouse.move(0, 0)
    check(opened, "source", found.run.maps["sea"].overlay(scale="word"))
    opened.page.locator("#why summary").click()
    command = opened.page.locator("#why pre").text_content()
    assert command.startswith("heedmap explain FOLDER/run --word sea ")


def test_a_phrase_at_several_places_is_shown_as_one_word(show: Any):
    found = made_ablation("at", "at house, at sea")
    opened = show(found.page())
    check(opened, "source", found.run.maps["at"].overlay(scale="word"))


def test_the_parts_of_the_page_can_be_chosen(show: Any, found: Ablation):
    opened = show(found.page())
    assert "outline" in opened.legend()  # on the change
    visible = opened.page.locator("#figures figure:visible")
    for mode, count in {"side": 2, "wipe": 2, "difference": 1, "all": 4}.items():
        opened.page.locator(f"#modes input[value={mode}]").check()
        expect(visible).to_have_count(count)


@pytest.mark.slow
@pytest.mark.parametrize("width, scheme", [(1400, "dark"), (390, "light")])
def test_axe_finds_nothing_and_the_page_fits(
    axe: str, show: Any, found: Ablation, width: int, scheme: str
):
    opened = show(found.page(), color_scheme=scheme, viewport={"width": width, "height": 900})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.evaluate(axe)
    violations = opened.page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    assert not [(one["id"], one["help"]) for one in violations]
