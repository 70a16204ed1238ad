"""The page of edits: source and edit on one scale, compared, and chosen from a strip."""

from typing import Any

import numpy as np
import pytest
from making import Edited
from msgspec import structs

from browser.conftest import MISSING, canvas, point, readings, same
from heedmap.figures import overlays
from heedmap.page import pages
from heedmap.pipelines import editing

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_an_edit_opens_with_its_word_and_pointing_marks_both_images(show: Any, pair_page: str):
    opened = show(pair_page)
    assert "cat → dog" in opened.legend()
    assert readings(opened, 1)[0][0] == "dog"
    point(opened, 0.5, 0.6, nth=0)
    assert "cat" in dict(readings(opened, 0)) and "dog" in dict(readings(opened, 1))
    crosses = opened.page.locator("svg g:last-child path.line").evaluate_all(
        "all => all.slice(0, 2).map((e) => e.getAttribute('d'))"
    )
    assert crosses[0] == crosses[1]


def test_a_word_shows_in_source_and_edit_on_one_scale(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    opened.word("dog", "edit").hover()
    spans = [run.maps["snow"].shared for run in (pair.source, pair.edited)]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    for nth, (run, word) in enumerate(((pair.source, "cat"), (pair.edited, "dog"))):
        expected = overlays.overlay(
            overlays.enlarge(run.image), run.maps[word].values, low=low, high=high
        )
        same(canvas(opened, nth), expected)
    assert "cat → dog" in opened.legend()


def test_the_wipe_the_difference_and_the_blend_are_shown(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    radios = opened.page.get_by_role("radio")
    radios.nth(1).check()
    opened.slide("Wipe: how much of the source is seen", 25)
    edited = opened.page.locator('figure[data-kind="edited"] .picture')
    assert "25%" in edited.evaluate("e => getComputedStyle(e).clipPath")
    boxes = [opened.page.locator(".picture").nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0] == boxes[1]
    radios.nth(2).check()
    same(canvas(opened, 2), pair.difference())
    assert not edited.is_visible()
    radios.nth(3).check()
    shown, plain = canvas(opened, 3).pixels(), np.asarray(pair.edited.image).astype(int)
    assert (shown[pair.blend] == plain[pair.blend]).all()
    if not pair.blend.all():
        assert shown[~pair.blend].sum() < plain[~pair.blend].sum() * 0.3
    radios.nth(0).check()
    assert edited.is_visible()
    assert "MSE" in opened.page.locator("#about").inner_text()


def test_an_edit_is_chosen_from_the_strip(show: Any, pair: Any):
    weak = Edited(pair.source, pair.source, structs.replace(pair.report, why="nothing"))
    opened = show(pages.pairs_page([("dog", pair), ("same", weak)]))
    assert opened.page.locator("#strip button").all_inner_texts() == ["dog", "same"]
    opened.page.get_by_role("button", name="same").click()
    expect(opened.page.locator(".prompt").nth(1)).to_contain_text("cat")
    expect(opened.page.locator("#figures figure")).to_have_count(3)
    opened.bare()
    same(canvas(opened, 1), overlays.enlarge(pair.source.image))


@pytest.fixture(scope="module")
def grid(random_model: Any) -> Any:
    return editing.grid(
        random_model, "a red house", weights={"red": [-1, 1, 3]}, seeds=[7, 8], steps=2
    )


def test_a_grid_is_shown_with_its_rows_and_columns(show: Any, grid: Any):
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
    same(canvas(opened, 0), overlays.enlarge(cell.result.source.image))
    same(canvas(opened, 1), overlays.enlarge(cell.result.edited.image))
    assert "“red” ×3" in opened.page.locator("#evidence p").inner_text()
    again = opened.page.locator("#about pre").all_inner_texts()
    assert again == ["heedmap repeat FOLDER --model MODEL"]
