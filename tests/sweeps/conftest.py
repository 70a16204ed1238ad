"""The random model in place of every model, and an empty folder for each test."""

from pathlib import Path

import pytest

from heedmap.backends import loading


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return tmp_path


@pytest.fixture
def model(random_model, monkeypatch: pytest.MonkeyPatch):
    """The random model in place of every model."""
    monkeypatch.setattr(loading, "load", lambda *_, **__: random_model)
    monkeypatch.setattr(loading, "outline", lambda *_, **__: random_model)
    monkeypatch.setattr(loading, "model_card", lambda _=None: loading.ModelCard())
    return random_model
