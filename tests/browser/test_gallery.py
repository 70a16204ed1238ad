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


def test_the_gallery_filters_sorts_and_loads_on_demand(browser: Any, tmp_path: Path):
    gradient().save(tmp_path / "image.png")
    empty = dict.fromkeys(schema().names)
    rows = [
        {
            **empty,
            "task": "generate",
            "truths": [],
            "width": 128,
            "height": 128,
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
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema()), tmp_path / "results.parquet")
    page = browser.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto(hm.gallery(tmp_path).as_uri())
    items, count = page.locator("#list li"), page.locator("#count")
    expect(count).to_have_text("10000 of 10000")
    assert items.count() < 1000
    expect(items.first.locator("img")).to_have_js_property("naturalWidth", 128)
    words, order = page.get_by_label("Filter"), page.get_by_label("Sort by")
    words.fill("RED seed:77")
    expect(count).to_have_text("56 of 10000")
    expect(items).to_have_count(56)
    expect(items.first.locator("small")).to_have_text("m · seed 7799")
    words.fill("")
    order.select_option("seed")
    expect(items.first).to_contain_text("n · seed 1")
    page.get_by_label("Largest first").check()
    expect(items.first).to_contain_text("m · seed 10000")
    before = items.count()
    page.mouse.wheel(0, 5000)
    expect(items.nth(before)).to_be_attached()
    page.close()
    assert messages == []
