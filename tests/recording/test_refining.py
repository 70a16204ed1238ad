"""Refined maps of whole runs against the definition; which layers carry maps on."""

import numpy as np
import pytest
import torch
from making import recordings_of, run
from oracle import compare_layers, propagated_maps

from heedmap.mathematics.events import RowAttention
from heedmap.recording import refining
from heedmap.recording.refining import RefinedMaps, coarsened, propagation_layers
from heedmap.recording.tracing import trace


def attentions(pipe, ending):
    modules = pipe.unet.named_modules()
    return [layer for name, layer in modules if name.endswith(ending)]


def check_refined(recordings, held, steps):
    passes = [(1, step >= steps / 2 or step == steps - 1) for step in range(steps)]
    for image, recording in enumerate(recordings):
        _, refined = propagated_maps(held, image, passes)
        expected = refined[..., recording.positions]
        np.testing.assert_allclose(recording.refined, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("guidance", "steps", "keep"),
    [
        (5.0, 1, ("layer",)),
        (1.0, 2, ()),
        (5.0, 5, ("layer", "step", "head")),
    ],
)
def test_each_images_refined_maps_equal_the_definition(pipe, guidance, steps, keep):
    prompts = ["a red house", "at the cat"]
    with compare_layers(pipe, steps, images=2) as held, trace(pipe, keep) as recorder:
        run(pipe, prompts, (3, 4), guidance_scale=guidance, steps=steps)
    check_refined(recorder.recordings, held, steps)


def test_the_negative_branch_has_its_own_refined_maps(pipe):
    both = trace(pipe, branches=("conditional", "negative"))
    with compare_layers(pipe, 3, images=2) as held, both as recorder:
        run(pipe, "a red house", guidance_scale=5.0, negative_prompt="dogs at sea")
    recordings = [*recordings_of(recorder.negative_maps), *recorder.recordings]
    check_refined(recordings, held, 3)


def test_a_layer_without_attention_is_left_out_of_propagation(pipe):
    class Unseen:
        """Attention computed where nobody can see it."""

        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            return attn.to_out[0](attn.to_v(hidden_states))

    for layer in attentions(pipe, "attn1"):
        layer.set_processor(Unseen())
    with trace(pipe) as recorder:
        run(pipe, "a red house")
    assert recorder.recordings[0].refined is None
    assert recorder.maps[0]["house"].values.max() > 0


def test_self_attention_is_restored_between_calls(pipe):
    """So that an IP-Adapter may be loaded there, which makes each processor anew by its class."""

    def processors():
        return [layer.processor for layer in attentions(pipe, "attn1")]

    def look(pipe, number, timestep, state):
        seen.append(processors() != before)
        return {}

    before = processors()
    seen = []
    with trace(pipe) as recorder:
        for _ in range(2):
            run(pipe, "a red house", steps=2, callback_on_step_end=look)
            assert processors() == before
        with pytest.raises(ZeroDivisionError):
            run(pipe, "a red house", callback_on_step_end=lambda *_: 1 // 0)
        run(pipe, "a red house", steps=2)
    assert processors() == before
    assert seen[0] and seen[2]
    refined = [recording.refined for recording in recorder.recordings]
    assert all(np.array_equal(refined[0], other) for other in refined[1:])


# --- which layers -----------------------------------------------------------------------------


def name_layers(*grids):
    return {f"layer {n}": grid for n, grid in enumerate(grids)}


@pytest.mark.parametrize(
    ("grids", "expected"),
    [
        # The coarsest from 16 cells on, of the shorter side.
        ([(64, 96), (32, 48), (16, 24), (8, 12), (16, 24)], [2, 4]),
        # Six of them, evenly.
        ([(64, 64)] * 4 + [(32, 32)] * 8, [4, 6, 7, 8, 10, 11]),
        ([(96, 96), (48, 48)], [1]),
        ([(98, 98), (49, 49)], []),
        ([(4, 4), (2, 2)], [0]),
        # Stages of a narrow picture may have as few rows as one another, and other columns.
        ([(1, 3), (1, 2), (1, 3)], [0, 2]),
        ([], []),
    ],
)
def test_maps_are_propagated_on_a_middle_grid(grids, expected):
    every = name_layers(*grids)
    found = propagation_layers(every, every)
    assert list(found) == [f"layer {n}" for n in expected]


@pytest.mark.parametrize(
    ("own", "cross", "count"),
    [
        ((2, 2), [(16, 16), (8, 8)], 0),  # self-attention in the middle alone
        ((8, 12), [(9, 9), (8, 12)], 0),
        ((8, 12), [(8, 12), (4, 6)], 1),
        ((16, 16), [(64, 64)], 1),  # fine enough, however fine the text's are
    ],
)
def test_maps_are_not_propagated_on_coarser_grids(own, cross, count):
    assert len(propagation_layers(name_layers(own), name_layers(*cross))) == count


@pytest.mark.parametrize(
    ("grid", "expected"), [((48, 70), (48, 70)), ((96, 49), (48, 25)), ((128, 130), (43, 44))]
)
def test_fine_grids_are_divided_by_a_whole_number(grid, expected):
    assert coarsened(grid) == expected


def test_on_a_coarser_grid_queries_and_keys_of_neighbours_are_averaged(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(refining, "PROPAGATION_CELLS", (1, 2))
    query, key = torch.randn(2, 3, 24, 5, dtype=torch.float64).float()  # (H, Q, d)
    maps, plain = RefinedMaps((4, 6)), torch.rand(1, 6, 2)
    maps.add_maps(0, (2, 3), plain, 1)
    maps.add_attention(0, RowAttention(query, key, 0.4), 1)
    coarse = [
        x.double().view(3, 2, 2, 3, 2, 5).mean(dim=(2, 4)).view(3, 6, 5) for x in (query, key)
    ]
    p = (coarse[0] @ coarse[1].mT * 0.4).softmax(-1) ** 2
    expected = (p / p.sum(-1, keepdim=True) @ plain[0].double()).mean(0)
    np.testing.assert_allclose(maps.value(0), expected.view(2, 3, 2), rtol=1e-5)
