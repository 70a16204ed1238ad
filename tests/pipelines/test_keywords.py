"""What type checkers, help and notebooks see behind the prompts: the options, each of them."""

import dataclasses
import inspect
import re
from typing import get_type_hints

import numpy as np
import pytest
import torch

import heedmap
from heedmap import options
from heedmap.backends.registry import usual_size
from heedmap.errors import ArgumentError
from heedmap.pipelines import arguments
from heedmap.pipelines.generation import generate_batch


def test_keywords_are_the_options():
    def fields(*kinds: type) -> dict[str, object]:
        every = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
        return {name: hint for name, hint in every.items() if name != "arguments"}

    diffusers = get_type_hints(arguments.DiffusersKeywords)
    said = get_type_hints(arguments.GenerateKeywords)
    assert said == fields(options.GenerateOptions) | diffusers
    said = get_type_hints(arguments.EditKeywords)
    assert said == fields(options.DrawOptions, options.EditOptions) | diffusers
    windows = {"cross", "self_attention"}
    assert said.keys() - get_type_hints(arguments.GridKeywords).keys() == windows


def test_help_names_every_option():
    for function, kinds in (
        (heedmap.generate, [options.GenerateOptions]),
        (heedmap.edit, [options.EditOptions, options.DrawOptions]),
        (heedmap.grid, [options.EditOptions, options.DrawOptions]),
    ):
        parameters = inspect.signature(function).parameters
        for kind in kinds:
            for one in dataclasses.fields(kind):
                if one.name != "arguments":
                    assert parameters[one.name].default == getattr(kind, one.name), one.name
        assert parameters["arguments"].kind is inspect.Parameter.VAR_KEYWORD


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stepps", "did you mean steps?"),
        ("size_", "did you mean size?"),
        ("guidence", "did you mean guidance?"),
        ("keeps", "did you mean keep?"),
        ("strenght", "leave it out"),
        ("cross_attention_kwargz", "did you mean cross_attention_kwargs?"),
        ("arguments", ""),
        ("self", ""),
        ("prompts", "did you mean"),
    ],
)
def test_a_name_that_nobody_takes(pipe, name: str, hint: str):
    said = rf"^StableDiffusionPipeline takes no argument {name}: .*{re.escape(hint)}"
    for draw in (
        lambda: heedmap.generate(pipe, "a cat", **{name: 1}),
        lambda: heedmap.edit(pipe, "a cat", "a dog", **{name: 1}),
        lambda: heedmap.grid(pipe, "a cat", "a dog", **{name: 1}),
    ):
        with pytest.raises(ArgumentError, match=said):
            draw()


def test_what_an_edit_does_not_take(pipe):
    for name, hint in (("seeds", "seed"), ("tokens", ""), ("self_atention", "self_attention")):
        with pytest.raises(ArgumentError, match=f"takes no argument {name}: .*{hint}"):
            heedmap.edit(pipe, "a cat", "a dog", **{name: 1})
    with pytest.raises(ArgumentError, match=r"takes no argument seeds: did you mean seed\?"):
        heedmap.generate(pipe, "a cat", seeds=1)
    with pytest.raises(ArgumentError, match="callback_on_step_end is 3: expected a function"):
        heedmap.generate(pipe, "a cat", callback_on_step_end=3)


# --- names of diffusers -------------------------------------------------------------------------


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SYNONYMS = get_type_hints(arguments.DiffusersKeywords)
OURS = {"steps": 2, "guidance": 3.0, "negative": "blurry", "size": (64, 48), "seed": 7}
THEIRS = {
    "num_inference_steps": 2,
    "guidance_scale": 3.0,
    "negative_prompt": "blurry",
    "width": 64,
    "height": 48,
}


def test_names_of_diffusers_draw_the_same_pictures(pipe):
    def pictures(ours, theirs) -> None:
        (expected, found) = (np.asarray(one.image) for one in (ours, theirs))
        assert np.array_equal(expected, found)

    run = heedmap.generate(pipe, "a cat", **OURS)
    again = heedmap.generate(pipe, "a cat", generator=seeded(7), **THEIRS)
    pictures(run, again)
    assert again.settings == run.settings
    pair = heedmap.edit(pipe, "a cat", "a dog", **OURS)
    pictures(
        pair.edited, heedmap.edit(pipe, "a cat", "a dog", generator=seeded(7), **THEIRS).edited
    )
    grid = heedmap.grid(
        pipe, "a cat", "a dog", cross=[0, 1], generator=[seeded(7), seeded(8)], **THEIRS
    )
    assert grid.about.seeds == (7, 8)
    pictures(pair.source, grid.cells[0].pair.source)
    given = {"generator": seeded(7), "num_inference_steps": 2, "height": 48, "width": 64}
    found = heedmap.locate(pipe, run.image, "a cat", **given)
    about = found.settings
    assert (about.seed, about.steps, about.size) == (7, 2, (64, 48))
    ablated = heedmap.ablate(pipe, "a cat", "cat", generator=seeded(7), **THEIRS)
    pictures(run, ablated.run)
    runs = generate_batch(pipe, ["a cat"] * 2, generator=[seeded(7), seeded(8)], **THEIRS)
    assert [one.settings.seed for one in runs] == [7, 8]


def test_one_side_alone_leaves_the_other_as_the_model_has_it(pipe):
    run = heedmap.generate(pipe, "a cat", seed=1, num_inference_steps=1, height=48)
    assert run.image.size == (usual_size(pipe)[0], 48)
    for draw in (
        lambda: heedmap.locate(pipe, run.image, "a cat", height=48),
        lambda: heedmap.edit(pipe, "a cat", "a dog", image=run.image, width=48),
    ):
        with pytest.raises(ArgumentError):
            draw()


@pytest.mark.parametrize("theirs", SYNONYMS)
def test_an_option_under_two_names(pipe, theirs: str):
    value = {**THEIRS, "generator": seeded(7)}[theirs]
    ours = options.OWN_NAMES[theirs]
    for draw in (heedmap.generate, heedmap.edit, heedmap.grid):
        own = "seeds" if draw is heedmap.grid and ours == "seed" else ours
        with pytest.raises(ArgumentError):
            draw(pipe, "a (red:2) cat", **{theirs: value, own: OURS[ours]})


def test_what_is_not_given_under_a_name_of_diffusers(pipe):
    run = heedmap.generate(pipe, "a cat", steps=1, seed=7, **dict.fromkeys(SYNONYMS))
    assert (run.settings.steps, run.settings.seed) == (1, 7)


def test_a_generator_whose_seed_is_not_known(pipe):
    drawn = seeded(7)
    torch.randn(1, generator=drawn)
    for generator in (drawn, 7, [drawn]):
        with pytest.raises(ArgumentError):
            heedmap.generate(pipe, "a cat", steps=1, generator=generator)
