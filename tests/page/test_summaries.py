"""What a page says of edits: the right sentence for each kind, and the rows of its tables."""

from dataclasses import replace

import numpy as np
import pytest
from making import Edited, made_trust, noisy_run, report_of, settings_of, small
from msgspec import structs

from heedmap.page.summaries import (
    edit_summary,
    edit_tables,
    matching_words,
    prompt_weights,
    run_summary,
    settings_rows,
    strongest_word,
    trust_notes,
)


def test_how_stable_words_are():
    run = small("a red house")
    assert trust_notes(run) == []
    run.concepts = replace(run.maps, stability={0: 0.5, 2: 0.984})
    notes = [(one["prompt"], one["words"], one["read"]) for one in trust_notes(run)]
    assert notes == [
        ("concepts", [0], "stability 0.50, unsteady"),
        ("concepts", [2], "stability 0.98"),
    ]


def test_how_far_attention_and_cause_agree():
    """Of a word at all its places, of a phrase, of a run without refined maps."""
    told = made_trust(None, None)
    run = small("a red house, a red tree")
    run.trust = {
        "red": made_trust(),
        "red tree": made_trust(-0.3, None),
        "a": structs.replace(told, columns=structs.replace(told.columns, refined=None)),
    }
    said = "attention and cause (columns): "
    assert [(one["words"], one["read"], one["refined"]) for one in trust_notes(run)] == [
        ([1, 4], f"{said}rank 0.62, AUC 0.91", f"{said}rank −0.62, AUC 0.91"),
        ([4, 5], f"{said}rank −0.30", f"{said}rank 0.30"),
        ([0, 3], f"{said}nothing to compare", ""),
    ]


def test_a_page_opens_with_the_strongest_content_word_or_the_ablated_one():
    run = small("a red house by a red tree")
    deviations = {n: float(np.std(run.maps.at(n).values, dtype=float)) for n in (1, 2, 5, 6)}
    best = max(deviations, key=lambda number: deviations[number])
    assert run_summary(run)["rest"]["words"] == [best]
    assert strongest_word(run.maps, {6})["words"] == [6]
    run.trust = {"red": made_trust()}
    assert run_summary(run)["rest"] == {"words": [1, 5], "label": "red"}
    assert run_summary(small("..."))["rest"] is None


def test_a_picture_of_the_users():
    noted = {"size": [300, 200], "sha256": "0" * 64}
    for settings, use in (({"located": noted}, "located"), ({"given": noted}, "edited"), ({}, "")):
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


def test_the_weighted_words_of_an_edit_and_its_sentence():
    told = edit_summary(edit("reweight", {"house": 2.5, "red": 1}))
    assert told["weights"] == [(2, 2.5)] and "“house” ×2.5" in told["why"]
    assert edit_summary(edit("replace", {}, "'cat' became 'dog'"))["why"] == "'cat' became 'dog'."


@pytest.mark.parametrize(
    ("prompt", "read", "weights"),
    [
        ("a (red:-2) (house:0)", "a red house", [(1, -2.0), (2, 0.0)]),
        ("a (red house:1.5)", "a red house", [(1, 1.5), (2, 1.5)]),
        ("a red house", "a red house", []),
        ("a (red:2) house", "a (red:2) house", []),  # read as it stands, by a call of one's own
        ("a (red:2 house", "a (red:2 house", []),
    ],
)
def test_the_weights_that_were_written_into_a_prompt(prompt: str, read: str, weights: list):
    run = noisy_run(prompt, 0, read)
    assert prompt_weights(run) == weights
    edit_of = structs.replace(run.settings, edit={})
    assert run_summary(replace(run, settings=edit_of))["weights"] == []  # its pair has them


def test_words_that_stand_for_one_another():
    assert matching_words(edit("replace", {})) == [[0, 0], [1, 1], [2, 2]]


def test_the_tables():
    told = edit_tables(edit("replace", {}).about, blended=True)
    assert [row[0] for row in told["change"]] == ["inside of the mask", "outside of the mask"]
    assert ["how", "replace"] in told["attention"]
    found = settings_rows(settings_of(prompt="a", size=[8, 16], negative=None))
    assert ["size", "8×16"] in found and not [row for row in found if row[0] == "negative"]


def test_a_word_that_is_new_stands_for_none():
    pair = Edited(small("a red house"), small("a red house, a cat"), report_of(kind="refine"))
    assert matching_words(pair) == [[0, 0], [1, 1], [2, 2]]
