"""What is known of the embedded model before it is loaded, against the loaded model."""

import json

import pytest

from heedmap import tiny
from heedmap.backends import registry


def test_the_name_is_the_cards():
    about = json.loads((tiny.FOLDER / "card.json").read_text(encoding="utf-8"))
    assert about["name"] == tiny.EMBEDDED == "heedmap-tiny"


def test_what_is_drawn_when_nothing_is_said(embedded):
    assert (tiny.defaults().steps, tiny.defaults().guidance) == (25, 4.0)
    assert tiny.defaults().size == registry.usual_size(embedded) == (128, 128)
    with pytest.raises(AttributeError):
        tiny.defaults().steps = 3
