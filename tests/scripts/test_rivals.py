"""What is heard of a run: the model's own attention, and the maps that are made of it."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import Attention, AttnProcessor

import heedmap
from evaluation import listening, rivals, truth
from evaluation.listening import Block
from evaluation.rivals import Gathered
from world import layouts, scenes


@pytest.fixture(scope="module")
def shown(embedded):
    """A picture of a red house that the model is shown in four steps, heard by both ways."""
    thing = layouts.Thing("house", "red", "", 0.5, 0.5, 0.25, 1.0, 3)
    picture = scenes.render(layouts.Layout(3, (thing,), "none", "")).image
    with listening.listening(embedded) as heard:
        maps = truth.seen(embedded, picture, "a red house", 0, 4)
    return maps, heard, picture


def test_independent_hooks_hear_what_heedmap_records(shown):
    maps, heard, _ = shown
    told = maps.recording
    assert len(heard.steps) == 4
    assert [f"{name}.attn2" for name in heard.steps[0]] == [layer.name for layer in told.layers]
    for layer, array in zip(told.layers, told.arrays, strict=True):
        blocks = [step[layer.name.removesuffix(".attn2")] for step in heard.steps]
        mean = torch.stack([block.words.mean(dim=0) for block in blocks]).mean(dim=0)
        np.testing.assert_allclose(mean[:, list(told.positions)], array[0, 0], atol=1e-5)
        assert {block.grid for block in blocks} == {layer.grid}


@torch.no_grad()
def test_contributions_of_heads_sum_to_the_layers_output():
    """Beside diffusers' own processor that makes its probabilities."""
    torch.manual_seed(0)
    for text in (None, 5):
        layer = Attention(12, text, heads=3, dim_head=4, processor=AttnProcessor()).eval()
        states = torch.randn(6, 12)
        read = states if text is None else torch.randn(7, 5)
        p, brought, queries = listening.attention(layer, states, read)
        assert p.shape == (3, 6, len(read)) and brought.shape == (3, 6, 12)
        output = layer(states[None], None if text is None else read[None])[0]
        torch.testing.assert_close(brought.sum(dim=0) + layer.to_out[0].bias, output)
        torch.testing.assert_close(queries, layer.to_q(states))


def test_hooks_take_the_prompts_half_of_a_guided_run(embedded):
    with listening.listening(embedded) as heard:
        run = heedmap.generate(embedded, "a red house", seed=1, steps=2, guidance=4.0)
    gathered = Gathered.of(heard)
    layers = [a[0, 0][:, 3].reshape(layer.grid) for layer, a in
              zip(run.maps.recording.layers, run.maps.recording.arrays, strict=True)
              if layer.grid == rivals.GRID]  # fmt: skip
    own = [b.words.mean(dim=0)[:, 3] for step in gathered.steps for b in step.values()
           if b.grid == rivals.GRID]  # fmt: skip
    assert len(own) == 2 * len(layers)
    mine = torch.stack(own).mean(dim=0).reshape(rivals.GRID)
    np.testing.assert_allclose(mine, np.mean(layers, axis=0), atol=1e-5)


def test_hooks_change_nothing_and_are_removed(embedded):
    plain = heedmap.generate(embedded, "a red house", seed=1, steps=2)
    with listening.listening(embedded) as heard:
        run = heedmap.generate(embedded, "a red house", seed=1, steps=2)
    assert np.array_equal(np.asarray(run.image), np.asarray(plain.image))
    heedmap.generate(embedded, "a red house", seed=1, steps=1)
    assert len(heard.steps) == 2
    with pytest.raises(RuntimeError), listening.listening(embedded):
        raise RuntimeError("stop")
    assert not any(m._forward_pre_hooks for m in embedded.unet.modules())


# --- gathered ---------------------------------------------------------------------------------


def block(fill: float, grid: int = 16, seed: int = 0) -> Block:
    """One head, three tokens; all of it random but the words, whose second is `fill`."""
    made, places = torch.Generator().manual_seed(seed), grid * grid
    words = torch.full((1, places, 3), (1 - fill) / 2)
    words[..., 1] = fill
    own = torch.rand(places, places, generator=made).softmax(dim=-1)
    more = (torch.rand(1, places, 4, generator=made), torch.rand(places, 4, generator=made))
    return Block(words, *more, own, torch.rand(places, 4, generator=made))


def test_later_is_the_second_half_and_last_is_the_last_steps_way_up():
    steps = [
        {"down_blocks.0": block(0.1, seed=n), "up_blocks.2": block(0.2, seed=10 + n)}
        for n in range(4)
    ]
    gathered = Gathered(steps)
    assert list(gathered.later) == steps[2:]
    torch.testing.assert_close(gathered.last, steps[3]["up_blocks.2"].own)
    every = [b.own for step in steps[2:] for b in step.values()]
    torch.testing.assert_close(gathered.own, torch.stack(every).mean(dim=0))
    assert gathered.outputs.shape == (256, 16)
    assert list(Gathered(steps[:1]).later) == steps[:1]


def test_plain_maps_are_means_of_all_layers_on_one_grid():
    steps = [{"down_blocks.0": block(0.1), "mid_block": block(0.4, grid=8)}] * 2
    words = Gathered(steps).words
    assert words.shape == (256, 3)
    torch.testing.assert_close(words[:, 1], torch.full((256,), 0.25))
    torch.testing.assert_close(words.sum(dim=1), torch.ones(256))


def test_with_even_heads_and_layers_goca_is_the_plain_map():
    """One layer and one head: what is left is the layer's own map, each place's sum 1."""
    gathered = Gathered([{"up_blocks.2": block(0.3)}])
    torch.testing.assert_close(gathered.aggregated, gathered.words)
    torch.testing.assert_close(rivals.goca(gathered, [1]), torch.full((256,), 0.3))
    torch.testing.assert_close(rivals.plain(gathered, [0, 1]), torch.full((256,), 0.65))
