"""The page of an ablation: the image, the image without the word, the heat and the change."""

from typing import Any

import numpy as np
import pytest
from making import random_ablation, with_refined
from PIL import Image

from browser.conftest import MISSING, is_close, read_pixels
from heedmap.figures import overlays
from heedmap.results.ablations import Ablation

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


@pytest.fixture(scope="module")
def ablation() -> Ablation:
    made = random_ablation()
    runs = {way: with_refined(run) for way, run in made.without.items()}
    return Ablation(made.word, with_refined(made.run), runs)


def check_image(opened: Any, kind: str, expected: Image.Image) -> None:
    """The image of a kind is visible, and is the expected one."""
    figure = opened.page.locator(f'figure[data-kind="{kind}"]')
    assert figure.is_visible()
    assert is_close(read_pixels(figure.locator("canvas")), expected)


def test_images_heat_and_change_are_shown_in_each_way(load_page: Any, ablation: Ablation):
    opened = load_page(ablation.page())
    prompts = opened.page.locator(".prompt")
    assert prompts.all_inner_texts() == ["at house, at sea", "at house\u00d70, at sea"]
    heat = ablation.run.maps["house"].overlay(scale="word")
    for number, way in enumerate(("attention", "prompt")):
        opened.page.locator("#strip button").nth(number).click()
        expect(opened.page.locator("#verdict")).to_contain_text(ablation.verdict(way))
        check_image(opened, "plain-edited", overlays.enlarge(ablation.without[way].image))
        check_image(opened, "source", heat)
        values = ablation.difference(way)
        check_image(opened, "difference", Image.fromarray(overlays.colour(values / values.max())))
        row = opened.page.locator("#evidence tr", has=opened.page.get_by_text("heat", exact=True))
        cells = [text.replace("\u2212", "-") for text in row.locator("td").all_inner_texts()]
        agreement = ablation.agreement[way].heat
        expected = [agreement.auc, agreement.rank]
        np.testing.assert_allclose([float(cell) for cell in cells], expected, atol=0.006)
