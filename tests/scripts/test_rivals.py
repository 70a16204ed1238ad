"""The recorder of the rivals: the model's own attention, and the maps that are made of it."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import Attention, AttnProcessor

import heedmap
from evaluation import listening, rivals
from evaluation.listening import Block
from evaluation.rivals import Gathered


def test_independent_hooks_record_what_heedmap_records(embedded):
    """The prompt's half of a guided run; the hooks change nothing, and are removed."""
    call = {"seed": 1, "steps": 2, "guidance": 4.0}
    plain = heedmap.generate(embedded, "a red house", **call)
    with pytest.raises(RuntimeError), listening.listening(embedded) as heard:
        run = heedmap.generate(embedded, "a red house", **call)
        raise RuntimeError("stop")
    assert not any(module._forward_pre_hooks for module in embedded.unet.modules())
    assert np.array_equal(np.asarray(run.image), np.asarray(plain.image))
    recording = run.maps.recording
    assert len(heard.steps) == 2
    names = [layer.name for layer in recording.layers]
    assert [f"{name}.attn2" for name in heard.steps[0]] == names
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        blocks = [step[layer.name.removesuffix(".attn2")] for step in heard.steps]
        mean = torch.stack([block.words.mean(dim=0) for block in blocks]).mean(dim=0)
        np.testing.assert_allclose(mean[:, list(recording.positions)], array[0, 0], atol=1e-5)
        assert {block.grid for block in blocks} == {layer.grid}


@torch.no_grad()
def test_contributions_of_heads_sum_to_the_layers_output():
    """Beside diffusers' own processor that makes its probabilities."""
    torch.manual_seed(0)
    for width in (None, 5):
        layer = Attention(12, width, heads=3, dim_head=4, processor=AttnProcessor()).eval()
        states = torch.randn(6, 12)
        text = states if width is None else torch.randn(7, 5)
        p, brought, queries = listening.attention(layer, states, text)
        assert p.shape == (3, 6, len(text)) and brought.shape == (3, 6, 12)
        output = layer(states[None], None if width is None else text[None])[0]
        torch.testing.assert_close(brought.sum(dim=0) + layer.to_out[0].bias, output)
        torch.testing.assert_close(queries, layer.to_q(states))


def block(fill: float, grid: int = 16, seed: int = 0) -> Block:
    """One head, three tokens; all of it random but the words, whose second is `fill`."""
    random = torch.Generator().manual_seed(seed)
    positions = grid * grid
    words = torch.full((1, positions, 3), (1 - fill) / 2)
    words[..., 1] = fill
    own = torch.rand(positions, positions, generator=random).softmax(dim=-1)
    brought = torch.rand(1, positions, 4, generator=random)
    queries, outputs = torch.rand(2, positions, 4, generator=random)
    return Block(words, brought, queries, own, outputs)


def test_plain_maps_are_means_of_all_layers_on_one_grid():
    steps = [{"down_blocks.0": block(0.1), "mid_block": block(0.4, grid=8)}] * 2
    words = Gathered(steps).words
    torch.testing.assert_close(words[:, 1], torch.full((256,), 0.25))
    torch.testing.assert_close(words.sum(dim=1), torch.ones(256))


def test_with_even_heads_and_layers_goca_is_the_plain_map():
    """One layer and one head: what is left is the layer's own map, each place's sum 1."""
    gathered = Gathered([{"up_blocks.2": block(0.3)}])
    torch.testing.assert_close(gathered.aggregated, gathered.words)
    torch.testing.assert_close(rivals.goca(gathered, [1]), torch.full((256,), 0.3))
    torch.testing.assert_close(rivals.plain(gathered, [0, 1]), torch.full((256,), 0.65))
