"""What is shown: whatever a user typed stays text."""

from app.serving import EVIL
from heedmap.app.fragments import of_page, of_result, of_state, of_trouble
from heedmap.app.jobs import State


def test_what_a_user_typed_stays_text():
    shown = of_trouble(EVIL) + of_state(State("working", doing=EVIL, preview='x" onerror="y'))
    assert "<script" not in shown and "<img src=x" not in shown and '" onerror' not in shown


def test_progress_counts_what_is_done_and_numbers_no_step():
    shown = of_state(State("working", doing="Drawing", step=25, steps=25))
    assert "<p>Drawing: 25 of 25 steps</p>" in shown


def test_a_page_goes_by_its_address_shut_off_from_the_apps():
    for shown, address in ((of_result("name"), "./results/name/page"), (of_page("x"), "./pages/x")):
        assert f'src="{address}"' in shown and 'sandbox="allow-scripts allow-downloads"' in shown
        assert "srcdoc" not in shown
