"""The cards of the embedded models, against the loaded models."""

import json

import pytest
import torch

from heedmap import generate, layer_shapes, tiny
from heedmap.backends import registry
from heedmap.backends.loading import load, name_of
from heedmap.errors import ArgumentError, UnknownWordError


@pytest.mark.parametrize("name", ["heedmap-tiny", "joint"])
def test_a_card_has_the_name_and_the_parameters_of_its_model(name):
    pipe = load(name)
    assert name_of(pipe) == name
    about = json.loads((tiny.FOLDERS[name] / "card.json").read_text(encoding="utf-8"))
    assert about["name"] == name
    parts = {n: p for n, p in pipe.components.items() if hasattr(p, "parameters")}
    found = {n: sum(p.numel() for p in part.parameters()) for n, part in parts.items()}
    assert about["training"]["parameters"] == found
    assert tiny.defaults(name).size == registry.default_size(pipe) == (128, 128)


def test_the_embedded_models_share_the_autoencoder():
    first, second = load().vae.state_dict(), load("joint").vae.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_call_has_the_arguments_of_the_card_unless_it_gives_its_own():
    pipe = load("joint")
    for given, expected in (({}, 1), ({"max_sequence_length": 256}, 256)):
        run = generate(pipe, "a red house", seed=1, steps=1, tokens="all", **given)
        assert run.settings.arguments == {"max_sequence_length": expected}
        assert len(run.maps.recording.positions) == 32 + expected
        shapes = layer_shapes(pipe, "a red house", **given)
        assert {one.scores for one in shapes} == {(64, 64 + 32 + expected)}
        with pytest.raises(UnknownWordError):  # there is no T5
            run.maps.select(encoder=1)


@pytest.mark.parametrize("size", [(512, 512), (272, 128)])
def test_sizes_beyond_the_embeddings_of_places_are_refused(size):
    pipe, ran = load("joint"), []
    pipe.transformer.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(ArgumentError, match="size"):
        generate(pipe, "a red house", seed=1, steps=1, size=size)
    assert not ran
