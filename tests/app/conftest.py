"""The app's parts around the random model, and the app itself, running."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.serving import PROMPT, Served
from heedmap.app.jobs import JobQueue
from heedmap.app.options import Options
from heedmap.app.result_store import ResultStore
from heedmap.app.worker import Worker
from heedmap.drawing import generation
from heedmap.models import pipelines
from heedmap.results.runs import Run

# Gradio counts its events in a table of pandas, with an option that pandas 3 finds old-fashioned.
OLD_FASHIONED = "ignore:'future.no_silent_downcasting' is deprecated:DeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(OLD_FASHIONED))


@pytest.fixture
def model(random_model, monkeypatch: pytest.MonkeyPatch):
    """The random model in place of every model."""
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: random_model)
    return random_model


@pytest.fixture(scope="module")
def run(random_model) -> Run:
    return generation.generate(random_model, PROMPT, seed=3, steps=2)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return tmp_path


@pytest.fixture
def queue() -> Iterator[JobQueue]:
    made = JobQueue(most=3)
    yield made
    made.close()


@pytest.fixture
def worker(tmp_path: Path, model) -> Worker:
    return Worker(ResultStore(tmp_path / "store", 10, shared=True), Options(names=("app.example",)))


@pytest.fixture(scope="module")
def server(random_model, tmp_path_factory) -> Iterator[Any]:
    """The app of the random model, with a password, on a free port."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines, "load", lambda *_, **__: random_model)
        with Served(tmp_path_factory.mktemp("app"), {"ann": "pa:ss"}) as served:
            yield served
