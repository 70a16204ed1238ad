"""What all families have in common: the denoiser within its wrappings, and what a pass is given."""

from types import SimpleNamespace

import pytest
import torch

from heedmap.backends import registry
from heedmap.backends.family import Family, made_from


class Wrapped:
    """As torch.compile and peft keep a model."""

    def __init__(self, model, compiled):
        if compiled:
            self._orig_mod = model
        else:
            self.get_base_model = lambda: model


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: type(family).__name__)
def test_the_denoiser_is_found_in_what_holds_it(family: Family):
    model = torch.nn.Identity()
    for held in (model, Wrapped(model, True), Wrapped(model, False)):
        pipe = SimpleNamespace(**{family.component: held})
        assert family.part(pipe) is held
        assert family.denoiser(pipe) is model
    both = Wrapped(Wrapped(model, False), True)
    assert family.denoiser(SimpleNamespace(**{family.component: both})) is model
    assert family.part(SimpleNamespace()) is family.denoiser(SimpleNamespace()) is None


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: type(family).__name__)
def test_a_pass_is_read_by_place_and_by_name(family: Family):
    given = {name: torch.full((1,), float(n)) for n, name in enumerate(family.inputs)}
    expected = [given[name] for name in (family.sample, "timestep", "encoder_hidden_states")]
    for count in range(4):
        args = tuple(given.values())[:count]
        kwargs = dict(list(given.items())[count:])
        found = family.passed(args, {**kwargs, "more": None})
        assert all(a is b for a, b in zip(found, expected, strict=True))


def kind_of(*names: str) -> object:
    """Something made from classes of these names, the last the furthest up."""
    made: type = object
    for name in reversed(names):
        made = type(name, (made,), {})
    return made()


def test_a_pipeline_is_known_by_its_class_or_one_that_it_is_made_from():
    pipe = kind_of("Mine", "Own", "Base")
    assert made_from(pipe, {"Base", "Own"}) == "Own"  # the nearest
    assert made_from(pipe, {"Base": "why"}) == "Base"
    assert made_from(pipe, {"Bas", "OwnBase"}) is None


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: type(family).__name__)
def test_a_cell_has_the_pixels_that_the_decoder_makes_of_it(family: Family):
    assert family.cell_side(SimpleNamespace(vae_scale_factor=16.0)) == 16
    for name in ("vae", "movq", "vqvae"):
        pipe = SimpleNamespace(**{"vae": None, name: torch.nn.Identity()})
        assert family.decoder(pipe) is getattr(pipe, name) and family.cell_side(pipe) == 8
    assert family.decoder(SimpleNamespace()) is None  # it draws pixels
    assert family.cell_side(SimpleNamespace()) == 1


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: type(family).__name__)
def test_what_holds_of_a_pipeline_without_anything_special(family: Family):
    pipe = kind_of("StableDiffusionPipeline", "DiffusionPipeline")
    assert not family.repeats_passes(pipe) and not family.source_first(pipe)
    assert family.why_unblended(pipe) is None and family.start_size(pipe, (64, 32)) == (64, 32)
