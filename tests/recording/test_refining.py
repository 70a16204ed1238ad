"""Refined maps of whole runs, beside an oracle of the model's projections; which layers carry."""

import numpy as np
import pytest
import torch
from diffusers import EulerDiscreteScheduler, HeunDiscreteScheduler
from making import run
from torch.nn.functional import interpolate

from heedmap.backends.registry import self_attention_layers
from heedmap.mathematics.events import AttentionEvent
from heedmap.recording.accumulation import (
    RefinedMaps,
    coarsened,
    evenly_chosen,
    is_propagated,
    middle_grid,
    propagation_layers,
)
from heedmap.recording.tracing import trace

SELF, CROSS = "attn1", "attn2"


class Oracle:
    """What every layer of a UNet was given, by hooks, and the refined maps as they are defined."""

    def __init__(self, unet, sides):
        self.sides = sides  # of the layers that carry, (h, w)
        self.passes, self.hooks = [], []
        self.hooks.append(unet.register_forward_pre_hook(lambda *_: self.passes.append([])))
        for name, layer in unet.named_modules():
            if name.endswith((SELF, CROSS)):
                self.hooks.append(
                    layer.register_forward_hook(self.heard(name, layer), with_kwargs=True)
                )

    def heard(self, name, layer):
        def hook(module, args, kwargs, output):
            states = kwargs.get("encoder_hidden_states")
            text = args[0] if states is None else states
            heads = layer.heads
            query, key = (
                part.double().unflatten(-1, (heads, -1)).transpose(1, 2)
                for part in (layer.to_q(args[0]), layer.to_k(text))
            )
            self.passes[-1].append((name, query, key))

        return hook

    def refined(self, row, positions, share_of_pass, grid_of):
        """(h, w, K) of one row of the batch: the running mean, carried in the later half."""
        drawn, heard, carried, shares = 0, 0.0, 0, 0.0
        for layers, (share, late) in zip(self.passes, share_of_pass, strict=True):
            for name, query, key in layers:
                scores = query[row] @ key[row].mT * query.shape[-1] ** -0.5
                if name.endswith(CROSS):
                    p = scores.softmax(-1).mean(0)[:, list(positions)]
                    plane = p.T.reshape(1, len(positions), *grid_of(name, p.shape[0]))
                    plane = interpolate(plane, size=self.sides, mode="bilinear", antialias=True)
                    drawn, heard = drawn + share * plane[0].flatten(1).T, heard + share
                elif late and heard and grid_of(name, scores.shape[-1]) == self.sides:
                    p = scores.softmax(-1) ** 2
                    made = (p / p.sum(-1, keepdim=True) @ (drawn / heard)).mean(0)
                    carried, shares = carried + share * made, shares + share
        return (carried / shares).reshape(*self.sides, -1).detach().numpy()


def square(name, places):
    return (round(places**0.5),) * 2


@pytest.mark.parametrize(("guidance", "steps"), [(5.0, 1), (1.0, 2), (5.0, 5)])
def test_each_images_refined_maps_equal_the_definition(pipe, guidance, steps):
    prompts = ["a red house", "at the cat"]
    oracle = Oracle(pipe.unet, (16, 16))
    with trace(pipe, {"layer"}) as recorder:
        run(pipe, prompts, (3, 4), guidance_scale=guidance, steps=steps)
    for image, recording in enumerate(recorder.recordings):
        row = image + (2 if guidance > 1 else 0)
        late = [(1.0, n >= steps / 2 or n == steps - 1) for n in range(steps)]
        exact = oracle.refined(row, recording.positions, late, square)
        np.testing.assert_allclose(recording.refined, exact, rtol=1e-4, atol=1e-6)


def test_a_step_of_two_passes_weighs_as_much_as_one_of_one(pipe):
    pipe.scheduler = HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    oracle = Oracle(pipe.unet, (16, 16))
    with trace(pipe) as recorder:
        run(pipe, "a red house", guidance_scale=1.0, steps=4)
    # The later half begins at step 2; the last step of Heun's scheduler has one pass.
    passes = [*[(0.5, False)] * 4, *[(0.5, True)] * 2, (1.0, True)]
    recording = recorder.recordings[0]
    exact = oracle.refined(0, recording.positions, passes, square)
    np.testing.assert_allclose(recording.refined, exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("keep", [(), ("layer", "step", "head")])
def test_the_kept_axes_change_no_refined_map(pipe, keep):
    made = []
    for kept in ({"layer"}, keep):
        with trace(pipe, kept) as recorder:
            run(pipe, "a red house", guidance_scale=5.0)
        made.append(recorder.recordings[0].refined)
    np.testing.assert_allclose(*made, rtol=1e-5, atol=1e-7)


def test_the_negative_branch_has_its_own_refined_maps(pipe):
    pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    oracle = Oracle(pipe.unet, (16, 16))
    with trace(pipe, branches=("conditional", "negative")) as recorder:
        run(pipe, "a red house", guidance_scale=5.0, negative_prompt="dogs at sea")
    (recording,) = recorder.negative_recordings
    count = len(oracle.passes)
    late = [(1.0, n >= count / 2) for n in range(count)]
    exact = oracle.refined(0, recording.positions, late, square)
    np.testing.assert_allclose(recording.refined, exact, rtol=1e-4, atol=1e-6)


def test_a_layer_without_attention_is_left_out_of_propagation(pipe):
    class Unseen:
        """Attention computed where nobody can see it."""

        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            return attn.to_out[0](attn.to_v(hidden_states))

    for name, layer in pipe.unet.named_modules():
        if name.endswith(SELF):
            layer.set_processor(Unseen())
    with trace(pipe) as recorder:
        run(pipe, "a red house")
    assert recorder.recordings[0].refined is None
    assert recorder.maps[0]["house"].values.max() > 0


# --- which layers -----------------------------------------------------------------------------


def named(*grids):
    return {f"layer {n}": grid for n, grid in enumerate(grids)}


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([64, 64, 32, 32, 16, 16, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64], [4, 5, 7, 8, 9]),
        ([16, 8, 8, 8, 16, 16], [0, 4, 5]),
        ([64] * 4 + [32] * 8, [4, 6, 7, 8, 10, 11]),
        ([96, 48, 24, 12, 24], [2, 4]),
        ([32, 8], [0]),
        ([80, 40], [1]),
        ([96, 48], [1]),
        ([98, 49], []),
        ([20, 10, 5], [0]),
        ([64, 64], []),
        ([4, 2], [0]),
        ([], []),
    ],
)
def test_maps_are_propagated_on_a_middle_grid(sides, expected):
    every = named(*((side, side) for side in sides))
    found = propagation_layers(every, every or named((16, 16)))
    assert list(found) == [f"layer {n}" for n in expected]


def test_all_propagation_layers_have_one_grid():
    """Stages of a narrow picture may have as few rows as one another, and other columns."""
    for every in (named((1, 3), (1, 2), (1, 3)), named((16, 24), (16, 32), (16, 24))):
        assert propagation_layers(every, every) == ("layer 0", "layer 2")


@pytest.mark.parametrize(
    ("own", "cross", "count"),
    [
        ((2, 2), [(16, 16), (8, 8)], 0),  # self-attention in the middle alone
        ((8, 8), [(64, 64)], 0),
        ((8, 12), [(9, 9), (8, 12)], 0),
        ((8, 12), [(8, 12), (4, 6)], 1),
        ((16, 16), [(64, 64)], 1),  # fine enough, however fine the text's are
    ],
)
def test_maps_are_not_propagated_on_coarser_grids(own, cross, count):
    assert len(propagation_layers(named(own), named(*cross))) == count


@pytest.mark.parametrize(
    ("grids", "expected"),
    [
        ([(64, 64), (32, 32), (16, 24), (16, 16), (8, 8)], (16, 16)),
        ([(8, 8), (4, 4)], (8, 8)),
        ([(64, 96), (49, 64)], None),
    ],
)
def test_the_middle_grid_is_the_coarsest_from_16_cells_on(grids, expected):
    assert middle_grid(grids) == expected


@pytest.mark.parametrize(
    ("grid", "expected"),
    [((48, 70), (48, 70)), ((64, 64), (32, 32)), ((96, 49), (48, 25)), ((128, 130), (43, 44))],
)
def test_fine_grids_are_divided_by_a_whole_number(grid, expected):
    assert coarsened(grid) == expected


def test_layers_are_chosen_evenly():
    assert evenly_chosen("abcdefghijkl") == ("b", "d", "f", "h", "j", "l")
    assert evenly_chosen("abc") == ("a", "b", "c")


def test_on_a_coarser_grid_queries_and_keys_of_neighbours_are_averaged():
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 3, 24, 5, dtype=torch.float64).float()  # (1, H, Q, d)
    maps, plain = RefinedMaps((2, 3)), torch.rand(1, 6, 2)
    maps.add(0, plain, (2, 3), 1)
    maps.propagate(0, Scores(query, key, 0.4), 0, (4, 6), 1)
    coarse = [
        x.double().view(3, 2, 2, 3, 2, 5).mean(dim=(2, 4)).view(3, 6, 5) for x in (query, key)
    ]
    p = (coarse[0] @ coarse[1].mT * 0.4).softmax(-1) ** 2
    expected = (p / p.sum(-1, keepdim=True) @ plain[0].double()).mean(0)
    np.testing.assert_allclose(maps.value(0), expected.view(2, 3, 2), rtol=1e-5)


@pytest.mark.parametrize(
    ("steps", "first"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (25, 13), (100, 50)]
)
def test_maps_are_propagated_in_the_later_half_and_the_last_step(steps, first):
    assert [step for step in range(steps) if is_propagated(step, steps)] == list(
        range(first, steps)
    )


def test_self_attention_is_restored_between_calls(pipe):
    """So that an IP-Adapter may be loaded there, which makes each processor anew by its class."""

    def own():
        return {name: layer.processor for name, layer in self_attention_layers(pipe).items()}

    def during(pipe, number, timestep, state):
        seen.append(sum(own()[name] is not one for name, one in before.items()))
        return {}

    before, seen, made = own(), [], []
    with trace(pipe) as recorder:
        for _ in range(2):
            assert own() == before
            run(pipe, "a red house", steps=2, callback_on_step_end=during)
            assert own() == before
            made.append(recorder.recordings[-1].refined)
        with pytest.raises(ZeroDivisionError):
            run(pipe, "a red house", callback_on_step_end=lambda *_: 1 // 0)
        run(pipe, "a red house", steps=2)
        made.append(recorder.recordings[-1].refined)
    assert own() == before
    with pytest.raises(ZeroDivisionError), trace(pipe):
        run(pipe, "a red house", callback_on_step_end=lambda *_: 1 // 0)
    assert own() == before
    assert seen[0] == seen[2] > 0
    assert all(np.array_equal(made[0], one) for one in made[1:])
