"""The names, stages and patterns of layers, from their dotted paths in a model."""

import pytest
from families import models
from making import cross_attention_layers

from heedmap.backends.registry import family_of
from heedmap.maps.recordings import Layer, name_fits, short_names

NAME = "{}.attentions.{}.transformer_blocks.{}.attn2".format


@pytest.mark.parametrize(
    ("name", "short", "stage"),
    [
        (NAME("up_blocks.1", 2, 0), "up 1.2", "up"),
        (NAME("down_blocks.2", 1, 7), "down 2.1.7", "down"),
        ("transformer_blocks.0.attn2", "transformer 0", ""),
    ],
)
def test_layers_have_short_names_and_stages(name, short, stage):
    layer = Layer(name, 1, (1, 1))
    assert (layer.short, layer.group) == (short, stage)


def test_layers_are_chosen_by_name_stage_or_pattern():
    name = NAME("up_blocks.1", 2, 0)
    wanted = ("up", name, "up 1.2", "up_*", "*.2.*attn?", "up 1.*")
    assert all(name_fits(name, one) for one in wanted)
    others = ("down", "up_blocks.1", "up 1.20", "up 2.*", "")
    assert not any(name_fits(name, wanted) for wanted in others)


@pytest.mark.parametrize("family", ["sdxl", "sigma", "flux"])
def test_a_short_name_belongs_to_one_layer(family):
    pipe = (models.FAMILIES | models.JOINT)[family]()
    layers = cross_attention_layers(pipe)
    parts = dict.fromkeys(layers, "") | family_of(pipe).groups(list(layers))
    shorts = short_names(parts)
    assert len({*shorts.values()}) == len(layers) and max(map(len, shorts.values())) <= 16
    for name, short in shorts.items():
        for wanted in (short, name):
            assert [one for one, part in parts.items() if name_fits(one, wanted, part)] == [name]


def test_layers_of_two_kinds_of_blocks_are_named_by_their_group():
    parts = {"transformer_blocks.1.attn": "double", "single_transformer_blocks.1.attn": "single"}
    assert [*short_names(parts).values()] == ["double 1", "single 1"]
    for name, part in parts.items():
        assert name_fits(name, part, part) and not name_fits(name, "early", part)
