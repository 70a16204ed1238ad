"""A folder for each test, the random model as the default of commands, and a saved run."""

import shutil
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import diffusers
import pytest
import transformers
from diffusers import StableDiffusionPipeline

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


@pytest.fixture(scope="module", autouse=True)
def _without_bars() -> Iterator[None]:
    """Hide the bars of loading, as commands do: tqdm reads the environment when it is imported."""
    for library in (diffusers, transformers):
        library.utils.logging.disable_progress_bar()
    yield
    for library in (diffusers, transformers):
        library.utils.logging.enable_progress_bar()


@pytest.fixture(scope="session")
def random_model(random_folder: Path) -> StableDiffusionPipeline:
    return loading.load(random_folder)


@pytest.fixture
def model(random_folder, random_model, monkeypatch: pytest.MonkeyPatch):
    """The random model, which commands load by default."""
    monkeypatch.setenv("HEEDMAP_MODEL", str(random_folder))
    return random_model


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser was asked to open."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or True)
    return asked


@pytest.fixture(scope="session")
def run(random_model) -> Run:
    return generation.generate(
        random_model, PROMPT, seed=3, steps=3, keep=("layer", "step", "head"), progress=quiet
    )


@pytest.fixture(scope="session")
def saved_once(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's folder, saved once: nobody may change it."""
    return run.save(tmp_path_factory.mktemp("runs") / "saved")


@pytest.fixture
def saved(saved_once: Path, desk: Path) -> Path:
    """The run's folder, in a test's own folder."""
    return shutil.copytree(saved_once, desk / "saved")
