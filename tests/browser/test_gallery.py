"""The gallery of ten thousand results in a browser: it filters, it sorts, it loads on demand."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from making import gradient
from pyarrow import parquet

import heedmap as hm
from browser.conftest import MISSING
from heedmap.sweeps.tables import schema

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    gradient().save(folder / "image.png")
    empty = dict.fromkeys(schema().names)
    row = {**empty, "task": "generate", "truths": [], "width": 128, "height": 128}
    rows = [
        {
            **row,
            "line": n,
            "model": ("m", "n")[n > 9_000],
            "prompt": f"a {('red', 'blue')[n % 2]} house",
            "seed": 10_001 - n,
            "folder": f"runs/{n}",
            "image": f"image.png?{n}",
            "moved": n / 1e4 if n > 2 else None,
        }
        for n in range(1, 10_001)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema()), folder / "results.parquet")
    return hm.gallery(folder)


def test_a_filter_without_a_hit_says_so(browser: Any, page: Path):
    opened = browser.new_page()
    opened.goto(page.as_uri())
    opened.get_by_label("Filter").fill("nothing like this")
    assert opened.locator("#list li").count() == 1 and opened.locator("#list img").count() == 0
    opened.close()


def test_the_gallery_filters_and_sorts(browser: Any, page: Path):
    view = browser.new_page()
    complaints: list[str] = []
    view.on("console", lambda message: complaints.append(message.text))
    view.goto(page.as_uri())
    items, count = view.locator("#list li"), view.locator("#count")
    expect(count).to_have_text("10000 of 10000")
    assert items.count() < 1000
    expect(items.first.locator("img")).to_have_js_property("naturalWidth", 128)
    view.get_by_label("Filter").fill("RED seed:77")
    expect(count).to_have_text("56 of 10000")
    expect(items).to_have_count(56)
    expect(items.first.locator("small")).to_have_text("m · seed 7799")
    view.get_by_label("Filter").fill("")
    view.get_by_label("Sort by").select_option("seed")
    expect(items.first).to_contain_text("n · seed 1")
    view.get_by_label("Sort by").select_option("moved")
    expect(items.first).to_contain_text("seed 9998")
    view.get_by_label("Largest first").check()
    expect(items.first).to_contain_text("seed 1 ")
    before = items.count()
    view.mouse.wheel(0, 5000)
    expect(items.nth(before)).to_be_attached()
    assert complaints == []
