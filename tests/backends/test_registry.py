"""The table of families: who serves a pipeline, and what is said where nobody does."""

from types import SimpleNamespace

import pytest
import torch
from making import random_pipeline, random_pixart

from heedmap.backends.registry import family_named, family_of, unit, usual_size
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
    for pipe in (SimpleNamespace(), SimpleNamespace(unet=None, transformer=None)):
        with pytest.raises(ModelError):
            family_of(pipe)
    with pytest.raises(ModelError):
        family_of("a cat")
    for index in ({}, {"unet": ["diffusers", "UNet3D"]}, {"unet": None, "transformer": 3}):
        with pytest.raises(ModelError):
            family_named({"_class_name": "B", **index})


def test_the_usual_size_is_the_models_and_a_multiple_of_its_unit():
    assert (usual_size(random_pixart()), unit(random_pixart())) == ((256, 256), 16)
