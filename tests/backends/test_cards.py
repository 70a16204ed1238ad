"""What a model's card says of its words, and cards that are none of ours."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heedmap.backends.cards import limits, phrases, taught_words, words_of
from heedmap.tiny.card import EMBEDDED, FOLDER
from world import captions


def test_the_embedded_models_card_lists_the_words_of_its_captions():
    assert taught_words() == taught_words(EMBEDDED) == taught_words(FOLDER)
    assert taught_words() == captions.vocabulary()
    assert {name: list(words) for name, words in phrases().items()} == captions.phrases()
    every = " ".join(word for words in phrases().values() for word in words)
    assert set(every.split()) <= captions.vocabulary()
    assert limits() == limits(FOLDER) and "up to three things" in limits()


def test_a_pipeline_is_asked_by_what_it_was_loaded_from(tmp_path: Path):
    (tmp_path / "card.json").write_text(json.dumps({"vocabulary": ["one"], "more": [1, {}]}))
    assert words_of(SimpleNamespace(name_or_path=str(FOLDER))) == captions.vocabulary()
    assert words_of(SimpleNamespace(name_or_path=str(tmp_path))) == {"one"}
    assert phrases(tmp_path) == {} and limits(tmp_path) == ""
    assert words_of(SimpleNamespace(name_or_path="org/model")) is None
    assert words_of(SimpleNamespace()) is None


@pytest.mark.parametrize(
    "held",
    [
        None, [], "a list", {}, {"vocabulary": None}, {"vocabulary": []}, {"vocabulary": "red"},
        {"vocabulary": [1]}, {"vocabulary": ["a" * 101]}, {"vocabulary": [""]},
        {"vocabulary": ["a"], "phrases": ["a"]},
        {"vocabulary": ["a"], "phrases": {"nouns": ["a" * 101]}},
        {"vocabulary": ["a"], "phrases": {"nouns": ["a"] * 1001}},
        {"vocabulary": ["a"], "limits": "a" * 1001}, {"vocabulary": ["a"], "limits": 3},
        {"vocabulary": [f"{n}" for n in range(100_001)]},
    ],
)  # fmt: skip
def test_a_card_that_is_none_of_ours_says_nothing(tmp_path: Path, held: Any):
    (tmp_path / "card.json").write_text(json.dumps(held))
    assert taught_words(tmp_path) is None and phrases(tmp_path) == {} and limits(tmp_path) == ""
