"""The built site: no link leads to nothing, and axe finds nothing on its main pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from browser.conftest import serve

PAGES = ("index", "try", "guide/maps", "how-to/daam", "reference/python/models")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built from nothing."""
    pytest.importorskip("zensical", reason="pip install -c constraints.txt -e '.[dev]'")
    import build

    folder = build.build(tmp_path_factory.mktemp("site") / "site", quick=True, with_demo=False)
    with serve(folder) as address:
        yield address


@pytest.mark.parametrize(("width", "colours"), [(1400, "light"), (390, "dark")])
def test_axe_finds_nothing(address: str, browser: Any, axe: str, width: int, colours: str):
    viewport = {"width": width, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme=colours)
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for name in PAGES:
        page.goto(f"{address}/{name}.html")
        page.evaluate(axe)
        found = page.evaluate("async () => (await axe.run()).violations")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)


def test_a_result_opens_from_the_first_page(address: str, browser: Any):
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    page.get_by_role("link", name="a result of the embedded model").click()
    page.wait_for_selector("html[data-ready=yes]")
    page.get_by_role("button", name="house", exact=True).first.hover()
    assert "house" in page.locator("#legend").inner_text()
    page.close()


def test_the_options_of_a_function_are_not_called_required(address: str, browser: Any):
    """The pipeline and the prompt of `generate` are; its steps stand in no signature."""
    page = browser.new_page()
    page.goto(f"{address}/reference/python/record.html")
    rows = page.locator("tr.doc-section-item")
    for name, word in (("prompt", "required"), ("steps", "optional")):
        row = rows.filter(has=page.locator(f"td:first-child code:text-is('{name}')")).first
        assert word in row.inner_text()
    page.close()
