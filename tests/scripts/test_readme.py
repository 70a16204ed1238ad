"""The pictures of the pages: each has one recipe, and is written where it has changed."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import readme

ROOT = Path(__file__).parents[2]


def test_every_picture_that_a_page_shows_has_a_recipe():
    pages = [ROOT / "README.md", *readme.PAGES.values()]
    shown = [re.findall(r"\]\(.*outputs/gallery/(.+)\)", p.read_text("utf-8")) for p in pages]
    there = {path.name for path in (ROOT / "outputs" / "gallery").iterdir()}
    assert {name for names in shown for name in names} == set(readme.PICTURES) == there


# One of the others is of eighteen pictures, which take a minute and a half; the page has the
# letters of the machine on which it was taken.
@pytest.mark.parametrize("name", ["red-house-blue-tree.png", "house-over-steps.png", "edits.png"])
def test_the_saved_images_equal_newly_generated_ones(name: str, embedded):
    drawn = np.asarray(readme.PICTURES[name](embedded).convert("RGB"), dtype=float)
    with Image.open(readme.GALLERY / name) as shown:
        there = np.asarray(shown.convert("RGB"), dtype=float)
    assert drawn.shape == there.shape and np.abs(drawn - there).mean() < 1


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(
    not readme.chromium(), reason="no chromium: install it, or name one in HEEDMAP_CHROMIUM"
)
def test_the_saved_screenshot_resembles_the_page(embedded):
    """By the mean of each 50×50 pixels: letters are those of the machine."""
    pytest.importorskip("playwright", reason="pip install -c constraints.txt -e '.[dev]'")
    drawn = readme.PICTURES["page.png"](embedded).convert("RGB")
    with Image.open(readme.GALLERY / "page.png") as shown:
        assert drawn.size == shown.size
        there, today = (
            np.asarray(picture.convert("RGB").reduce(50), dtype=float) for picture in (shown, drawn)
        )
    assert np.abs(there - today).mean() < 4


@pytest.mark.parametrize(
    ("now", "written"),
    [((9, 9, 9), False), ((13, 5, 9), False), ((9, 9, 14), True), ((4, 9, 9), True)],
)
def test_an_image_is_written_only_if_it_has_changed(now, written, tmp_path: Path):
    path = tmp_path / "x.png"
    assert readme.write(Image.new("RGB", (4, 3), (9, 9, 9)), path)
    before = path.read_bytes()
    assert readme.write(Image.new("RGB", (4, 3), now), path) == written
    assert (path.read_bytes() != before) == written
