"""Saved results that are generated again: bit-identical, or the differences are listed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler
from making import random_edit, random_pipeline, random_run
from msgspec import structs
from PIL import Image

import heedmap
from heedmap import Confine, EditResult, Reweight, Run, edit, generate, grid, repeat
from heedmap.errors import ArgumentError, ModelError, RunError
from heedmap.pipelines.repeating import compared

PROMPT = "a red house"


@pytest.fixture(scope="module")
def pipe():
    """One for all: whatever is repeated leaves it as it was."""
    return random_pipeline()


@pytest.fixture(scope="module")
def run(pipe) -> Run:
    return generate(pipe, PROMPT, seed=1, steps=1)


def save_and_repeat(pipe, made: Run | EditResult, folder: Path, **given):
    """A thing saved and repeated from its folder."""
    return repeat(pipe, made.save(folder, overlays=False), **given)


def assert_same(found) -> None:
    assert found.same, str(found)
    assert found.largest == 0


# --- the same to the byte -----------------------------------------------------------------------


def test_the_scheduler_of_the_settings_is_used(embedded, tmp_path):
    own = embedded.scheduler
    embedded.scheduler = DDIMScheduler.from_config(own.config, timestep_spacing="leading")
    try:
        run = generate(embedded, PROMPT, seed=1, steps=4)
    finally:
        embedded.scheduler = own
    found = save_and_repeat(embedded, run, tmp_path / "run")
    assert_same(found)
    assert found.changed == {
        "schedulers.scheduler.config.timestep_spacing": ("leading", "trailing")
    }


@pytest.mark.parametrize(
    "asked",
    [
        {
            "prompt": "a (red:2.5) house (at:-0.3)", "guidance": 3.25, "negative": "at sea",
            "size": (144, 96), "guidance_rescale": 0.7,
            "callback_on_step_end_tensor_inputs": ["latents"],
        },
        {
            "keep": ("step", "head"), "branches": ["negative"], "negative": "sea",
            "concepts": ["sky"],
        },
        {
            "edits": [
                Reweight("red", 2.1, renormalize=True), Confine("house", (0, 0, 64, 128)),
                Confine("red", np.eye(128, dtype=bool), strength=1.7, end=0.9, tail=False),
            ]
        },
    ],
)  # fmt: skip
def test_a_run_repeats(pipe, tmp_path, asked):
    asked = {"prompt": PROMPT, "seed": 7, "steps": 2, **asked}
    run = generate(pipe, **asked)
    found = save_and_repeat(random_pipeline(), run, tmp_path / "run")
    assert_same(found)
    assert found.changed == {}
    assert found.run.settings == run.settings


EDITS = [
    {
        "source": r"a \(red\) (house:3)", "target": "a blue (house:0.5)", "renormalize": True,
        "cross_replace": (0.2, 0.9), "self_replace": 0.6, "max_self_cells": 64,
    },
    {
        "target": "a red sea", "only": "house->sea", "protect": ["red"], "threshold": 0.55,
        "blend_from": 0.3, "negative": "",
    },
]  # fmt: skip


@pytest.mark.parametrize("asked", EDITS)
@pytest.mark.filterwarnings("ignore:the edit")
def test_an_edit_repeats(pipe, tmp_path, asked):
    pair = edit(pipe, **{"source": PROMPT, "seed": 7, "steps": 2, **asked})
    folder = pair.save(tmp_path / "pair", overlays=False)
    found = repeat(pipe, folder)
    assert_same(found)
    assert isinstance(found.run, EditResult)
    for side in ("source", "edited"):
        assert_same(alone := repeat(pipe, folder / side))
        assert isinstance(alone.run, Run)


@pytest.mark.filterwarnings("ignore:the edit")
def test_a_cell_of_a_grid_repeats(pipe, tmp_path):
    made = grid(
        pipe, PROMPT, weights={"red": [1, 2.5]}, cross_replace=[0.3, (0.2, 0.8)], seeds=[5, 6],
        steps=2, batch=4,
    )  # fmt: skip
    folder = made.save(tmp_path / "grid", overlays=False)
    assert_same(repeat(pipe, folder / "cells" / "002"))
    with pytest.raises(RunError, match="cells/001"):
        repeat(pipe, folder)


# --- what is not the same -----------------------------------------------------------------------


def test_settings_that_differ_now_are_listed(pipe):
    run = generate(pipe, PROMPT, seed=1, steps=1)
    noted = replace(
        run.settings, versions=structs.replace(run.settings.versions, torch="1.0"), threads=64,
        loras=({"name": "style"},), model="org/name",
    )  # fmt: skip
    found = repeat(pipe, replace(run, settings=noted))
    assert_same(found)
    assert found.changed == {
        "versions.torch": ("1.0", run.settings.versions.torch),
        "threads": (64, 1),
        "loras": ([{"name": "style"}], []),
        "model": ("org/name", "StableDiffusionPipeline"),
    }


# --- what the file does not hold ----------------------------------------------------------------


def fade(p, site):
    p[..., 2] *= 0.5
    return p


def test_tensors_and_rules_must_be_given_again_unchanged(pipe, tmp_path):
    latents = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(3))
    edits = [Reweight("house", 2), fade]
    run = generate(pipe, PROMPT, seed=1, steps=1, latents=latents, edits=edits)
    folder = run.save(tmp_path / "run", overlays=False)
    given = {"latents": latents, "edits": edits}
    for other in ({"edits": edits}, {**given, "latents": latents + 1}, {**given, "edits": [fade]}):
        with pytest.raises(ArgumentError, match=r"latents|edits"):
            repeat(pipe, folder, **other)
    assert_same(repeat(pipe, folder, **given))


# --- models and errors ------------------------------------------------------------------------


def test_the_model_of_the_settings_is_loaded(pipe, run, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    loaded = heedmap.load(tmp_path / "model", device="cpu")
    mine = generate(loaded, PROMPT, seed=1, steps=1)
    found = repeat(None, mine.save(tmp_path / "mine", overlays=False))
    assert_same(found)
    assert found.changed == {}
    with pytest.raises(ModelError, match="model"):
        repeat(None, run)


# --- the comparison ---------------------------------------------------------------------------


def change_pixels(run, pixels: int, by: int):
    """The run with so many pixels of its first row changed by so much in one channel."""
    values = np.asarray(run.image, dtype=int).copy()
    channel = values[0, :pixels, 1]
    channel += np.where(channel >= by, -by, by)
    return replace(run, image=Image.fromarray(values.astype(np.uint8)))


@pytest.mark.parametrize(("pixels", "by"), [(0, 0), (5, 40)])
def test_changed_pixels_are_found(pixels, by):
    run = random_run()
    found = compared(run, change_pixels(run, pixels, by), {"threads": (2, 1)})
    assert (found.same, found.largest) == (not pixels, by)
    assert found.changed == {"threads": (2, 1)}


def test_pixels_of_all_images_are_compared():
    pair = random_edit()
    for side in ("source", "edited"):
        changed = replace(pair, **{side: change_pixels(getattr(pair, side), 3, 9)})
        assert compared(pair, changed, {}).largest == 9
    small = replace(pair.edited, image=pair.edited.image.resize((64, 64)))
    assert not compared(pair, replace(pair, edited=small), {}).same
