"""Steps of the page: any range of them, by pointer, keyboard and playing."""

import base64
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import noise, small, stable_diffusion
from PIL import Image

from browser.conftest import MISSING, expect_image
from heedmap.figures import overlays
from heedmap.figures.overlays import StepPictures, of_mosaic
from heedmap.page import pages
from heedmap.page.pages import steps_data

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_buttons_move_the_steps_and_play_them(load_page: Any, run_page: str):
    """Playing moves a window of the chosen width."""
    opened = load_page(run_page)
    for button, step in (("Steps after", 0), ("Steps after", 1), ("Steps before", 0)):
        opened.page.get_by_role("button", name=button).click()
        assert opened.steps() == f"step {step} of 0–5"
    opened.page.get_by_role("button", name="All steps").click()
    assert opened.steps() == "all 6 steps"
    opened.choose_steps(0, 2)
    play = opened.page.get_by_role("button", name="Play the steps")
    play.click()
    expect(opened.page.locator("#steps-said")).to_have_text("steps 4–5 of 0–5")
    play.wait_for()  # it stops by itself


def test_ranges_of_merged_steps_begin_and_end_with_whole_windows(load_page: Any):
    keep = frozenset({"layer", "step"})
    run = stable_diffusion("a red house", keep=keep, steps=12, side=16, heads=1)
    opened = load_page(pages.run_page(run, limit=400_000))
    opened.word("house").click()
    opened.choose_steps(2, 5)
    assert opened.steps() == "steps 4–9 of 0–11"


def step_image(run: Any, step: int) -> Image.Image:
    """The image of a step as the page holds it, as large as the run's own."""
    data: Any = steps_data(run.step_pictures, 10**9)
    raw = base64.b64decode(data["picture"].partition(",")[2])
    sheet = Image.open(io.BytesIO(raw)).convert("RGB")
    frame = of_mosaic(sheet, 4, tuple(data["size"]), "prediction").frames[step]
    return frame.resize(overlays.enlarge(run.image).size, Image.Resampling.BILINEAR)


def test_the_image_of_a_step_lies_beneath_its_heat(load_page: Any):
    smooth = [noise(n, (4, 4)).resize((32, 32), Image.Resampling.BICUBIC) for n in range(4)]
    images = StepPictures(tuple(smooth), "prediction")
    run: Any = small("a red house", frozenset({"layer", "step"}))
    run = replace(run, step_pictures=images)
    opened = load_page(pages.run_page(run))
    opened.hide_heat()
    opened.choose_steps(0, 1)
    expect_image(opened, step_image(run, 0))
    opened.choose_steps(1, 3)
    expect_image(opened, step_image(run, 2))  # of several the last
    opened.page.get_by_label("Image at the step").uncheck()
    expect_image(opened, overlays.enlarge(run.image))


def test_all_steps_share_one_scale_that_is_named(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.page.get_by_label("Image at the step").uncheck()
    opened.choose("Scale", "word")
    ranges = [run.maps.select(steps=step)["house"].value_range("word") for step in range(6)]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    opened.choose_steps(4, 6)
    opened.word("house").hover()
    heat = run.maps.select(steps=slice(4, 6))["house"]
    image = overlays.enlarge(run.image)
    expect_image(opened, overlays.overlay(image, heat.values, low=low, high=high))
    assert f"one scale for all steps: {low:.2g} to {high:.2g}" in opened.legend()


def test_the_curve_is_a_words_mean_at_each_step(load_page: Any, run: Any, run_page: str):
    opened = load_page(run_page)
    opened.pin("house")
    means = np.array([run.maps.select(steps=n)["house"].values.mean() for n in range(6)])
    path = opened.page.locator('#curve path[data-word="house"]').get_attribute("d")
    points = np.array([part.split() for part in path[1:].split("L")], dtype=float)
    np.testing.assert_allclose(points[:, 0], 4 + (np.arange(6) + 0.5) * 52, atol=0.05)
    np.testing.assert_allclose(points[:, 1], 78 - means / means.max() * 72, atol=0.15)
    box = opened.page.locator("#curve svg").bounding_box()
    opened.page.mouse.click(box["x"] + 2.5 / 6 * box["width"], box["y"] + 10)
    assert opened.steps() == "step 2 of 0–5"
