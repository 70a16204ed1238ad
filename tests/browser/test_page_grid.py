"""The page of a grid: rows and columns as they are, and a cell to open."""

from typing import Any

import numpy as np
import pytest

from browser.conftest import MISSING, canvas, same
from heedmap.figures import overlays
from heedmap.pipelines import editing

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


@pytest.fixture(scope="module")
def grid(random_model: Any) -> Any:
    return editing.grid(
        random_model, "a red house", weights={"red": [-1, 1, 3]}, seeds=[7, 8], steps=2
    )


def test_it_is_a_grid_with_its_rows_and_columns(show: Any, grid: Any):
    opened = show(grid.explorer())
    table = opened.page.locator("#strip table")
    assert table.locator("thead th").all_inner_texts() == [
        "the source",
        "red ×−1",
        "red ×1",
        "red ×3",
    ]
    assert table.locator("tbody th").all_inner_texts() == ["seed 7", "seed 8"]
    assert table.get_by_role("button").count() == 6
    assert table.get_by_role("img", name="the source").count() == 2
    for row, seed in ((0, 7), (1, 8)):
        source = table.locator("tbody tr").nth(row).locator("td img").first
        wanted = np.asarray(grid.sources[seed].image).astype(int)
        width = source.evaluate("e => e.naturalWidth")
        assert width == wanted.shape[1]
    assert opened.page.title() == "a red house · heedmap"


def test_a_cell_opens_as_an_edit(show: Any, grid: Any):
    opened = show(grid.explorer())
    cell = grid.cells[5]
    button = opened.page.locator("#strip tbody tr").nth(1).get_by_role("button").nth(2)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(opened.page.locator("h1")).to_contain_text("grid of edits · seed 8 · red ×3")
    expect(opened.page.locator(".weight")).to_have_text("×3")
    opened.page.locator("#why summary").click()
    command = opened.page.locator("#why pre").text_content()
    assert command.startswith("heedmap explain FOLDER/cells/006 ")
    assert command.endswith(" --model MODEL")
    asked = opened.page.evaluate("""() => new Promise((heard) => {
      addEventListener("message", ({ data }) => heard(data));
      document.getElementById("here").click();
    })""")
    assert (asked["heedmap"], asked["cell"]) == ("explain", "6")  # as its folder is called
    opened.bare()
    same(canvas(opened, 0), overlays.enlarge(cell.pair.source.image))
    same(canvas(opened, 1), overlays.enlarge(cell.pair.edited.image))
    assert "“red” ×3" in opened.page.locator("#evidence p").inner_text()
    again = opened.page.locator("#about pre").all_inner_texts()
    assert again == ["heedmap repeat FOLDER --model MODEL"]
