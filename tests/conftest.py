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
import torch
from diffusers import StableDiffusionPipeline
from making import random_pipeline
from PIL import Image

torch.set_num_threads(1)
# A clock on the wall says how busy the machine is; what must be quick is timed by the processor.
hypothesis.settings.register_profile("any machine", deadline=None, derandomize=True)
hypothesis.settings.load_profile("any machine")


def _packed_less(save: Any) -> Any:
    def saved(image: Image.Image, file: Any, name: Any) -> None:
        image.encoderinfo |= {"compress_level": 1}
        save(image, file, name)

    return saved


# Packing PNGs is most of what saving a run takes. The pixels are the same, packed well or less so.
Image.preinit()
Image.SAVE["PNG"] = _packed_less(Image.SAVE["PNG"])


@pytest.fixture(scope="module", autouse=True)
def _heap() -> None:
    """Leave what is there already out of the collector's full rounds.

    With a million objects of other tests about, one such round takes a second, and comes where it
    likes: also into what a test says must be done within a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def random_model() -> StableDiffusionPipeline:
    """The pipeline of random weights, for a file of tests together."""
    return random_pipeline()


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model's folder."""
    folder = tmp_path_factory.mktemp("random")
    random_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture
def pipe() -> StableDiffusionPipeline:
    """A fresh random pipeline."""
    return random_pipeline()


@pytest.fixture(scope="session")
def embedded() -> StableDiffusionPipeline:
    """The embedded model, loaded once; tests must leave it as it was."""
    import heedmap

    loaded = heedmap.load()
    loaded.set_progress_bar_config(disable=True)
    return loaded
