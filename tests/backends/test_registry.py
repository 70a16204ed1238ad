"""The table of families: who serves a pipeline, and what is said where nobody does."""

from types import SimpleNamespace

import pytest
import torch
from diffusers.models.attention_processor import Attention
from making import random_pipeline, random_pixart

from heedmap.backends import registry
from heedmap.backends.base import Family
from heedmap.backends.registry import (
    FAMILIES,
    cross_attention_layers,
    family_named,
    family_of,
    self_attention_layers,
    unit,
    usual_size,
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
    for pipe in (SimpleNamespace(), SimpleNamespace(unet=None, transformer=None)):
        with pytest.raises(ModelError):
            family_of(pipe)
    with pytest.raises(ModelError):
        family_of("a cat")
    for index in ({}, {"unet": ["diffusers", "UNet3D"]}, {"unet": None, "transformer": 3}):
        with pytest.raises(ModelError):
            family_named({"_class_name": "B", **index})


class Small(torch.nn.Module):
    """A denoiser that nobody has heard of: two layers, on a grid of thirds."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(sample_size=(6, 9))
        self.text = Attention(query_dim=8, cross_attention_dim=8, heads=2, dim_head=4)
        self.own = Attention(query_dim=8, heads=2, dim_head=4)


class Thirds(Family):
    description, component, model_class = "a small one", "painter", Small

    latent_multiple = 3

    def attention(self):
        return {"own": self.model.own, "text": self.model.text}

    def grid(self, name, latent):
        return latent[0] // 3, latent[1] // 3


def test_a_new_family_is_a_row(monkeypatch):
    pipe = SimpleNamespace(painter=Small(), vae_scale_factor=4)
    with pytest.raises(ModelError):
        cross_attention_layers(pipe)
    monkeypatch.setattr(registry, "FAMILIES", (*FAMILIES, Thirds))
    assert cross_attention_layers(pipe) == {"text": pipe.painter.text}
    assert self_attention_layers(pipe) == {"own": pipe.painter.own}
    assert family_of(pipe).grid("text", (6, 9)) == (2, 3)
    assert (usual_size(pipe), unit(pipe)) == ((36, 24), 12)
    assert (usual_size(random_pixart()), unit(random_pixart())) == ((256, 256), 16)
    assert family_of(random_pixart()).component == "transformer"
