"""The link of a page keeps pins and choices; a stranger's does nothing. Files of a page."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from browser.conftest import is_close


def test_a_link_restores_pins_and_choices(load_page: Any, run_page: str):
    opened = load_page(run_page)
    assert "#" not in opened.link()
    opened.pin("house", "blue")
    opened.word("tree").click(modifiers=["Shift"])
    opened.choose("Scale", "word")
    opened.choose("Layers", "group up")
    opened.choose("Head", "1")
    opened.choose_steps(2, 4)
    opened.slide("Opacity", 55)
    opened.page.get_by_label("Outline", exact=True).check()
    opened.point(0.3, 0.6)
    opened.click()
    opened.page.mouse.move(0, 0)
    pixels, legend, shares = opened.pixels(), opened.legend(), opened.shares()
    address = opened.link()
    opened.follow(address)
    assert opened.pins() == ["house", "blue tree"]
    assert np.array_equal(opened.pixels(), pixels)
    assert (opened.legend(), opened.shares()) == (legend, shares)
    assert opened.page.get_by_label("Outline", exact=True).is_checked()
    assert opened.link() == address


def test_a_link_of_another_page_is_ignored(load_page: Any, run_page: str):
    opened = load_page(run_page)
    pixels, address = opened.pixels(), opened.page.url
    choices = (
        "pin=9.9.9&first=x&head=99&scale=__proto__&edit=7&mode=blend&at=2,2&maps=__proto__"
        "&specials=2&opacity=a&layers=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    )
    opened.follow(f"{address}#{choices}")
    assert opened.pins() == [] and opened.steps() == "all 6 steps"
    assert np.array_equal(opened.pixels(), pixels)
    opened.pin("house", "house")
    assert "#" not in opened.link()  # nor is it handed on


def test_the_overlay_and_the_map_can_be_downloaded(
    load_page: Any, run: Any, run_page: str, tmp_path: Path
):
    opened = load_page(run_page)
    opened.choose("Scale", "word")
    opened.choose("Layers", "group down")
    opened.pin("house")
    files = {}
    for kind in ("overlay of house (PNG)", "map of house (NPY)"):
        with opened.page.expect_download() as download:
            opened.page.get_by_role("button", name=f"Save {kind}").click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        files[path.suffix] = path
        assert "house" in path.stem and "down" in path.stem
    heat = run.maps.select(layers="down")["house"]
    saved = np.asarray(Image.open(files[".png"]).convert("RGB")).astype(int)
    assert is_close(saved, heat.overlay())
    values = np.load(files[".npy"], allow_pickle=False)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, heat.values, atol=np.ptp(heat.values) / 1000)
