"""What a page says of edits: the right sentence for each kind, and the rows of its tables."""

from dataclasses import replace

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
    noted = {"size": [300, 200], "sha256": "0" * 64}
    for settings, use in (
        ({"located": noted}, "located"),
        ({"input_image": noted}, "edited"),
        ({}, ""),
    ):
        run = small()
        run.settings = settings_of(prompt="a red house", **settings)
        assert run_summary(run)["own"] == use


def edit(
    kind: str, weights: dict[str, float], said: str = "all words are the same, so …"
) -> Edited:
    source = small("a red house")
    edited = small("a red house")
    tokens = edited.maps.tokens
    at = {str(p): w for word, w in weights.items() for p in tokens.find(word)}
    return Edited(source, edited, report_of(kind=kind, why=said, weights=at))


def test_an_edit_has_its_weighted_words_and_its_reason():
    told = edit_summary(edit("reweight", {"house": 2.5, "red": 1}))
    assert told["weights"] == [(2, 2.5)] and "“house” ×2.5" in told["why"]
    assert edit_summary(edit("replace", {}, "'cat' became 'dog'"))["why"] == "'cat' became 'dog'."


@pytest.mark.parametrize(
    ("prompt", "read", "weights"),
    [
        ("a (red:-2) (house:0)", "a red house", [(1, -2.0), (2, 0.0)]),
        ("a (red house:1.5)", "a red house", [(1, 1.5), (2, 1.5)]),
        ("a red house", "a red house", []),
    ],
)
def test_weights_in_a_prompt_are_listed(prompt: str, read: str, weights: list):
    run = noisy_run(prompt, 0, read)
    assert run_summary(run)["weights"] == weights
    edit_of = replace(run.settings, edit={})
    assert run_summary(replace(run, settings=edit_of))["weights"] == []  # its pair has them


def test_the_tables_of_an_edit_have_its_evidence():
    told = edit_tables(edit("replace", {}).report, blended=True)
    assert [row[0] for row in told["change"]] == ["inside of the mask", "outside of the mask"]
    assert ["kind", "replace"] in told["attention"]
    found = settings_rows(settings_of(prompt="a", size=[8, 16], negative=None))
    assert ("size", "8×16") in found and not [row for row in found if row[0] == "negative"]


@pytest.mark.parametrize("edited", ["a red house", "a red house, a cat"])
def test_corresponding_words_are_paired(edited):
    pair = Edited(small("a red house"), small(edited), report_of(kind="refine"))
    assert edit_summary(pair)["words"] == [[0, 0], [1, 1], [2, 2]]
