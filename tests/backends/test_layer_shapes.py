"""The shapes in every layer; that they are those of a real pass: tests/families/test_runs."""

import pytest
from making import cross_attention_layers, random_pipeline

from heedmap.backends.layer_shapes import layer_shapes, pick
from heedmap.errors import ArgumentError, SelectionError


def test_fused_projections_have_the_same_shapes(pipe):
    plain = layer_shapes(pipe)
    pipe.fuse_qkv_projections()
    assert layer_shapes(pipe) == plain


def test_a_layer_has_its_own_scale(pipe):
    for layer in cross_attention_layers(pipe).values():
        layer.scale = 0.5
    assert layer_shapes(pipe)[0].scale == 0.5


@pytest.mark.parametrize("given", [{"size": (100, 128)}, {"sise": (256, 256)}])
def test_arguments_that_do_not_fit_are_refused(pipe, given):
    with pytest.raises(ArgumentError, match=r"size|sise"):
        layer_shapes(pipe, **given)


def test_an_unknown_layer_is_an_error_that_lists_the_layers():
    parts = {layer.name: layer.part for layer in layer_shapes(random_pipeline())}
    assert len(pick(parts, "up")) == 4
    name = [*parts][2]
    assert pick(parts, name) == [name]
    with pytest.raises(SelectionError):
        pick(parts, "UP")
