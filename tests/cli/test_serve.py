"""`heedmap app`: its flags."""

import sys

import pytest

from cli.calling import bad, misused


@pytest.mark.parametrize("text", ["secret", ":secret", "secret:"])
def test_a_wrong_password_is_refused_and_not_printed(text: str):
    assert "secret" not in bad("app", "--auth", text)


def test_wrong_usage_is_refused():
    misused("app", "--port", "70000")


def test_missing_gradio_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "heedmap.app", raising=False)
    assert "pip install" in bad("app")
