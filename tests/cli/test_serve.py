"""`heedmap app`: what the app is started with."""

import sys
from types import ModuleType

import pytest

from cli.calling import bad, call, misused


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """What `heedmap.app.launch` was called with."""
    calls: list[tuple] = []
    app = ModuleType("heedmap.app")
    app.__dict__["launch"] = lambda *given, **named: calls.append((given, named))
    monkeypatch.setitem(sys.modules, "heedmap.app", app)
    return calls


def test_options_reach_the_app(launched: list[tuple], monkeypatch):
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    assert call("app").exit_code == 0
    (given, named) = launched.pop()
    assert given == (None, None) and named["auth"] == [] and not named["share"]
    asked = ("--model", "a", "-m", "b/c", "--host", "0.0.0.0", "--port", 8000, "--share", "--open")
    assert (
        call("app", *asked, "--auth", "ann:x:y", "-o", "mine", "--dtype", "float16").exit_code == 0
    )
    (given, named) = launched.pop()
    assert given[0] == ["a", "b/c"] and str(given[1]) == "mine"
    assert (named["host"], named["port"]) == ("0.0.0.0", 8000)
    assert named["share"] and named["open_browser"] and named["dtype"] == "float16"
    assert named["auth"] == [("ann", "x:y")]


def test_passwords_are_read_from_the_environment(launched: list[tuple], monkeypatch):
    monkeypatch.setenv("HEEDMAP_AUTH", "ann:x\nbob:y")
    call("app")
    assert launched.pop()[1]["auth"] == [("ann", "x"), ("bob", "y")]


@pytest.mark.parametrize("text", ["secret", ":secret", "secret:"])
def test_a_wrong_password_is_refused_and_not_printed(launched: list[tuple], text: str):
    assert "secret" not in bad("app", "--auth", text)
    assert launched == []


def test_wrong_usage_is_refused(launched: list[tuple]):
    misused("app", "--port", "70000")


def test_missing_gradio_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "heedmap.app", raising=False)
    assert "pip install" in bad("app")
