"""What can be taken from the page: pictures, numbers, code, and the page itself in a notebook."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from browser.conftest import same
from heedmap.page import pages


def test_downloads_are_the_overlay_and_the_map(show: Any, run: Any, run_page: str, tmp_path: Path):
    opened = show(run_page)
    opened.choose("Scale", "word")
    opened.choose("Layers", "group down")
    opened.word("house").click()
    heat = run.maps.select(layers="down")["house"]
    for name, suffix in (("Overlay of house, PNG", "png"), ("Map of house, NPY", "npy")):
        with opened.page.expect_download() as waiting:
            opened.page.get_by_role("button", name=name).click()
        kept = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(kept)
        assert kept.suffix == f".{suffix}" and "house" in kept.stem and "down" in kept.stem
        if suffix == "png":
            same(np.asarray(Image.open(kept).convert("RGB")).astype(int), heat.overlay())
        else:
            values = np.load(kept, allow_pickle=False)
            assert values.dtype == np.float32 and values.shape == heat.values.shape
            np.testing.assert_allclose(values, heat.values, atol=np.ptp(heat.values) / 1000)


def test_the_page_names_the_command_that_repeats_it(show: Any, run_page: str):
    code = show(run_page).page.get_by_role("region", name="Repeat")
    assert code.inner_text() == "heedmap repeat FOLDER"


def test_in_a_notebook_the_page_stands_in_a_frame(browser: Any, run_page: str, tmp_path: Path):
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
