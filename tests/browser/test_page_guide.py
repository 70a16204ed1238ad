"""Guides on the page of a run: what they wished, their losses, and their cost."""

from dataclasses import replace
from typing import Any

import pytest
from making import small, with_settings

from browser.conftest import MISSING
from heedmap.io.guides import Excite
from heedmap.io.schemas import GuideReport, to_json
from heedmap.page import pages

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect


def test_a_guided_run_shows_its_losses(load_page: Any):
    guide = Excite("house", step_size=0.1)
    run: Any = with_settings(small(), guide=to_json([guide]))
    report = GuideReport(before=((0.75, 0.5),), after=((0.5, 0.25),), passes=7)
    opened = load_page(pages.run_page(replace(run, guide_report=report)))
    section = opened.page.get_by_role("region", name="Guides")
    expect(section.get_by_role("listitem")).to_have_text(
        f"{guide}Loss: 0.75 at first, 0.25 at least, 0.25 at last"
    )
    expect(section).to_contain_text("7 extra passes")
    lines = [path.get_attribute("d") for path in section.locator("path").all()]
    assert lines == ["M0,12.5L100,25", "M0,25L100,37.5"]
