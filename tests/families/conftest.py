"""The families' saved folders, and how a test loads one."""

from copy import deepcopy

import pytest
from diffusers import DiffusionPipeline

from families import models


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Folder of a family's saved pipeline, made when it is first asked for."""
    made = {}

    def of(family):
        if family not in made:
            made[family] = tmp_path_factory.mktemp("families") / family
            (models.FAMILIES | models.JOINT)[family]().save_pretrained(made[family])
        return made[family]

    return of


@pytest.fixture(scope="session")
def loaded(folder):
    """A pipeline loaded from a family's folder by a class, once for all; nobody may use it."""
    made = {}

    def of(family, kind):
        if (family, kind) not in made:
            made[family, kind] = kind.from_pretrained(folder(family))
            made[family, kind].set_progress_bar_config(disable=True)
        return made[family, kind]

    return of


@pytest.fixture
def adapted(load, tmp_path):
    """A Stable Diffusion with an IP-Adapter."""
    pipe = load("sd1")
    models.save_ip_adapter(tmp_path / "ip", pipe.unet)
    pipe.load_ip_adapter(
        str(tmp_path / "ip"), subfolder="models", weight_name="ip-adapter_sd15.safetensors"
    )
    return pipe


@pytest.fixture
def load(folder, loaded):
    """A pipeline loaded from a family's folder, with the class it was saved as or another.

    A test has its own: a copy, which takes a third of the time that loading takes.
    """

    def of(family, kind=DiffusionPipeline, **arguments):
        if family in models.UNSAVED:  # which cannot be saved
            pipe = models.TABLE[family].make()
        elif not arguments:
            pipe = deepcopy(loaded(family, kind))
        else:
            pipe = kind.from_pretrained(folder(family), **arguments)
            pipe.set_progress_bar_config(disable=True)
        if family in (*models.JOINT, *models.UNSAVED):
            # It is no part of the configuration, and of 16 pixels for some.
            pipe.default_sample_size = 4 if family in ("bria", "fibo", "ernie") else 8
        if family == "longcat":
            pipe.tokenizer_max_length = 40  # 512
        return pipe

    return of
