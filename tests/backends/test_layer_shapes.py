"""The shapes in every layer: those that flow through the layers of a real pass."""

import pytest
from families import models
from making import random_pipeline
from oracle import denoiser

from heedmap.backends.layer_shapes import layer_shapes, pick
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import ArgumentError, SelectionError


def measure(pipe, size, **arguments):
    """By layer, its output's shape, its text's, and those of its linear maps, in a pass."""
    pipe.set_progress_bar_config(disable=True)
    found = {}
    handles = []

    def hook(name, layer):
        def after(_, args, kwargs, output):
            text = kwargs["encoder_hidden_states"]
            found[name] = args[0].shape[1:], text.shape[1:], output.shape[1:]

        return layer.register_forward_hook(after, with_kwargs=True)

    handles = [hook(name, layer) for name, layer in cross_attention_layers(pipe).items()]
    width, height = size
    sized = {} if "image" in arguments else {"width": width, "height": height}
    call = {**sized, "output_type": "latent", **arguments}
    pipe("a cat", num_inference_steps=2, **call)
    for handle in handles:
        handle.remove()
    return found


STARTS = {
    "pix2pix": lambda w, h: {"image": models.picture(w, h)},
    "inpainting": lambda w, h: {
        "image": models.picture(w, h),
        "mask_image": models.mask(w, h),
        "width": w,
        "height": h,
    },
    "refiner": lambda w, h: {"image": models.picture(w, h), "strength": 1.0},
    "upscaler": lambda w, h: {"image": models.picture(w // 4, h // 4)},
    **dict.fromkeys(
        ("sigma", "alpha", "sana", "sana15", "sprint", "hunyuan"),
        lambda w, h: {"use_resolution_binning": False},
    ),
}


@pytest.mark.parametrize("family", list(models.FAMILIES))
def test_shapes_equal_those_of_a_real_pass(family):
    pipe = models.FAMILIES[family]()
    size = (96, 128)
    start = STARTS.get(family, lambda w, h: {})(*size)
    seen = measure(pipe, size, **start)
    found = layer_shapes(pipe, size=size)
    layers = cross_attention_layers(pipe)
    assert [shapes.name for shapes in found] == list(layers)
    for shapes in found:
        layer = layers[shapes.name]
        (hidden, text, output) = seen[shapes.name]
        (h, w) = shapes.grid
        d = layer.to_q.out_features // layer.heads
        assert (shapes.hidden, shapes.text, shapes.output) == (hidden, text, output)
        assert h * w == hidden[0] and h >= w
        assert shapes.query == (h * w, layer.to_q.out_features)
        assert shapes.key == (text[0], layer.to_v.out_features)
        assert shapes.scores == (h * w, text[0])
        assert (shapes.heads, shapes.head_dim) == (layer.heads, d)
        assert shapes.scale == pytest.approx(d**-0.5)
        assert (shapes.masked is None) == (
            family not in ("sigma", "alpha", "sana", "sana15", "sprint")
        )
        assert shapes.text[1] == denoiser(pipe).config.cross_attention_dim


def test_fused_projections_have_the_same_shapes(pipe):
    plain = layer_shapes(pipe)
    pipe.fuse_qkv_projections()
    assert layer_shapes(pipe) == plain


def test_a_layers_own_scale_is_in_the_chain(pipe):
    for layer in cross_attention_layers(pipe).values():
        layer.scale = 0.5
    first = layer_shapes(pipe)[0]
    assert first.scale == 0.5
    assert ("S_h = Q_h·K_hᵀ·0.5", "(256 × 8) · (8 × 77)", (256, 77)) in first.chain()


@pytest.mark.parametrize("given", [{"size": (100, 128)}, {"sise": (256, 256)}])
def test_arguments_that_do_not_fit_are_refused(pipe, given):
    with pytest.raises(ArgumentError, match=r"size|sise"):
        layer_shapes(pipe, **given)


def test_an_unknown_layer_is_an_error_that_lists_the_layers():
    layers = layer_shapes(random_pipeline())
    assert len(pick(layers, "up")) == 4
    assert [layer.name for layer in pick(layers, layers[2].name)] == [layers[2].name]
    with pytest.raises(SelectionError):
        pick(layers, "UP")
