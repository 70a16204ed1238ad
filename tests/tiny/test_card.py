"""What is known of the embedded model before it is loaded, against the loaded model."""

import json

import pytest

from heedmap.tiny import card
from heedmap.wiring import registry


def test_the_name_is_the_cards():
    about = json.loads((card.FOLDER / "card.json").read_text(encoding="utf-8"))
    assert about["name"] == card.EMBEDDED == "heedmap-tiny"


def test_what_is_drawn_when_nothing_is_said(embedded):
    assert (card.defaults().steps, card.defaults().guidance) == (25, 4.0)
    assert card.defaults().size == registry.usual_size(embedded) == (128, 128)
    with pytest.raises(AttributeError):
        card.defaults().steps = 3


def test_the_scheduler_is_the_loaded_ones(embedded):
    kind, config = card.scheduler()
    own = embedded.scheduler
    assert kind == type(own).__name__ == "DDIMScheduler"
    assert config == {k: v for k, v in own.config.items() if not k.startswith("_")}
