"""A folder for each test, the random model in place of every model, and a saved run."""

import shutil
import webbrowser
from pathlib import Path

import pytest

from cli.calling import PROMPT, quiet
from heedmap.backends import loading
from heedmap.pipelines import generation
from heedmap.results.runs import Run


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")  # set by the commands, and so put back afterwards
    return tmp_path


@pytest.fixture
def model(random_model, monkeypatch: pytest.MonkeyPatch):
    """The random model in place of every model."""
    monkeypatch.setattr(loading, "load", lambda *_, **__: random_model)
    monkeypatch.setattr(loading, "tokenizer", lambda _=None: random_model.tokenizer)
    monkeypatch.setattr(
        loading, "model_card", lambda _=None: loading.ModelCard()
    )  # it was taught nothing
    return random_model


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser was asked to open."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or True)
    return asked


@pytest.fixture(scope="module")
def run(random_model) -> Run:
    return generation.generate(
        random_model, PROMPT, seed=3, steps=3, keep=("layer", "step", "head"), progress=quiet
    )


@pytest.fixture(scope="module")
def kept(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's folder, saved once: nobody may change it."""
    return run.save(tmp_path_factory.mktemp("runs") / "saved")


@pytest.fixture
def saved(kept: Path, desk: Path) -> Path:
    """The run's folder, in a test's own folder."""
    return shutil.copytree(kept, desk / "saved")
