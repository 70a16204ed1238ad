"""What a page says of edits: the weights and words of each kind, and the rows of its tables."""

import numpy as np
import pytest
from making import Edited, noisy_run, report_of, settings_of, small

from heedmap.page.pages import edit_summary, edit_tables, run_summary, settings_rows, strongest_word


def test_a_page_opens_with_the_strongest_content_word():
    run = small("a red house by a red tree")
    deviations = {n: float(np.std(run.maps.at(n).values, dtype=float)) for n in (1, 2, 5, 6)}
    best = max(deviations, key=lambda number: deviations[number])
    assert run_summary(run)["rest"] == best
    assert strongest_word(run.maps, {6}) == 6 and strongest_word(run.maps, {0}) == best
    assert run_summary(small("..."))["rest"] is None


def test_a_users_image_is_named_by_its_use():
    image = {"size": [300, 200], "sha256": "0" * 64}
    for settings, use in (({"located": image}, "located"), ({"input_image": image}, "edited")):
        run = small()
        run.settings = settings_of(prompt="a red house", **settings)
        assert run_summary(run)["own"] == use


def test_an_edit_has_its_weighted_words_its_pairs_and_its_reason():
    source, edited = small("a red house"), small("a red house, a cat")
    weights = {str(p): 2.5 for p in edited.maps.tokens.find("house")}
    report = report_of(kind="reweight", weights=weights)
    reweighted = edit_summary(Edited(source, edited, report))
    assert reweighted["weights"] == [(2, 2.5)] and "“house” ×2.5" in reweighted["why"]
    assert reweighted["words"] == [[0, 0], [1, 1], [2, 2]]
    replaced = Edited(source, edited, report_of(kind="replace", why="'cat' became 'dog'"))
    assert edit_summary(replaced)["why"] == "'cat' became 'dog'."
    tables = edit_tables(replaced.report, blended=True)
    assert len(tables["change"]) == 2 and ["kind", "replace"] in tables["attention"]


@pytest.mark.parametrize(
    ("prompt", "text", "weights"),
    [
        ("a (red:-2) (house:0)", "a red house", [(1, -2.0), (2, 0.0)]),
        ("a (red house:1.5)", "a red house", [(1, 1.5), (2, 1.5)]),
        ("a red house", "a red house", []),
    ],
)
def test_weights_in_a_prompt_are_listed(prompt: str, text: str, weights: list):
    assert run_summary(noisy_run(prompt, 0, text))["weights"] == weights


def test_settings_that_are_not_set_have_no_row():
    rows = settings_rows(settings_of(prompt="a", size=[8, 16], negative=None))
    assert ("size", "8×16") in rows and not [row for row in rows if row[0] == "negative"]
