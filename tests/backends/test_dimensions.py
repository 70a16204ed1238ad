"""The shapes in every layer: those of the model's own weights, measured without a trace left."""

import re

import numpy as np
import pytest
import torch
from diffusers import PixArtAlphaPipeline, PixArtSigmaPipeline
from diffusers.models.attention_processor import AttnProcessor
from families import models
from families.checking import assert_restored, denoiser, grid, paint, reference, state_of
from making import random_pipeline, random_pixart

from heedmap.backends.dimensions import LayerShapes, layer_shapes, pick
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import ArgumentError, HeedmapError, ModelError, SelectionError, TraceError
from heedmap.mathematics import probabilities


def check(
    pipe,
    found: tuple[LayerShapes, ...],
    latent: tuple[int, int],
    tokens: int = 77,
    masked: tuple[int, ...] | None = None,
) -> None:
    """Every shape against the weights of the layer and the halvings of the latent."""
    layers = cross_attention_layers(pipe)
    assert [shapes.name for shapes in found] == list(layers)
    for shapes in found:
        layer = layers[shapes.name]
        h, w = grid(pipe, shapes.name, latent)
        places, heads, wide = h * w, layer.heads, layer.to_q.weight.shape[0]
        d = wide // heads
        assert heads * d == wide
        assert shapes == LayerShapes(
            name=shapes.name,
            grid=(h, w),
            heads=heads,
            scale=pytest.approx(d**-0.5),
            hidden=(places, layer.to_q.weight.shape[1]),
            text=(tokens, layer.to_k.weight.shape[1]),
            query=(places, wide),
            key=(tokens, layer.to_k.weight.shape[0]),
            value=(tokens, layer.to_v.weight.shape[0]),
            head_query=(places, d),
            head_key=(tokens, d),
            head_value=(tokens, d),
            scores=(places, tokens),
            head_output=(places, d),
            joined=(places, layer.to_out[0].weight.shape[1]),
            output=(places, layer.to_out[0].weight.shape[0]),
            masked=masked,
        )
        assert shapes.text[1] == denoiser(pipe).config.cross_attention_dim


# --- what is measured ---


def test_grids_and_shapes_by_hand(pipe):
    """104×176 pixels: a latent of 22×13, and its halvings."""
    found = {layer.name: layer for layer in layer_shapes(pipe, size=(104, 176))}
    stages = {name.partition(".attentions")[0]: layer.grid for name, layer in found.items()}
    assert stages == {
        "down_blocks.0": (22, 13),
        "down_blocks.1": (11, 7),
        "mid_block": (6, 4),
        "up_blocks.1": (11, 7),
        "up_blocks.2": (22, 13),
    }
    middle = found["mid_block.attentions.0.transformer_blocks.0.attn2"]
    assert middle == LayerShapes(
        "mid_block.attentions.0.transformer_blocks.0.attn2", (6, 4), 2, 0.25,
        hidden=(24, 32), text=(77, 32), query=(24, 32), key=(77, 32), value=(77, 32),
        head_query=(24, 16), head_key=(77, 16), head_value=(77, 16), scores=(24, 77),
        head_output=(24, 16), joined=(24, 32), output=(24, 32), masked=None,
    )  # fmt: skip


@pytest.mark.parametrize("size", [None, (96, 128)])
@pytest.mark.parametrize("family", list(models.FAMILIES))
def test_every_family(family, size):
    """Those that start from a picture too."""
    pipe = models.FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    factor = pipe.vae_scale_factor
    own = denoiser(pipe).config.sample_size
    latent = (own, own) if size is None else (size[1] // factor, size[0] // factor)
    tokens = {"sigma": 300, "alpha": 120}.get(family, 77)
    read = len(getattr(pipe, "tokenizer_2", pipe.tokenizer)("a cat").input_ids)
    masked = None if tokens == 77 else (tokens - 1, tokens - read)  # of nothing the end is read
    check(pipe, layer_shapes(pipe, size=size), latent, tokens, masked)


def test_heads_per_level_and_the_width_of_the_text():
    """SD 2 has more heads where it is deeper, SDXL two texts side by side."""
    pipe = models.sd2()
    by_stage = {layer.name.split(".attentions")[0]: layer.heads for layer in layer_shapes(pipe)}
    heads = [by_stage[stage] for stage in ("down_blocks.0", "down_blocks.1", "mid_block")]
    assert heads == [2, 4, 8]
    pipe = models.sdxl()
    assert {layer.text for layer in layer_shapes(pipe)} == {(77, 24 + 40)}


@pytest.mark.parametrize("change", ["slices", "fused", "fused once", "classic", "bfloat16"])
def test_the_same_whatever_computes_it(pipe, change):
    plain = layer_shapes(pipe)
    if change == "slices":
        pipe.enable_attention_slicing("max")
    elif change.startswith("fused"):
        pipe.fuse_qkv_projections()
        if change == "fused once":
            pipe.unfuse_qkv_projections()
    elif change == "classic":
        pipe.unet.set_attn_processor(AttnProcessor())
    else:
        pipe.to(torch.bfloat16)
    assert layer_shapes(pipe) == plain


def test_an_argument_that_nobody_takes(pipe):
    with pytest.raises(ArgumentError, match=r"takes no argument sise: did you mean size\?$"):
        layer_shapes(pipe, sise=(256, 256))


# --- the chain ---


def test_the_chain_fits_link_by_link():
    pipe = models.sdxl()
    for layer in layer_shapes(pipe, size=(96, 128)):
        chain = layer.chain()
        assert [what.split(" ")[0] for what, _, _ in chain] == (
            ["X", "E", "Q", "K", "V", "Q_h", "K_h", "V_h", "S_h", "P_h", "O_h", "O", "Y"]
        )
        products = 0
        for what, how, shape in chain:
            found = re.fullmatch(r"\((\d+) × (\d+)\) · \((\d+) × (\d+)\)", how)
            if found:
                a, b, c, d = map(int, found.groups())
                assert b == c and (a, d) == shape, what
                products += 1
        assert products == 6


def test_the_chain_is_what_the_model_computes(pipe):
    """Followed by hand with a layer's weights, it ends in the layer's output."""
    found = layer_shapes(pipe)[0]
    layer = cross_attention_layers(pipe)[found.name]
    seen = []
    hook = layer.register_forward_hook(
        lambda _, args, kwargs, output: seen.append((args[0], kwargs, output)), with_kwargs=True
    )
    paint(pipe, "a house", steps=1, guidance_scale=1.0)
    hook.remove()
    (hidden, given, output) = seen[0]
    x, e = hidden[0], given["encoder_hidden_states"][0]
    q, k, v = x @ layer.to_q.weight.T, e @ layer.to_k.weight.T, e @ layer.to_v.weight.T
    heads = []
    for q_h, k_h, v_h in zip(*(m.chunk(found.heads, dim=1) for m in (q, k, v)), strict=True):
        p_h = probabilities.probabilities(q_h, k_h, scale=found.scale)
        o_h = p_h @ v_h
        assert (q_h.shape, k_h.shape) == (found.head_query, found.head_key)
        assert (p_h.shape, o_h.shape) == (found.scores, found.head_output)
        heads.append(o_h)
    o = torch.cat(heads, dim=1)
    assert o.shape == found.joined
    y = o @ layer.to_out[0].weight.T + layer.to_out[0].bias
    torch.testing.assert_close(y, output[0], atol=1e-5, rtol=1e-5)


def test_a_scale_of_its_own_is_told_as_it_is(pipe):
    pipe.unet.set_attn_processor(AttnProcessor())
    for layer in cross_attention_layers(pipe).values():
        layer.scale = 0.5
    first = layer_shapes(pipe)[0]
    assert first.scale == 0.5
    assert ("S_h = Q_h·K_hᵀ·0.5", "(256 × 8) · (8 × 77)", (256, 77)) in first.chain()


@pytest.mark.parametrize(
    ("size", "given", "latent", "masked"),
    [
        ((96, 176), {"max_sequence_length": 20}, (22, 12), (19, 12)),
        ((16, 16), {"guidance_scale": 1.0, "max_sequence_length": 8}, (2, 2), (0,)),
        ((16, 16), {"guidance_scale": 1.0, "max_sequence_length": 4}, (2, 2), (0,)),
    ],
)
@pytest.mark.parametrize("kind", [PixArtSigmaPipeline, PixArtAlphaPipeline])
def test_shapes_of_patches_and_of_hidden_padding(kind, size, given, latent, masked):
    pipe = random_pixart(kind)
    before = state_of(pipe)
    tokens = given["max_sequence_length"]
    found = layer_shapes(pipe, "a red house at", size=size, **given)
    check(pipe, found, latent, tokens, masked)
    assert_restored(pipe, before)


# --- the mask ---


def hide(pipe, mask: torch.Tensor):
    """Give the UNet a mask (B, K) of its text, 1 where a token may be seen."""

    def before(unet, args, kwargs):
        return args, {**kwargs, "encoder_attention_mask": mask}

    return pipe.unet.register_forward_pre_hook(before, with_kwargs=True)


@pytest.mark.parametrize("processor", ["fused", "classic", "slices"])
def test_masked_tokens_get_exactly_nothing(pipe, processor):
    """Counted row by row; and the model's own probabilities there are 0 to the bit."""
    if processor == "classic":
        pipe.unet.set_attn_processor(AttnProcessor())
    elif processor == "slices":
        pipe.enable_attention_slicing("max")
    mask = torch.ones(2, 77)
    mask[0, 7:] = 0
    mask[1, 5:] = 0
    hide(pipe, mask)
    found = layer_shapes(pipe)
    assert {layer.masked for layer in found} == {(70, 72)}
    with reference(pipe) as scores:
        paint(pipe, "a house", steps=1)
    assert set(scores) == {layer.name for layer in found}
    for (array,) in scores.values():  # (B, H, Q, K)
        for row, shown in enumerate((7, 5)):
            assert (array[row, ..., shown:] == 0).all()
            assert array[row, ..., :shown].max() > 0
            np.testing.assert_allclose(array[row].sum(-1), 1, atol=1e-5)
    lines = {what: how for what, how, _ in found[0].chain()}
    assert lines["P_h = softmax(S_h)"] == "exactly 0 for 70 or 72 hidden tokens"
    assert "S_h = Q_h·K_hᵀ/√8 + M" in lines


# --- nothing is left behind ---


def test_the_pipeline_and_its_pictures_are_as_before(pipe):
    before_picture = paint(pipe, "a red house")
    before, noise = state_of(pipe), torch.get_rng_state()
    layer_shapes(pipe, size=(96, 128))
    assert_restored(pipe, before)
    assert torch.equal(torch.get_rng_state(), noise)
    assert np.array_equal(paint(pipe, "a red house"), before_picture)


def test_restored_after_an_error_within_the_step(pipe):
    paint(pipe, "a house", steps=1)

    def stop(*_):
        raise KeyboardInterrupt

    handle = pipe.unet.mid_block.register_forward_hook(stop)
    before = state_of(pipe)
    with pytest.raises(KeyboardInterrupt):
        layer_shapes(pipe)
    assert_restored(pipe, before)
    handle.remove()
    check(pipe, layer_shapes(pipe), (16, 16))


# --- what cannot be ---


@pytest.mark.parametrize("size", [(100, 128), (0, 8), (128,)])
def test_sizes_that_do_not_fit(pipe, size):
    with pytest.raises(ArgumentError, match="multiples of 8 pixels"):
        layer_shapes(pipe, size=size)


def test_models_that_cannot_be_asked(pipe, monkeypatch):
    with pytest.raises(ModelError, match="has no text cross-attention that heedmap reads"):
        layer_shapes(object())
    with monkeypatch.context() as patch:
        patch.setattr(type(pipe), "__call__", lambda self, image: None)
        with pytest.raises(ModelError, match="takes no prompt"):
            layer_shapes(pipe)
        patch.setattr(type(pipe), "__call__", lambda self, prompt, **_: None)
        with pytest.raises(TraceError, match="7 of 7 cross-attention layers did not run"):
            layer_shapes(pipe)


# --- names ---


def test_pick_lists_what_there_is():
    layers = layer_shapes(random_pipeline())
    assert len(pick(layers, "up")) == 4
    assert [layer.name for layer in pick(layers, layers[2].name)] == [layers[2].name]
    with pytest.raises(SelectionError, match=r"layer='UP': expected down, mid, up or one of 7 "):
        pick(layers, "UP")
    assert issubclass(SelectionError, HeedmapError)
