"""What is known of the embedded model before it is loaded, against the loaded model."""

import json

import pytest

from heedmap.backends import registry
from heedmap.tiny import card


def test_the_name_is_the_cards():
    about = json.loads((card.FOLDER / "card.json").read_text(encoding="utf-8"))
    assert about["name"] == card.EMBEDDED == "heedmap-tiny"


def test_what_is_drawn_when_nothing_is_said(embedded):
    assert (card.defaults().steps, card.defaults().guidance) == (25, 4.0)
    assert card.defaults().size == registry.usual_size(embedded) == (128, 128)
    with pytest.raises(AttributeError):
        card.defaults().steps = 3
