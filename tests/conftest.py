"""Shared fixtures: a small Stable Diffusion of random weights, and the embedded one."""

import gc
import os
from pathlib import Path
from typing import Any

# Tiny tensors: threads cost more than they bring, above all where other work shares the cores. The
# variable reaches the processes that tests start, so that they compute the same bits.
os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis
import pytest
from app.serving import app_folder, app_url  # noqa: F401
from PIL import Image

# A clock on the wall says how busy the machine is; what must be quick is timed by the processor.
hypothesis.settings.register_profile("full", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile(
    "quick", hypothesis.settings.get_profile("full"), max_examples=20
)


SLOW = (
    "app/",  # starts the app
    "browser/",  # needs a browser
    "sweeps/",  # starts processes and cluster engines
    "families/",  # runs each family in each way
    "cli/",  # runs each command
    "scripts/",  # runs the notebook, the evaluation and the training
    "pipelines/test_edits_of_images.py",
    "pipelines/test_locating.py",
    "pipelines/test_repeating.py",
    "pipelines/test_step_images.py",
    "test_pages.py",  # runs the documents
)
"""The beginnings of the paths that `pytest` alone leaves out, but for the files in `QUICK`."""
QUICK = {
    "families/test_served.py",
    "cli/test_words.py",
    "scripts/test_drawn.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests, too")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use all cores for a whole run, where pytest-xdist is installed; run all of a named file."""
    if hasattr(config, "workerinput"):  # a process of pytest-xdist, with the options of the first
        return
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        config.option.all = True
    elif config.pluginmanager.hasplugin("xdist") and config.option.numprocesses is None:
        config.option.numprocesses = 0 if config.option.usepdb else len(os.sched_getaffinity(0))
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist whether all tests run: its own options do not have it."""
    node.workerinput["all"] = node.config.option.all


def _runs_all(config: pytest.Config) -> bool:
    options = getattr(config, "workerinput", vars(config.option))
    return bool(options["all"] or config.option.markexpr)


def _is_slow(path: Path) -> bool:
    name = path.relative_to(Path(__file__).parent).as_posix()
    return name.startswith(SLOW) and name not in QUICK


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let Hypothesis try few examples in the quick suite."""
    hypothesis.settings.load_profile("full" if _runs_all(session.config) else "quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files of slow tests unread, unless they are asked for: their imports take long."""
    if _runs_all(config) or collection_path.suffix != ".py":
        return None
    return _is_slow(collection_path) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests, and leave them out unless they are asked for."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    if _runs_all(config):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)


def _packed_less(save: Any) -> Any:
    def saved(image: Image.Image, file: Any, name: Any) -> None:
        image.encoderinfo |= {"compress_level": 1, "compress_type": 3}  # runs alone
        save(image, file, name)

    return saved


# Packing PNGs is most of what saving a run takes. The pixels are the same, packed well or less so.
Image.preinit()
Image.SAVE["PNG"] = _packed_less(Image.SAVE["PNG"])


# At Python's own threshold, of 700, the collector's rounds take a tenth of the tests' time.
gc.set_threshold(10_000)


@pytest.fixture(scope="module", autouse=True)
def _heap() -> None:
    """Leave what is there already out of the collector's full rounds.

    With a million objects of other tests about, one such round takes a second, and comes where it
    likes: also into what a test says must be done within a second.
    """
    gc.collect()
    gc.freeze()


def _random_pipeline() -> Any:
    # The process that hands the tests out to others reads this file, too, and needs no models.
    from making import random_pipeline

    return random_pipeline()


@pytest.fixture(scope="module")
def random_model() -> Any:
    """The pipeline of random weights, for a file of tests together."""
    return _random_pipeline()


@pytest.fixture(scope="session")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model's folder: nobody may change it."""
    folder = tmp_path_factory.mktemp("random")
    _random_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture
def pipe() -> Any:
    """A fresh random pipeline."""
    return _random_pipeline()


@pytest.fixture(scope="session")
def embedded() -> Any:
    """The embedded model, loaded once; tests must leave it as it was."""
    import heedmap

    loaded = heedmap.load()
    loaded.set_progress_bar_config(disable=True)
    return loaded
