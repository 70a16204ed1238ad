"""A model's card, and cards of another kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from heedmap.backends.loading import ModelCard, model_card
from heedmap.tiny import EMBEDDED, FOLDER
from world import captions


def test_the_embedded_models_card_lists_the_words_of_its_captions():
    card = model_card()
    assert card == model_card(EMBEDDED) == model_card(FOLDER)
    assert card.vocabulary == captions.vocabulary()
    written = json.loads((FOLDER / "card.json").read_text())
    assert written["phrases"] == captions.phrases()
    every = " ".join(word for words in written["phrases"].values() for word in words)
    assert set(every.split()) <= captions.vocabulary()
    assert "up to three things" in written["limits"]


def test_a_folders_card_is_read_and_a_model_without_one_has_an_empty_card(tmp_path: Path):
    (tmp_path / "card.json").write_text(json.dumps({"vocabulary": ["one"], "more": [1, {}]}))
    assert model_card(tmp_path) == ModelCard(frozenset({"one"}))
    assert model_card("org/model") == ModelCard()


@pytest.mark.parametrize("content", [None, {"vocabulary": "a"}])
def test_a_card_of_another_kind_is_empty(tmp_path: Path, content: Any):
    (tmp_path / "card.json").write_text(json.dumps(content))
    assert model_card(tmp_path) == ModelCard()
