"""What a page says of edits: the weights and words of each kind, and the rows of its tables."""

import numpy as np
import pytest
from making import noisy_run, report_of, small

from heedmap.page.pages import edit_summary, edit_tables, run_summary, strongest_word
from heedmap.results.edits import EditResult


def test_a_page_opens_with_the_strongest_content_word():
    run = small("a red house by a red tree")
    deviations = {n: float(np.std(run.maps.at(n).values, dtype=float)) for n in (1, 2, 5, 6)}
    best = max(deviations, key=lambda number: deviations[number])
    assert run_summary(run)["rest"] == best
    assert strongest_word(run.maps, {6}) == 6 and strongest_word(run.maps, {0}) == best
    assert run_summary(small("..."))["rest"] is None


def test_an_edit_has_its_weighted_words_its_pairs_and_its_reason():
    source, edited = small("a red house"), small("a red house, a cat")
    weights = {str(p): 2.5 for p in edited.maps.tokens.find("house")}
    report = report_of(kind="reweight", weights=weights)
    reweighted = edit_summary(EditResult(source, edited, report))
    assert reweighted["weights"] == [(2, 2.5)] and "“house” ×2.5" in reweighted["why"]
    assert reweighted["words"] == [[0, 0], [1, 1], [2, 2]]
    replaced = EditResult(source, edited, report_of(kind="replace", why="'cat' became 'dog'"))
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
