"""What can be taken from the page: pictures, numbers, code, and the page itself in a notebook."""

from pathlib import Path
from typing import Any

import numpy as np
from making import small
from PIL import Image, ImageFilter

from browser.conftest import canvas, same
from heedmap import explorer
from heedmap.figures import overlays


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
    signs = show(explorer.page(small("a red 🎈")))
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


def test_of_several_words_the_numbers_lie_one_behind_the_other(
    show: Any, run: Any, run_page: str, tmp_path: Path
):
    opened = show(run_page)
    for word in ("tree", "house", "red"):
        opened.word(word).click()
    kept = keep(opened, "npy", tmp_path)
    assert kept.name == "tree-house-red.npy"
    exact = np.stack([run.maps[word].values for word in ("tree", "house", "red")])
    np.testing.assert_allclose(np.load(kept, allow_pickle=False), exact, atol=np.ptp(exact) / 65535)


def test_an_overlay_is_kept_as_it_is_seen_with_its_outline(
    show: Any, run: Any, run_page: str, tmp_path: Path
):
    """Colours and opacity too; a phrase, which may draw more than any word, on the same scale."""
    opened = show(run_page)
    opened.pin_phrase("red", "tree")
    opened.choose("Colours", "cividis")
    opened.slide("Opacity", 25)
    plain = np.asarray(Image.open(keep(opened, "png", tmp_path)).convert("RGB")).astype(int)
    same(canvas(opened), Image.fromarray(plain.astype(np.uint8)))
    opened.page.get_by_label("Outline", exact=True).check()
    lined = np.asarray(Image.open(keep(opened, "png", tmp_path)).convert("RGB")).astype(int)
    mask = overlays.resize_map(run.maps["red house next to a blue tree"].soft_mask(), (256, 256))
    inside = Image.fromarray(np.where(mask > 0.5, 255, 0).astype(np.uint8))
    least, most = (inside.filter(one(9)) for one in (ImageFilter.MinFilter, ImageFilter.MaxFilter))
    edge = np.asarray(least) != np.asarray(most)  # up to 4 pixels from where the mask ends
    inked = (lined != plain).any(axis=-1)
    assert inked[edge].mean() > 0.3 and inked[~edge].mean() < 0.001  # of 8 bits
    assert (lined[inked].min(axis=-1) > 225).any() and (lined[inked].max(axis=-1) < 30).any()
    opened.word("snow").click()  # of two each has its own colour, and none is white
    lined = np.asarray(Image.open(keep(opened, "png", tmp_path)).convert("RGB")).astype(int)
    assert not (lined.min(axis=-1) > 250).any()
    for hue in overlays.hue_colours()[:2].astype(int):
        assert (np.abs(lined - hue).max(axis=-1) <= 12).sum() > 20


def test_of_an_edit_each_side_gives_a_file_of_its_own(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    opened.word("dog", "edit").click()
    for kind, names in (
        ("png", ["dog-edited-shared.png", "dog-source-shared.png"]),
        ("npy", ["dog-edited.npy", "dog-source.npy"]),
    ):
        left = set(names)

        def was_last(given: Any, left: set[str] = left) -> bool:
            left.remove(given.suggested_filename)
            return not left

        with opened.page.expect_event("download", was_last):
            opened.page.locator(f"#{kind}").click()


def test_the_page_names_the_command_that_repeats_it(show: Any, run_page: str):
    code = show(run_page).page.get_by_role("region", name="Repeat")
    assert code.inner_text() == "heedmap repeat FOLDER"


def test_in_a_notebook_the_page_stands_in_a_frame(browser: Any, run_page: str, tmp_path: Path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html>{explorer.frame(run_page)}", encoding="utf-8")
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
