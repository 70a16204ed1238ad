"""What a page says of edits: the right sentence for each kind, and the rows of its tables."""

import pytest
from making import Edited, report_of, settings_of, small

from heedmap.explorer.told import correspondence, figures, rows, weighted, what_was_done


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
    assert what_was_done(pair) == said


def test_the_words_that_are_weighted():
    assert weighted(edit("reweight", {"house": 2.5, "red": 1})) == [[2, 2.5]]


def test_words_that_stand_for_one_another():
    matched, kind = correspondence(edit("replace", {}))
    assert matched["words"] == [[0, 0], [1, 1], [2, 2]] and kind == "replace"


def test_the_tables():
    told = figures(edit("replace", {}).about, blended=True)
    assert [row[0] for row in told["change"]] == ["inside of the mask", "outside of the mask"]
    assert ["how", "replace"] in told["said"]
    found = rows(settings_of(prompt="a", size=[8, 16], negative=None))
    assert ["size", "8×16"] in found and not [row for row in found if row[0] == "negative"]


def test_a_word_that_is_new_stands_for_none():
    pair = Edited(small("a red house"), small("a red house, a cat"), report_of(kind="refine"))
    told, kind = correspondence(pair)
    assert told["words"] == [[0, 0], [1, 1], [2, 2]] and kind == "refine"
