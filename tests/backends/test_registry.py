"""The table of families: who serves a pipeline, and what is said where nobody does."""

import importlib
from types import SimpleNamespace

import pytest
import torch
from making import random_pipeline, random_pixart

import heedmap as hm
from heedmap.backends.registry import (
    FAMILIES,
    GROUP,
    default_size,
    families,
    family_named,
    family_of,
)
from heedmap.errors import ModelError


@pytest.mark.parametrize("make", [random_pipeline, random_pixart])
def test_a_family_is_found_by_the_class_of_its_denoiser(make):
    pipe = make()
    family = family_of(pipe)
    model = family.model
    assert type(model) is family.model_class
    assert {"timestep", "encoder_hidden_states"} < set(family.inputs[:3])
    # A compiled one is the same one.
    setattr(pipe, family.component, wrapped := torch.compile(model, backend="eager"))
    assert family.called_model is wrapped and family.model is model
    assert type(family_of(pipe)) is type(family)
    index = {"_class_name": "A", family.component: ["diffusers", family.model_class.__name__]}
    assert family_named(index) is type(family)


def test_pipelines_of_no_family_are_refused():
    with pytest.raises(ModelError, match="denoiser"):
        family_of(SimpleNamespace(unet=None, transformer=None, components={}))
    with pytest.raises(ModelError, match="str is no pipeline"):
        family_of("a cat")
    for index in ({}, {"unet": ["diffusers", "UNet3D"]}, {"unet": None, "transformer": 3}):
        with pytest.raises(ModelError, match="denoiser"):
            family_named({"_class_name": "B", **index})


def test_the_usual_size_is_the_models_and_a_multiple_of_its_unit():
    assert (default_size(random_pixart()), family_of(random_pixart()).unit) == ((256, 256), 16)


FAMILY = """
from diffusers import UNet2DConditionModel
from heedmap.backends.unet import UNet


class Deeper(UNet2DConditionModel):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class DeeperUNet(UNet):
    description = "a pipeline with a Deeper"
    model_class = Deeper
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with an entry point, for as long as the test runs."""

    def install(value):
        (tmp_path / "deeper.py").write_text(FAMILY)
        info = tmp_path / "deeper-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deeper\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\ndeeper = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        families.cache_clear()

    yield install
    monkeypatch.undo()
    importlib.invalidate_caches()
    families.cache_clear()


def test_another_package_adds_a_family(package):
    package("deeper:DeeperUNet")
    pipe = random_pipeline()
    pipe.unet.__class__ = importlib.import_module("deeper").Deeper
    assert type(family_of(pipe)).__name__ == "DeeperUNet"
    assert families()[:-1] == FAMILIES
    run = hm.generate(pipe, "a red house", seed=1, steps=2)
    assert run.maps["house"].values.max() > 0
    index = {"_class_name": "A", "unet": ["deeper", "Deeper"]}
    assert family_named(index) is families()[-1]
