"""What is shown: whatever a user typed stays text."""

import html
from pathlib import Path

from app.serving import EVIL
from heedmap import studio
from heedmap.app.fragments import of_page, of_state, of_trouble
from heedmap.app.jobs import State


def test_what_a_user_typed_stays_text():
    shown = of_trouble(EVIL) + of_state(State("working", doing=EVIL, preview='x" onerror="y'))
    assert "<script" not in shown and "<img src=x" not in shown and '" onerror' not in shown


def test_the_page_of_a_result_is_its_own_explorer(random_model, tmp_path: Path):
    import re

    run = studio.generate(random_model, f"a house {EVIL}", seed=1, steps=1)
    shown = of_page(run)
    found = re.search(r'srcdoc="([^"]*)"', shown)
    assert found is not None
    run.save(tmp_path / "run")
    assert html.unescape(found[1]) == (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in shown and 'sandbox="allow-scripts allow-downloads"' in shown
