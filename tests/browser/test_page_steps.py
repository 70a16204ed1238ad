"""Steps of the page: any range of them, by pointer, keyboard and playing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import data_of, stable_diffusion

from browser.conftest import MISSING, canvas, same
from heedmap.page import pages

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect

STEPS = frozenset({"layer", "step"})


def map_kept(opened: Any, folder: Path) -> tuple[str, np.ndarray]:
    """The name and the numbers of the map that the page gives as a file."""
    with opened.page.expect_download() as waiting:
        opened.page.locator("#npy").click()
    kept = folder / waiting.value.suggested_filename
    waiting.value.save_as(kept)
    return kept.stem, np.load(kept, allow_pickle=False)


def test_any_range_is_what_python_selects(show: Any, run: Any, run_page: str):
    scale = "shared"
    opened = show(run_page)
    opened.apart()
    opened.choose("Scale", scale)
    for a, b in ((0, 1), (2, 5), (1, 6), (5, 6), (0, 4), (3, 4), (0, 6)):
        opened.steps(a, b)
        opened.word("house").hover()
        same(canvas(opened), run.maps.select(steps=slice(a, b))["house"].overlay(scale=scale))
        some = f"step {a}" if b - a == 1 else f"steps {a}–{b - 1}"
        assert opened.steps_said() == ("all 6 steps" if (a, b) == (0, 6) else f"{some} of 0–5")
        assert f"· {opened.steps_said()} ·" in opened.legend()


def test_buttons_move_the_steps(show: Any, run_page: str):
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


@pytest.mark.parametrize(
    "start, stop, walk", [(0, 2, [f"steps {n}–{n + 1} of 0–5" for n in range(1, 5)])]
)
def test_playing_walks_a_window_of_the_chosen_width(
    show: Any, run_page: str, start: int, stop: int, walk: list[str]
):
    opened = show(run_page)
    opened.steps(start, stop)
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


# --- steps that a page holds in windows -------------------------------------------------------


def windows_of(page: str) -> list[list[int]]:
    return data_of(page)["maps"]["tables"][-1]["windows"]


def test_ranges_begin_and_end_with_windows_where_steps_are_held_in_these(show: Any, tmp_path: Path):
    run = stable_diffusion("a red house", keep=STEPS, steps=12, side=16, heads=1)
    page = pages.run_page(run, limit=275_000)
    assert windows_of(page) == [[a, a + 2] for a in range(0, 12, 2)]
    opened = show(page)
    assert "in means of 2" in opened.page.locator("#held").inner_text()
    opened.word("house").click()
    for first, last in ((1, 2), (2, 5), (0, 3)):
        opened.steps(first, last)
        a, b = 2 * first, 2 * last
        assert opened.steps_said() == f"steps {a}–{b - 1} of 0–11"
        name, values = map_kept(opened, tmp_path)
        assert name == f"house-steps-{a}-{b - 1}"
        exact = run.maps.select(steps=slice(a, b))["house"].values
        np.testing.assert_allclose(values, exact, atol=np.ptp(exact) / 100)  # of 8 bits
