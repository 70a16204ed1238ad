"""What a page says of edits: the right sentence for each kind, and the rows of its tables."""

from dataclasses import replace

import pytest
from making import Edited, noisy_run, report_of, settings_of, small
from msgspec import structs

from heedmap.page.summaries import (
    edit_summary,
    edit_tables,
    edit_weights,
    matching_words,
    picture_use,
    prompt_weights,
    settings_rows,
    stability_notes,
)


def test_how_stable_words_are_is_told_by_their_numbers():
    maps = small("a red house").maps
    assert stability_notes(maps) == []
    told = stability_notes(replace(maps, stability={0: 0.5, 1: -0.2, 2: 0.984}))
    assert told == [
        {"words": [0], "kind": "stable", "read": "stability 0.50, unsteady", "refined": ""},
        {"words": [1], "kind": "stable", "read": "stability −0.20, unsteady", "refined": ""},
        {"words": [2], "kind": "stable", "read": "stability 0.98", "refined": ""},
    ]


def test_what_a_run_has_to_do_with_a_picture_of_ones_own():
    noted = {"size": [300, 200], "sha256": "0" * 64}
    assert picture_use(settings_of(located=noted)) == "located"
    assert picture_use(settings_of(given=noted)) == "edited"
    assert picture_use(settings_of()) == ""


def edit(
    kind: str, weights: dict[str, float], said: str = "all words are the same, so …"
) -> Edited:
    source = small("a red house")
    edited = small("a red house")
    tokens = edited.maps.tokens
    at = {str(p): w for word, w in weights.items() for p in tokens.find(word)}
    return Edited(source, edited, report_of(kind=kind, why=said, weights=at))


@pytest.mark.parametrize(
    ("kind", "weights", "said"),
    [
        ("reweight", {"red": 3}, "all words are the same; “red” draws 3 times its attention"),
        (
            "reweight", {"red": -0.5, "house": 2},
            "all words are the same; “red” draws −0.5 times its attention and “house” draws 2 "
            "times its attention",
        ),
        ("replace", {}, "'cat' became 'dog'"),
        ("refine", {"house": 2}, "'cat' became 'dog'; “house” draws 2 times its attention"),
    ],
)  # fmt: skip
def test_the_sentence_of_an_edit(kind: str, weights: dict[str, float], said: str):
    pair = edit(kind, weights, "'cat' became 'dog'")
    assert edit_summary(pair) == said


def test_the_words_that_are_weighted():
    assert edit_weights(edit("reweight", {"house": 2.5, "red": 1})) == [[2, 2.5]]


@pytest.mark.parametrize(
    ("prompt", "read", "weights"),
    [
        ("a (red:-2) (house:0)", "a red house", [[1, -2.0], [2, 0.0]]),
        ("a (red house:1.5)", "a red house", [[1, 1.5], [2, 1.5]]),
        ("a red house", "a red house", []),
        ("a (red:2) house", "a (red:2) house", []),  # read as it stands, by a call of one's own
        ("a (red:2 house", "a (red:2 house", []),
    ],
)
def test_the_weights_that_were_written_into_a_prompt(prompt: str, read: str, weights: list):
    run = noisy_run(prompt, 0, read)
    assert prompt_weights(run) == weights
    edit_of = structs.replace(run.settings, edit={})
    assert prompt_weights(replace(run, settings=edit_of)) == []  # its pair tells


def test_the_weights_that_a_rule_gave():
    """As of a word that was left out by its columns: times what was written."""
    run = noisy_run("a (red:1.5) house by a red tree", 0, "a red house by a red tree")
    rules = [
        *({"kind": "reweight", "word": word, "weight": w} for word, w in (("red", -2), ("by", 0))),
        {"kind": "confine", "word": "tree", "where": [0, 0, 1, 1]},
        {"kind": "rule", "name": "mine"},
    ]
    given = settings_of(prompt=run.settings.prompt, edits=rules).edits
    told = prompt_weights(replace(run, settings=structs.replace(run.settings, edits=given)))
    assert told == [[1, -3.0], [3, 0.0], [5, -2.0]]
    odd = (structs.replace(given[0], word="cat"),)  # of a file that was changed
    assert prompt_weights(replace(run, settings=structs.replace(run.settings, edits=odd))) == []


def test_words_that_stand_for_one_another():
    matched = matching_words(edit("replace", {}))
    assert matched["words"] == [[0, 0], [1, 1], [2, 2]]


def test_the_tables():
    told = edit_tables(edit("replace", {}).about, blended=True)
    assert [row[0] for row in told["change"]] == ["inside of the mask", "outside of the mask"]
    assert ["how", "replace"] in told["said"]
    found = settings_rows(settings_of(prompt="a", size=[8, 16], negative=None))
    assert ["size", "8×16"] in found and not [row for row in found if row[0] == "negative"]


def test_a_word_that_is_new_stands_for_none():
    pair = Edited(small("a red house"), small("a red house, a cat"), report_of(kind="refine"))
    told = matching_words(pair)
    assert told["words"] == [[0, 0], [1, 1], [2, 2]]
