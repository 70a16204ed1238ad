"""What a user says and reads of a layer, from its dotted path in a model."""

import pytest
from families import models

from heedmap.maps.layer_names import layers_there, name_fits, short_name, stage_of
from heedmap.maps.recordings import Layer
from heedmap.wiring.registry import cross_attention_layers

NAME = "{}.attentions.{}.transformer_blocks.{}.attn2".format
SHORT = {
    NAME("up_blocks.1", 2, 0): "up 1.2",
    NAME("mid_block", 0, 0): "mid 0",
    NAME("down_blocks.2", 1, 7): "down 2.1.7",
    "mean": "mean",
}


def test_short_names():
    assert {name: short_name(name) for name in SHORT} == SHORT
    assert {name: Layer(name, 1, (1, 1)).short for name in SHORT} == SHORT


def test_stages():
    assert list(map(stage_of, SHORT)) == ["up", "mid", "down", ""]
    assert stage_of("transformer_blocks.0.attn2") == stage_of("upper") == ""


def test_a_name_a_stage_or_a_pattern():
    name = NAME("up_blocks.1", 2, 0)
    assert all(name_fits(name, wanted) for wanted in ("up", name, "up 1.2", "up_*", "*.2.*attn?"))
    assert not any(
        name_fits(name, wanted) for wanted in ("down", "UP", "up_blocks.1", "up 1", "up 1.20", "")
    )
    assert name_fits("up", "*") and not name_fits("up", "up")  # a stage is none of its layers


@pytest.mark.parametrize("family", ["sd1", "sdxl", "upscaler", "sigma"])
def test_a_short_name_is_one_layers(family):
    names = list(cross_attention_layers(models.FAMILIES[family]()))
    for name in names:
        assert [other for other in names if name_fits(other, short_name(name))] == [name]


def test_layers_that_could_be_named_are_named_shortly():
    names = [NAME(f"up_blocks.{n}", m, 0) for n in range(3) for m in range(3)]
    there = layers_there(names, "up_blocks.2.attentions.3.transformer_blocks.0.attn2")
    assert there.startswith("up or one of 9 layers such as up 2.2, up 2.1, up 2.0")
    assert "attn2" not in there
    assert layers_there(names[:2], "x") == "up or a layer, up 0.0, up 0.1"
