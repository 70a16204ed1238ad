"""Steps of the page: any range of them, by pointer, keyboard and playing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import Edited, data_of, report_of, small, stable_diffusion

from browser.conftest import MISSING, canvas, same
from heedmap import explorer
from heedmap.figures import overlays

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect

STEPS = frozenset({"layer", "step"})


def map_kept(opened: Any, folder: Path) -> tuple[str, np.ndarray]:
    """The name and the numbers of the map that the page gives as a file."""
    with opened.page.expect_download() as waiting:
        opened.page.locator("#npy").click()
    kept = folder / waiting.value.suggested_filename
    waiting.value.save_as(kept)
    return kept.stem, np.load(kept, allow_pickle=False)


def on_bar(opened: Any, step: float, of: int) -> tuple[float, float]:
    """Where on the screen the middle of a step lies, counted from 0."""
    box = opened.page.locator("#range .rail").bounding_box()
    return box["x"] + (step + 0.5) / of * box["width"], box["y"] + box["height"] / 2


@pytest.mark.parametrize("scale", ["shared", "word"])
def test_any_range_is_what_python_selects(show: Any, run: Any, run_page: str, scale: str):
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


def test_the_map_of_a_range_is_kept_under_its_name(
    show: Any, run: Any, run_page: str, tmp_path: Path
):
    opened = show(run_page)
    opened.word("tree").click()
    for a, b, named in ((1, 4, "tree-steps-1-3"), (4, 5, "tree-step-4"), (0, 6, "tree")):
        opened.steps(a, b)
        name, values = map_kept(opened, tmp_path)
        assert name == named
        exact = run.maps.select(steps=slice(a, b))["tree"].values
        np.testing.assert_allclose(values, exact, atol=np.ptp(exact) / 1000)


def test_a_click_on_the_bar_shows_one_step_and_a_drag_several(show: Any, run_page: str):
    opened = show(run_page)
    mouse = opened.page.mouse
    mouse.click(*on_bar(opened, 3, of=6))
    assert opened.steps_said() == "step 3 of 0–5"
    mouse.move(*on_bar(opened, 4, of=6))
    mouse.down()
    mouse.move(*on_bar(opened, 1, of=6), steps=5)
    assert opened.steps_said() == "steps 1–4 of 0–5"
    mouse.up()
    mouse.move(*on_bar(opened, 0, of=6))
    assert opened.steps_said() == "steps 1–4 of 0–5"
    opened.page.get_by_role("button", name="All steps").click()
    assert opened.steps_said() == "all 6 steps"


def test_by_keyboard_the_ends_give_way_and_shift_moves_both(show: Any, run_page: str):
    opened = show(run_page)
    first, last = (opened.page.get_by_label(f"{end} step", exact=True) for end in ("First", "Last"))
    last.focus()
    last.press("Home")
    assert opened.steps_said() == "step 0 of 0–5"
    last.press("ArrowRight")
    last.press("ArrowRight")
    last.press("Shift+ArrowRight")
    assert opened.steps_said() == "steps 1–3 of 0–5"
    assert last.get_attribute("aria-valuetext") == "to step 3 of 0–5"
    first.focus()
    for said in ("steps 2–3 of 0–5", "step 3 of 0–5", "step 4 of 0–5"):
        first.press("ArrowRight")
        assert opened.steps_said() == said
    assert first.get_attribute("aria-valuetext") == "from step 4 of 0–5"
    first.press("End")
    assert opened.steps_said() == "step 5 of 0–5"
    first.press("Shift+ArrowRight")
    assert opened.steps_said() == "step 5 of 0–5"
    first.press("Home")
    assert opened.steps_said() == "all 6 steps"


def test_buttons_walk_one_step_at_a_time(show: Any, run_page: str):
    opened = show(run_page)
    back, on = (opened.page.get_by_role("button", name=f"Steps {to}") for to in ("before", "after"))
    on.click()
    assert opened.steps_said() == "step 0 of 0–5"
    on.click()
    assert opened.steps_said() == "step 1 of 0–5"
    opened.page.get_by_role("button", name="All steps").click()
    back.click()
    assert opened.steps_said() == "step 5 of 0–5"
    expect(opened.page.locator("#said")).to_have_text("step 5 of 0–5")


@pytest.mark.parametrize(
    "start, stop, walk",
    [
        (0, 6, [f"step {n} of 0–5" for n in range(6)]),
        (0, 2, [f"steps {n}–{n + 1} of 0–5" for n in range(1, 5)]),
        (2, 6, [f"steps {n}–{n + 3} of 0–5" for n in range(3)]),
    ],
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


def test_choosing_a_step_stops_the_playing(show: Any, run_page: str):
    opened = show(run_page)
    opened.page.get_by_role("button", name="Play the steps").click()
    opened.page.mouse.click(*on_bar(opened, 1, of=6))
    opened.page.get_by_role("button", name="Play the steps").wait_for()
    opened.page.wait_for_timeout(900)  # more than the longest pause between two steps
    assert opened.steps_said() == "step 1 of 0–5"


def test_on_a_phone_a_tap_shows_one_step(show: Any, run_page: str):
    opened = show(run_page, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    opened.page.locator("#range").scroll_into_view_if_needed()
    opened.page.touchscreen.tap(*on_bar(opened, 4, of=6))
    assert opened.steps_said() == "step 4 of 0–5"
    for name in ("Steps before", "Play the steps", "Steps after", "All steps"):
        box = opened.page.get_by_role("button", name=name).bounding_box()
        assert box["width"] >= 24 and box["height"] >= 24


# --- steps that a page holds in windows -------------------------------------------------------


def windows_of(page: str, view: int = 0) -> list[list[int]]:
    return data_of(page)["runs"][0]["views"][view]["tables"][-1]["windows"]


def test_ranges_begin_and_end_with_windows_where_steps_are_held_in_these(show: Any, tmp_path: Path):
    run = stable_diffusion("a red house", keep=STEPS, steps=12, side=16, heads=1)
    page = explorer.page(run, limit=275_000)
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


def test_in_an_edit_a_range_is_of_both(show: Any):
    source, edited = small("a red house", STEPS), small("a blue house", STEPS, seed=1)
    opened = show(explorer.pair_page(Edited(source, edited, report_of())))
    opened.apart()
    opened.steps(1, 3)
    opened.word("blue", "edit").hover()
    both = [run.maps.select(steps=slice(1, 3)) for run in (source, edited)]
    spans = [maps["house"].shared for maps in both]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    for nth, (maps, word) in enumerate(zip(both, ("red", "blue"), strict=True)):
        large = overlays.enlarge(source.image if nth == 0 else edited.image)
        same(canvas(opened, nth), overlays.overlay(large, maps[word].values, low=low, high=high))


def test_where_all_steps_are_held_together_there_is_none_to_choose(show: Any):
    run = stable_diffusion("a red house", keep=STEPS, steps=12, side=16, heads=1)
    page = explorer.page(run, limit=215_000)
    assert windows_of(page) == [[0, 12]]
    opened = show(page)
    assert "holds all steps together" in opened.page.locator("#held").inner_text()
    for label in ("First step", "Last step"):
        assert opened.page.get_by_label(label, exact=True).is_disabled()
    for name in ("Steps before", "Play the steps", "Steps after", "All steps"):
        assert opened.page.get_by_role("button", name=name).is_disabled(), name
    opened.page.mouse.click(*on_bar(opened, 3, of=12))
    assert opened.steps_said() == "all 12 steps" and opened.page.evaluate("state.steps") is None
