"""The link of a page keeps what is pinned and chosen; a stranger's does nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from browser.conftest import MISSING, PINS, again, canvas, point, readings, same
from heedmap.page import pages

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def link(opened: Any) -> str:
    opened.settle()
    return opened.page.evaluate("location.href")


def test_a_link_restores_pins_and_choices(show: Any, run_page: str):
    opened = show(run_page)
    assert "#" not in link(opened)
    opened.word("house").click()
    opened.word("blue").click()
    opened.word("tree").click(modifiers=["Shift"])
    opened.choose("Scale", "word")
    opened.choose("Layers", "group up")
    opened.choose("Head", "1")
    opened.steps(2, 4)
    opened.slide("Opacity", 55)
    opened.choose("Colours", "cividis")
    opened.page.get_by_label("Outline", exact=True).check()
    opened.page.get_by_label("Image at the step").uncheck()
    point(opened, 0.3, 0.6)
    opened.page.mouse.down()
    opened.page.mouse.up()
    opened.page.mouse.move(0, 0)
    before = canvas(opened).pixels(), opened.legend(), readings(opened)
    address = link(opened)
    again(opened, address)
    assert opened.page.locator(PINS).all_inner_texts() == ["house", "blue tree"]
    assert np.array_equal(canvas(opened).pixels(), before[0])
    assert (opened.legend(), readings(opened)) == before[1:]
    assert opened.page.get_by_label("Outline", exact=True).is_checked()
    assert link(opened) == address


OTHERS = (
    "pin=9.9.9&first=x&head=99&layers=layer%2099&scale=__proto__&edit=7&mode=blend&at=2,2",
    "maps=__proto__&pin=0.1.0&specials=2&layers=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&opacity=a&at=",
)


def test_a_link_of_another_page_is_ignored(show: Any, run_page: str):
    opened = show(run_page)
    wanted, address = canvas(opened).pixels(), opened.page.url
    for said in OTHERS:
        again(opened, f"{address}#{said}")
        assert opened.page.locator(PINS).count() == 0
        assert opened.steps_said() == "all 6 steps"
        assert np.array_equal(canvas(opened).pixels(), wanted)
        opened.word("house").click()
        opened.word("house").click()
        assert "#" not in link(opened)  # nor is it handed on


def test_the_overlay_and_the_map_can_be_downloaded(
    show: Any, run: Any, run_page: str, tmp_path: Path
):
    opened = show(run_page)
    opened.choose("Scale", "word")
    opened.choose("Layers", "group down")
    opened.word("house").click()
    heat = run.maps.select(layers="down")["house"]
    for kind, suffix in (("overlay of house (PNG)", "png"), ("map of house (NPY)", "npy")):
        with opened.page.expect_download() as waiting:
            opened.page.get_by_role("button", name=f"Save {kind}").click()
        kept = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(kept)
        assert kept.suffix == f".{suffix}" and "house" in kept.stem and "down" in kept.stem
        if suffix == "png":
            same(np.asarray(Image.open(kept).convert("RGB")).astype(int), heat.overlay())
        else:
            values = np.load(kept, allow_pickle=False)
            assert values.dtype == np.float32 and values.shape == heat.values.shape
            np.testing.assert_allclose(values, heat.values, atol=np.ptp(heat.values) / 1000)


def test_a_notebook_shows_the_page_in_a_frame(browser: Any, run_page: str, tmp_path: Path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html>{pages.frame(run_page)}", encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.goto(path.as_uri())
    inner = page.frame_locator("iframe")
    inner.locator("html[data-ready=yes]").wait_for()
    inner.get_by_role("button", name="house", exact=True).hover()
    assert "house" in inner.locator("#legend").inner_text()
    page.close()
    assert not complaints
