"""The images and tables of the pages: each has one recipe, and is written where it has changed."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import readme

ROOT = Path(__file__).parents[2]


def test_every_image_of_a_page_has_a_recipe():
    guide = ROOT / "src" / "heedmap" / "GUIDE.md"
    pages = [ROOT / "README.md", guide, *readme.PAGES.values()]
    shown = [re.findall(r"\]\(.*outputs/gallery/(.+)\)", p.read_text("utf-8")) for p in pages]
    files = {path.name for path in (ROOT / "outputs" / "gallery").iterdir()}
    assert {name for names in shown for name in names} == set(readme.PICTURES) == files


def test_the_tables_of_the_pages_are_the_cards():
    for name, table in readme.tables().items():
        text = readme.PAGES[name].read_text(encoding="utf-8")
        assert readme.marked(name, table) in text, "run python scripts/readme.py --table"


# Others take longer: they are of several images.
def test_a_saved_image_equals_a_newly_generated_one(embedded):
    name = "red-house-blue-tree.png"
    image = np.asarray(readme.PICTURES[name](embedded).convert("RGB"), dtype=float)
    with Image.open(readme.GALLERY / name) as file:
        saved = np.asarray(file.convert("RGB"), dtype=float)
    assert image.shape == saved.shape and np.abs(image - saved).mean() < 1


@pytest.mark.browser
@pytest.mark.skipif(
    not readme.chromium(), reason="no chromium: install it, or name one in HEEDMAP_CHROMIUM"
)
def test_the_saved_screenshot_resembles_the_page(embedded):
    """By the mean of each 50×50 pixels: letters are those of the machine."""
    pytest.importorskip("playwright", reason="pip install -c constraints.txt -e '.[dev]'")
    image = readme.PICTURES["page.png"](embedded).convert("RGB")
    with Image.open(readme.GALLERY / "page.png") as file:
        saved = file.convert("RGB")
    assert image.size == saved.size
    means = [np.asarray(one.reduce(50), dtype=float) for one in (image, saved)]
    assert np.abs(means[0] - means[1]).mean() < 4


@pytest.mark.parametrize(
    ("colour", "written"),
    [((13, 5, 9), False), ((4, 9, 9), True)],
)
def test_an_image_is_written_only_if_it_has_changed(colour, written, tmp_path: Path):
    path = tmp_path / "x.png"
    assert readme.write(Image.new("RGB", (4, 3), (9, 9, 9)), path)
    before = path.read_bytes()
    assert readme.write(Image.new("RGB", (4, 3), colour), path) == written
    assert (path.read_bytes() != before) == written
