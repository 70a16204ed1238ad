"""The families' saved folders, and how a test loads one."""

import pytest
import torch
from diffusers import DiffusionPipeline

from families import models


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """Networks as small as these are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Folder of a family's saved pipeline, made when it is first asked for."""
    made = {}

    def of(family):
        if family not in made:
            made[family] = tmp_path_factory.mktemp("families") / family
            models.FAMILIES[family]().save_pretrained(made[family])
        return made[family]

    return of


@pytest.fixture
def load(folder):
    """A pipeline loaded from a family's folder, with the class it was saved as or another."""

    def of(family, kind=DiffusionPipeline, **arguments):
        pipe = kind.from_pretrained(folder(family), **arguments)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    return of
