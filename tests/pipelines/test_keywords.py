"""What type checkers, help and notebooks see behind the prompts: the options, each of them."""

import inspect

import numpy as np
import pytest
import torch
from making import random_pipeline

import heedmap
from heedmap import options
from heedmap.backends.registry import default_size
from heedmap.errors import ArgumentError


@pytest.fixture(scope="module")
def pipe():
    """One for all: whatever is drawn leaves it as it was."""
    return random_pipeline()


def test_the_functions_have_the_defaults_of_the_options():
    for function in (heedmap.generate, heedmap.edit, heedmap.grid):
        for one in inspect.signature(function).parameters.values():
            for kind in (options.GenerateOptions, options.EditOptions):
                if hasattr(kind, one.name):
                    assert one.default == getattr(kind, one.name), one.name


@pytest.mark.parametrize("name", ["stepps", "output_type"])
def test_a_name_that_the_pipeline_does_not_take_is_refused(pipe, name: str):
    for draw in (
        lambda: heedmap.generate(pipe, "a cat", **{name: 1}),
        lambda: heedmap.edit(pipe, "a cat", "a dog", **{name: 1}),
        lambda: heedmap.grid(pipe, "a cat", "a dog", **{name: 1}),
    ):
        with pytest.raises(ArgumentError, match=r"stepps|output_type"):
            draw()


# --- names of diffusers -------------------------------------------------------------------------


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


OURS = {"steps": 2, "guidance": 3.0, "negative": "blurry", "size": (64, 48), "seed": 7}
THEIRS = {
    "num_inference_steps": 2,
    "guidance_scale": 3.0,
    "negative_prompt": "blurry",
    "width": 64,
    "height": 48,
}


def test_names_of_diffusers_give_the_same_images(pipe):
    def pictures(ours, theirs) -> None:
        (expected, found) = (np.asarray(one.image) for one in (ours, theirs))
        assert np.array_equal(expected, found)

    run = heedmap.generate(pipe, "a cat", **OURS)
    again = heedmap.generate(pipe, "a cat", generator=generator_of(7), **THEIRS)
    pictures(run, again)
    assert again.settings == run.settings
    pair = heedmap.edit(pipe, "a cat", "a dog", **OURS)
    pictures(
        pair.edited,
        heedmap.edit(pipe, "a cat", "a dog", generator=generator_of(7), **THEIRS).edited,
    )
    grid = heedmap.grid(
        pipe,
        "a cat",
        "a dog",
        cross_replace=[0, 1],
        generator=[generator_of(7), generator_of(8)],
        **THEIRS,
    )
    assert grid.report.seeds == (7, 8)
    pictures(pair.source, grid.cells[0].result.source)
    given = {"generator": generator_of(7), "num_inference_steps": 2, "height": 48, "width": 64}
    found = heedmap.locate(pipe, run.image, "a cat", **given)
    about = found.settings
    assert (about.seed, about.steps, about.size) == (7, 2, (64, 48))


def test_a_height_alone_keeps_the_models_width(pipe):
    run = heedmap.generate(pipe, "a cat", seed=1, num_inference_steps=1, height=48)
    assert run.image.size == (default_size(pipe)[0], 48)
    for draw in (
        lambda: heedmap.locate(pipe, run.image, "a cat", height=48),
        lambda: heedmap.edit(pipe, "a cat", "a dog", image=run.image, width=48),
    ):
        with pytest.raises(ArgumentError, match="width or height"):
            draw()


@pytest.mark.parametrize("theirs", ["guidance_scale", "height", "generator"])
def test_an_option_under_two_names_is_refused(pipe, theirs: str):
    value = {**THEIRS, "generator": generator_of(7)}[theirs]
    ours = options.RESERVED_ARGUMENTS[theirs]
    for draw in (heedmap.generate, heedmap.edit, heedmap.grid):
        own = "seeds" if draw is heedmap.grid and ours == "seed" else ours
        with pytest.raises(ArgumentError, match=r"guidance|size|generator"):
            draw(pipe, "a (red:2) cat", **{theirs: value, own: OURS[ours]})


def test_a_generator_with_unknown_state_is_refused(pipe):
    used = generator_of(7)
    torch.randn(1, generator=used)
    for generator in (used, 7, [used]):
        with pytest.raises(ArgumentError, match="generator"):
            heedmap.generate(pipe, "a cat", steps=1, generator=generator)
