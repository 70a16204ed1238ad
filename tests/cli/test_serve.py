"""`heedmap app`: its flags."""

import sys

import pytest

from cli.calling import error_of


@pytest.mark.parametrize("text", ["secret", ":secret", "secret:"])
def test_a_wrong_password_is_refused_and_not_printed(text: str):
    assert "secret" not in error_of("app", "--auth", text)


def test_missing_gradio_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "heedmap.app", raising=False)
    assert "pip install" in error_of("app")
