"""The README's pictures: each has one recipe, and is written where it has changed."""

import re
from pathlib import Path

import pytest
from PIL import Image

import readme

ROOT = Path(__file__).parents[2]


def test_every_picture_of_the_readme_has_a_recipe():
    shown = re.findall(r"\]\(outputs/gallery/([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    there = {path.name for path in (ROOT / "outputs" / "gallery").iterdir()}
    assert set(shown) == set(readme.PICTURES) == there


@pytest.mark.parametrize(
    ("now", "written"),
    [((9, 9, 9), False), ((10, 8, 9), False), ((9, 9, 11), True), ((7, 9, 9), True)],
)
def test_a_picture_is_written_where_it_has_changed(now, written, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(readme.PICTURES, "x.png", lambda pipe: Image.new("RGB", (4, 3), pipe))
    assert readme.made("x.png", (9, 9, 9), tmp_path)
    before = (tmp_path / "x.png").read_bytes()
    assert readme.made("x.png", now, tmp_path) == written
    assert ((tmp_path / "x.png").read_bytes() != before) == written


def test_a_picture_of_another_size_is_written(tmp_path: Path, monkeypatch):
    sizes = iter([(4, 3), (3, 4)])
    monkeypatch.setitem(readme.PICTURES, "x.png", lambda _: Image.new("RGB", next(sizes)))
    assert readme.made("x.png", None, tmp_path / "new") and readme.made(
        "x.png", None, tmp_path / "new"
    )
    with Image.open(tmp_path / "new" / "x.png") as found:
        assert found.size == (3, 4)
