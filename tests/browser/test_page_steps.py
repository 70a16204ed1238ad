"""Steps of the page: any range of them, by pointer, keyboard and playing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import data_of, small, stable_diffusion
from PIL import Image

from browser.conftest import MISSING, canvas, same
from heedmap.figures import overlays
from heedmap.figures.overlays import StepPictures, of_mosaic
from heedmap.page import pages
from heedmap.page.pages import steps_data

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect

STEPS = frozenset({"layer", "step"})


def map_kept(opened: Any, folder: Path) -> tuple[str, np.ndarray]:
    """The name and the numbers of the map that the page gives as a file."""
    with opened.page.expect_download() as waiting:
        opened.page.locator("#npy").click()
    kept = folder / waiting.value.suggested_filename
    waiting.value.save_as(kept)
    return kept.stem, np.load(kept, allow_pickle=False)


def test_any_range_of_steps_equals_pythons_selection(show: Any, run: Any, run_page: str):
    scale = "shared"
    opened = show(run_page)
    opened.apart()
    opened.choose("Scale", scale)
    for a, b in ((0, 1), (2, 5), (5, 6), (0, 6)):
        opened.steps(a, b)
        opened.word("house").hover()
        same(canvas(opened), run.maps.select(steps=slice(a, b))["house"].overlay(scale=scale))
        some = f"step {a}" if b - a == 1 else f"steps {a}–{b - 1}"
        assert opened.steps_said() == ("all 6 steps" if (a, b) == (0, 6) else f"{some} of 0–5")
        assert f"· {opened.steps_said()} ·" in opened.legend()


def test_buttons_move_the_steps_and_play_them(show: Any, run_page: str):
    """Playing moves a window of the chosen width."""
    opened = show(run_page)
    for name, said in (
        ("Steps after", "step 0"),
        ("Steps after", "step 1"),
        ("Steps before", "step 0"),
    ):
        opened.page.get_by_role("button", name=name).click()
        assert opened.steps_said() == f"{said} of 0–5"
    opened.page.get_by_role("button", name="All steps").click()
    assert opened.steps_said() == "all 6 steps"
    walk = [f"steps {n}–{n + 1} of 0–5" for n in range(1, 5)]
    opened.steps(0, 2)
    opened.page.evaluate(
        """() => {
          const said = document.querySelector("#steps-said");
          window.walk = [];
          new MutationObserver(() => window.walk.push(said.textContent))
            .observe(said, { childList: true });
        }"""
    )
    play = opened.page.get_by_role("button", name="Play the steps")
    play.click()
    expect(opened.page.locator("#steps-said")).to_have_text(walk[-1])
    play.wait_for()  # it stops by itself
    assert opened.page.evaluate("window.walk") == walk


def test_ranges_of_merged_steps_begin_and_end_with_whole_windows(show: Any, tmp_path: Path):
    run = stable_diffusion("a red house", keep=STEPS, steps=12, side=16, heads=1)
    page = pages.run_page(run, limit=285_000)
    assert data_of(page)["maps"]["tables"][-1]["windows"] == [[a, a + 2] for a in range(0, 12, 2)]
    opened = show(page)
    assert "means of 2 steps" in opened.page.locator("#held").inner_text()
    opened.word("house").click()
    for first, last in ((1, 2), (2, 5)):
        opened.steps(first, last)
        a, b = 2 * first, 2 * last
        assert opened.steps_said() == f"steps {a}–{b - 1} of 0–11"
        name, values = map_kept(opened, tmp_path)
        assert name == f"house-steps-{a}-{b - 1}"
        exact = run.maps.select(steps=slice(a, b))["house"].values
        np.testing.assert_allclose(values, exact, atol=np.ptp(exact) / 100)  # of 8 bits


def noise(seed: int) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((32, 32), Image.Resampling.BICUBIC)


def stepped(prompt: str = "a red house", shows: Any = "prediction", **more: Any) -> Any:
    run = small(prompt, STEPS, **more)
    return replace(run, step_pictures=StepPictures(tuple(noise(n) for n in range(4)), shows))


def beneath(run: Any, step: int) -> Image.Image:
    """The picture of a step as the page holds it, as large as the run's own."""
    import base64
    import io

    told: Any = steps_data(run.step_pictures, 10**9)
    raw = base64.b64decode(told["picture"].partition(",")[2])
    sheet = Image.open(io.BytesIO(raw)).convert("RGB")
    frame = of_mosaic(sheet, 4, tuple(told["size"]), "prediction").frames[step]
    size = overlays.enlarge(run.image).size
    return frame.resize(size, Image.Resampling.BILINEAR)


def test_the_picture_of_a_step_lies_beneath_its_heat(show: Any):
    run = stepped()
    opened = show(pages.run_page(run))
    opened.bare()
    for step in (0, 3):
        opened.steps(step, step + 1)
        same(canvas(opened), beneath(run, step))
        said = f"Underneath: the image that the model predicted at step {step}"
        assert said in opened.legend()
    opened.steps(1, 3)
    same(canvas(opened), beneath(run, 2))  # of several the last
    opened.page.get_by_label("One scale for all steps").uncheck()
    opened.choose("Scale", "word")
    opened.word("house").hover()
    heat = run.maps.select(steps=slice(1, 3))["house"]
    low, high = heat.value_range("word")
    same(canvas(opened), overlays.overlay(beneath(run, 2), heat.values, low=low, high=high))
    opened.page.get_by_label("Image at the step").uncheck()
    opened.word("house").hover()
    same(canvas(opened), heat.overlay())
    assert "Underneath" not in opened.legend()
    opened.page.get_by_role("button", name="All steps").click()
    opened.page.get_by_label("Image at the step").check()
    opened.bare()
    opened.page.mouse.move(0, 0)
    same(canvas(opened), overlays.enlarge(run.image))


def test_all_steps_share_one_scale_that_is_named(show: Any, run: Any, run_page: str):
    scale = "word"
    opened = show(run_page)
    opened.page.get_by_label("Image at the step").uncheck()
    opened.choose("Scale", scale)
    spans = [run.maps.select(steps=step)["house"].value_range(scale) for step in range(6)]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    for a, b in ((0, 1), (4, 6)):
        opened.steps(a, b)
        opened.word("house").hover()
        heat = run.maps.select(steps=slice(a, b))["house"]
        picture = overlays.enlarge(run.image)
        same(canvas(opened), overlays.overlay(picture, heat.values, low=low, high=high))
        assert f"one scale for all steps: {low:.2g} to {high:.2g}" in opened.legend()
    opened.page.get_by_label("One scale for all steps").uncheck()
    opened.word("house").hover()
    assert "scaled to these steps" in opened.legend()
    same(canvas(opened), heat.overlay(scale=scale))
    opened.page.get_by_role("button", name="All steps").click()
    opened.word("house").hover()
    same(canvas(opened), run.maps["house"].overlay(scale=scale))
    assert "scaled to these steps" not in opened.legend()


def curve(opened: Any, word: str) -> list[tuple[float, float]]:
    path = opened.page.locator(f'#curve path[data-word="{word}"]').get_attribute("d")
    return [tuple(map(float, part.split())) for part in path[1:].split("L")]


def test_the_curve_is_a_words_mean_at_each_step(show: Any, run: Any, run_page: str):
    opened = show(run_page)
    opened.word("house").click()
    opened.word("tree").click()
    opened.page.mouse.move(0, 0)
    means = {
        word: [float(run.maps.select(steps=step)[word].values.mean()) for step in range(6)]
        for word in ("house", "tree")
    }
    most = max(map(max, means.values()))
    for word, values in means.items():
        points = curve(opened, word)
        assert [round(x, 1) for x, _ in points] == [round(4 + (n + 0.5) * 52, 1) for n in range(6)]
        for (_, y), value in zip(points, values, strict=True):
            assert abs(y - (78 - value / most * 72)) < 0.15
    assert f"on a scale from 0 to {most:.2g}" in opened.page.locator("#curve").inner_text()
    box = opened.page.locator("#curve svg").bounding_box()
    opened.page.mouse.click(box["x"] + 2.5 / 6 * box["width"], box["y"] + 10)
    assert opened.steps_said() == "step 2 of 0–5"
    band = opened.page.locator("#curve .band")
    assert float(band.get_attribute("x")) == pytest.approx(4 + 2 * 52, abs=0.1)
