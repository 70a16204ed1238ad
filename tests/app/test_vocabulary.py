"""The words to click together: each of the card, once, as text."""

import re

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from app.serving import EVIL
from heedmap.app import vocabulary
from heedmap.models import cards


def test_every_phrase_of_the_card_is_a_button():
    shown = vocabulary.of_phrases(2)
    words = re.findall(r'<button type="button" data-word="([^"]*)">([^<]*)</button>', shown)
    assert [said for said, _ in words] == [one for row in cards.phrases().values() for one in row]
    assert all(said == seen for said, seen in words) and 'data-boxes="2"' in shown


def test_what_the_model_cannot_draw_is_said_below():
    shown = vocabulary.of_phrases(1)
    assert "nothing beside them" in cards.limits()
    assert shown.index("</dl>") < shown.index(cards.limits())


def test_what_a_card_says_stays_text(monkeypatch):
    monkeypatch.setattr(cards, "phrases", lambda: {EVIL: (EVIL, '" onclick="x')})
    monkeypatch.setattr(cards, "limits", lambda: EVIL)
    shown = vocabulary.of_phrases(1)
    assert "<script" not in shown and "<img" not in shown and '" onclick' not in shown
    monkeypatch.setattr(cards, "phrases", dict)
    assert vocabulary.of_phrases(1) == ""
