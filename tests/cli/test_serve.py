"""`heedmap app`: its flags."""

import sys
from pathlib import Path

import pytest
from app.serving import serve
from gradio_client import Client

from cli.calling import bad, misused


def test_flags_reach_the_app(tmp_path: Path, random_folder: Path):
    models = ("--model", str(random_folder), "--device", "cpu", "--dtype", "float32")
    with serve(tmp_path, *models, "--auth", "ann:x:y", "--host", "127.0.0.1") as url:
        with pytest.raises(ValueError):
            Client(url, verbose=False)
        client = Client(url, auth=("ann", "x:y"), verbose=False, httpx_kwargs={"timeout": 60})
        client.predict(
            str(random_folder), "a cat", "3", "1", "", "", "", [], "all", "", api_name="/generate"
        )


@pytest.mark.parametrize("text", ["secret", ":secret", "secret:"])
def test_a_wrong_password_is_refused_and_not_printed(text: str):
    assert "secret" not in bad("app", "--auth", text)


def test_wrong_usage_is_refused():
    misused("app", "--port", "70000")


def test_missing_gradio_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "heedmap.app", raising=False)
    assert "pip install" in bad("app")
