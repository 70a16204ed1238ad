"""What is known of the embedded model before it is loaded, against the loaded model."""

import json

import pytest

from heedmap import tiny
from heedmap.backends import registry


def test_the_embedded_models_name_is_on_its_card():
    about = json.loads((tiny.FOLDER / "card.json").read_text(encoding="utf-8"))
    assert about["name"] == tiny.EMBEDDED == "heedmap-tiny"


def test_the_embedded_model_has_read_only_defaults(embedded):
    assert (tiny.defaults().steps, tiny.defaults().guidance) == (25, 4.0)
    assert tiny.defaults().size == registry.usual_size(embedded) == (128, 128)
    with pytest.raises(AttributeError):
        tiny.defaults().steps = 3
