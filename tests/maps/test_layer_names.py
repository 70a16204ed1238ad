"""What a user says and reads of a layer, from its dotted path in a model."""

import pytest
from families import models

from heedmap.backends.registry import cross_attention_layers
from heedmap.maps.recordings import (
    Layer,
    layers_there,
    name_fits,
    nearest_layers,
    short_name,
    short_names,
    stage_of,
)

NAME = "{}.attentions.{}.transformer_blocks.{}.attn2".format
SHORT = {
    NAME("up_blocks.1", 2, 0): "up 1.2",
    NAME("mid_block", 0, 0): "mid 0",
    NAME("down_blocks.2", 1, 7): "down 2.1.7",
    "mean": "mean",
}


def test_layers_have_short_names():
    assert {name: short_name(name) for name in SHORT} == SHORT
    assert {name: Layer(name, 1, (1, 1)).short for name in SHORT} == SHORT


def test_layers_have_their_stage():
    assert list(map(stage_of, SHORT)) == ["up", "mid", "down", ""]
    assert stage_of("transformer_blocks.0.attn2") == stage_of("upper") == ""


def test_layers_are_chosen_by_name_stage_or_pattern():
    name = NAME("up_blocks.1", 2, 0)
    assert all(name_fits(name, wanted) for wanted in ("up", name, "up 1.2", "up_*", "*.2.*attn?"))
    assert not any(
        name_fits(name, wanted) for wanted in ("down", "UP", "up_blocks.1", "up 1", "up 1.20", "")
    )
    assert name_fits("up", "*") and not name_fits("up", "up")  # a stage is none of its layers


@pytest.mark.parametrize("family", ["sd1", "sdxl", "upscaler", "sigma"])
def test_a_short_name_belongs_to_one_layer(family):
    names = list(cross_attention_layers(models.FAMILIES[family]()))
    shorts = short_names(names)
    assert len(set(shorts)) == len(names) and max(map(len, shorts)) <= 16
    for name, short in zip(names, shorts, strict=True):
        assert [other for other in names if name_fits(other, short)] == [name]
        assert [other for other in names if name_fits(other, name)] == [name]


def test_the_nearest_layers_are_listed_by_short_name():
    names = [NAME("up_blocks.1", n, m) for n in range(3) for m in range(4)]
    assert nearest_layers("up 1.2.2", names)[0] == "up 1.2.2"
    assert nearest_layers(NAME("up_blocks.1", 1, 3), names)[0] == "up 1.1.3"
    assert len(nearest_layers("x" * 10_000, names)) == 5
    said = layers_there(names, "up 1.2.3")
    assert "up 1.2.3" in said and "up 1.0.0" not in said and "attn2" not in said
