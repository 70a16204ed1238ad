"""What can be taken from the page: pictures, numbers, code, and the page itself in a notebook."""

from pathlib import Path
from typing import Any

import numpy as np
from making import small
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


def keep(opened: Any, kind: str, folder: Path) -> Path:
    """What one of the two buttons gives, under its name."""
    with opened.page.expect_download() as waiting:
        opened.page.locator(f"#{kind}").click()
    kept = folder / waiting.value.suggested_filename
    waiting.value.save_as(kept)
    return kept


def test_a_file_is_named_after_all_that_was_chosen(show: Any, run_page: str, tmp_path: Path):
    opened = show(run_page)
    opened.pin_phrase("tree", "in")  # there is a comma between them
    assert keep(opened, "npy", tmp_path).name == "tree-in.npy"
    assert keep(opened, "png", tmp_path).name == "tree-in-shared.png"
    signs = show(pages.run_page(small("a red 🎈")))
    signs.word("🎈").click()
    assert keep(signs, "npy", tmp_path).name == "map.npy"
    opened = show(run_page)
    opened.pin_phrase("tree", "in")
    opened.choose("Layers", "group up")
    opened.choose("Head", "1")
    opened.steps(1, 6)
    opened.choose("Scale", "word")
    opened.page.get_by_label("Native grid").check()
    chosen = "up-layers-steps-1-5-head-1-native"
    assert keep(opened, "png", tmp_path).name == f"tree-in-word-{chosen}.png"
    opened.steps(0, 5)
    chosen = chosen.replace("1-5", "0-4")
    assert keep(opened, "npy", tmp_path).name == f"tree-in-{chosen}.npy"


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
