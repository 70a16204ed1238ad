"""What every pipeline must pass: the image to the bit, exact maps, and the pipeline as it was."""

from collections.abc import Callable, Sequence
from copy import copy
from math import prod

import numpy as np
import torch
from diffusers import DiffusionPipeline
from diffusers.models.attention_processor import Attention
from making import recordings_of
from oracle import Shares, assert_probabilities, denoiser, reference
from torch import nn

from families.models import GUIDED, TABLE
from heedmap.recording.tracing import trace

Layout = tuple[str, ...]
"""The branches in the rows of a batch, in their order."""

TOLERANCE = 1e-5  # of means of numbers that are exact
WHOLE = {"layer", "step", "head"}
BOTH = ("conditional", "negative")


def paint(
    pipe, *prompts, seeds: Sequence[int] = (0,), steps: int = 2, output_type="np", **arguments
) -> np.ndarray:
    """Call a pipeline with fixed noise: its pictures as an array (B, h, w, 3)."""
    arguments = {name: copy(one) for name, one in arguments.items()}  # Z-Image writes into lists
    made = pipe(
        *map(copy, prompts),
        num_inference_steps=steps,
        generator=[torch.Generator().manual_seed(seed) for seed in seeds],
        output_type=output_type,
        **arguments,
    ).images
    return made.float().numpy() if torch.is_tensor(made) else np.asarray(made)


def after_steps(pipe, act: Callable[[int], object]) -> dict[str, object]:
    """The arguments with which a pipeline calls `act` after each of its steps, by their number."""
    if hasattr(pipe, "transformer"):
        return {"callback": lambda step, *_: act(step)}

    def callback(pipe, step, timestep, given):
        act(step)
        return given

    return {"callback_on_step_end": callback}


def count_passes(pipe) -> list[int]:
    """A list that grows by one with each pass of the denoiser's blocks."""
    passes: list[int] = []
    denoiser(pipe).register_forward_hook(lambda *_: passes.append(1))
    return passes


def state_of(pipe) -> dict[str, object]:
    """Everything that a trace might leave changed: processors, hooks, attributes, classes."""
    parts = [part for part in pipe.components.values() if isinstance(part, nn.Module)]
    modules = [module for part in parts for module in part.modules()]
    layers = [module for module in modules if hasattr(module, "processor")]
    classes = (Attention, type(denoiser(pipe)), type(pipe), DiffusionPipeline)

    def hooks_of(module):
        return [
            list(held.values()) for name, held in vars(module).items() if name.endswith("_hooks")
        ]

    def forward_of(module):  # offloading puts new hooks around it at the end of each call
        return hasattr(module, "_hf_hook") or vars(module).get("forward")

    return {
        "processors": [layer.processor for layer in layers],
        "hooks": [hooks_of(module) for module in modules],
        "attributes": [set(vars(module)) for module in modules],
        "forward": [forward_of(module) for module in modules],
        "own attributes": set(vars(pipe)),
        "methods": {name: value for name, value in vars(pipe).items() if callable(value)},
        "classes": [dict(vars(kind)) for kind in classes],
        "processor classes": [dict(vars(type(layer.processor))) for layer in layers],
        "torch": [nn.functional.scaled_dot_product_attention, nn.Module.__call__],
    }


def assert_restored(pipe, before: dict[str, object]) -> None:
    after = state_of(pipe)
    for what, was in before.items():
        assert after[what] == was, f"{what} of the pipeline changed"


def expect(
    shares: Shares,
    layouts: Sequence[Layout],
    groups: Sequence[Sequence[int]],
    branch: str = "conditional",
) -> dict[str, np.ndarray]:
    """By layer, what must have been recorded of a branch: (S, B, H, Q, K).

    A step is a group of passes, and has their mean, of those with rows of the branch.
    """

    def mean(passes, group):
        rows = [
            np.split(passes[number], len(layouts[number]))[layouts[number].index(branch)]
            for number in group
            if branch in layouts[number]
        ]
        whole = np.mean(rows, axis=0)
        read = ~np.isnan(whole).all(axis=(0, 1, 2))  # other branches may be longer
        return np.nan_to_num(whole[..., read])

    return {
        name: np.stack([mean(passes, group) for group in groups]) for name, passes in shares.items()
    }


def compare(recordings, expected: dict[str, np.ndarray], near: dict[str, float]) -> None:
    """Every number of every recording against the independent one, by layer as near as `near`."""
    for image, recording in enumerate(recordings):
        assert [layer.name for layer in recording.layers] == list(expected)
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            assert array.dtype == np.float32
            wanted = expected[layer.name][:, image][..., list(recording.positions)]
            assert array.shape == wanted.shape, layer.name
            assert_probabilities(array, wanted, near[layer.name], f"image {image}, {layer.name}")


def check(
    pipe,
    call: Callable[[], np.ndarray],
    prompts: Sequence[str],
    layout: Layout | Sequence[Layout] = GUIDED,
    groups: Sequence[Sequence[int]] | None = None,
    branches: Sequence[str] = ("conditional",),
    labels: Sequence[str] | None = None,
):
    """Run `call` bare and traced, and hold one against the other; returns the recorder.

    Args:
        pipe: the pipeline.
        call: runs it, with the same seeds each time, and gives its pictures.
        prompts: the prompt of each image, in the order of the images.
        layout: the branches of the batch; a sequence for each pass where they change.
        groups: which passes make a step; each its own unless given.
        branches: what is asked of the trace.
        labels: passed to the trace as `prompts`.
    """
    with reference(pipe) as shares:
        bare = call()
    before = state_of(pipe)
    extra = {} if labels is None else {"prompts": list(labels)}
    with trace(pipe, WHOLE, tokens="all", branches=tuple(branches), **extra) as recorder:
        traced = call()
    assert_restored(pipe, before)
    assert np.isfinite(bare).all() and bare.std() > 0
    assert np.array_equal(bare, traced)

    passes = len(next(iter(shares.values())))
    layouts = [layout] * passes if isinstance(layout[0], str) else list(layout)
    groups = groups or [[number] for number in range(passes)]
    found = {"conditional": "maps", "negative": "negative_maps"}
    for branch in branches:
        recordings = recordings_of(getattr(recorder, found[branch]))
        expected = expect(shares, layouts, groups, branch)
        assert len(recordings) == len(prompts)
        compare(recordings, expected, shares.near)
        for recording in recordings:
            assert len(recording.timesteps) == len(groups)
            tokens = expected[recording.layers[0].name].shape[-1]
            assert recording.positions == tuple(range(tokens))
            for layer in recording.layers:
                assert (layer.heads, prod(layer.grid)) == expected[layer.name].shape[2:4]
    assert [recording.table.prompt for recording in recorder.recordings] == list(prompts)
    assert_telling(expect(shares, layouts, groups), shares.near)
    return recorder


def check_family(pipe, family: str, prompts: Sequence[str] | str, read=None, **more):
    """Check a call of a family's row in each branch that has maps; returns the recorder.

    Attention reads other texts than the prompts if they are given as `read`.
    """
    row, texts = TABLE[family], prompts
    if isinstance(prompts, str):
        call, texts = row.arguments(**more), [prompts]
    else:
        call = row.arguments(len(prompts), **more)
        texts = np.repeat(prompts, call.get("num_images_per_prompt", 1)).tolist()
    return check(
        pipe,
        lambda: paint(pipe, prompt=prompts, **call),
        read or texts,
        row.layouts(2),
        row.groups(2),
        row.branches,
    )


def assert_telling(expected: dict[str, np.ndarray], near: dict[str, float]) -> None:
    """The comparison could have failed: images differ, and so do steps, heads and places."""
    for axis in range(4):
        apart = [
            (np.ptp(wanted, axis=axis) / (near[name] * wanted.max(axis=axis) + 1e-30)).max()
            for name, wanted in expected.items()
        ]
        single = all(wanted.shape[axis] == 1 for wanted in expected.values())
        assert single or max(apart) > 100, f"axis {axis} is flat"
