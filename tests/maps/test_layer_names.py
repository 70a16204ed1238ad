"""What a user says and reads of a layer, from its dotted path in a model."""

import pytest
from families import models

from heedmap.maps.layer_names import name_fits, short_name, short_patterns, stage_of
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
    assert all(name_fits(name, wanted) for wanted in ("up", name, "up_*", "*.2.*attn?"))
    assert not any(name_fits(name, wanted) for wanted in ("down", "UP", "up_blocks.1", ""))
    assert name_fits("up", "*") and not name_fits("up", "up")  # a stage is none of its layers


@pytest.mark.parametrize("family", ["sd1", "sdxl", "upscaler"])
def test_short_patterns_fit_one_layer_each(family):
    names = list(cross_attention_layers(models.FAMILIES[family]()))
    shorts = short_patterns(names)
    assert shorts[0].startswith("down_blocks.") and max(map(len, shorts)) <= 27
    for name, short in zip(names, shorts, strict=True):
        assert [other for other in names if name_fits(other, short)] == [name]


def test_short_patterns_that_would_fit_two_stay_long():
    names = ["up.attentions.0.attn2", "up.motion.0.attn2"]
    assert short_patterns(names) == ["up.attentions.0.attn2", "up.motion.0.attn2"]
