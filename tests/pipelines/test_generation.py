"""From a prompt to a run: determinism, batches, arguments, settings, warnings, hostile prompts."""

import warnings

import diffusers
import numpy as np
import pytest
import torch
from making import generate_batch, random_pipeline, same_pixels
from PIL import Image

from heedmap.errors import ArgumentError, HeedmapWarning, ModelError
from heedmap.pipelines.editing import edit
from heedmap.pipelines.generation import generate
from heedmap.recording.tracing import trace
from heedmap.results.runs import Run


def same(a: Run, b: Run) -> bool:
    pairs = zip(a.maps.values(), b.maps.values(), strict=True)
    return same_pixels(a.image, b.image) and all(
        np.array_equal(one.values, other.values) for one, other in pairs
    )


def fail(*_):
    raise AssertionError("a step was run")


@pytest.fixture(scope="module")
def pipe():
    """One for all: a run leaves it as it was."""
    return random_pipeline()


def test_one_seed_gives_one_image(pipe):
    first = generate(pipe, "a red house", seed=7, steps=2)
    assert same(first, generate(random_pipeline(), "a red house", seed=7, steps=2))
    assert not same(first, generate(pipe, "a red house", seed=8, steps=2))
    assert generate(pipe, "a house", steps=1).settings.seed in range(2**31)


def test_the_image_equals_the_bare_pipelines(pipe):
    run = generate(pipe, "a house", seed=3, steps=2, guidance=4.0, size=(144, 96), negative="sea")
    bare = pipe(
        "a house",
        negative_prompt="sea",
        num_inference_steps=2,
        guidance_scale=4.0,
        width=144,
        height=96,
        generator=torch.Generator().manual_seed(3),
    ).images[0]
    assert same_pixels(run.image, bare)
    assert run.image.size == (144, 96)


def test_progress_previews_and_callbacks_change_no_image():
    pipe = random_pipeline()
    reported = []
    callbacks = []
    shapes = []

    def callback(pipe, step, timestep, tensors):
        callbacks.append(step)
        return tensors

    def spoil(latents):
        shapes.append(latents.shape)
        latents.zero_()

    plain = generate(pipe, "a house", seed=1, steps=3)
    bar = dict(pipe._progress_bar_config)
    watched = generate(
        pipe,
        "a house",
        seed=1,
        steps=3,
        progress=lambda *now: reported.append(now),
        callback_on_step_end=callback,
        preview=spoil,
    )
    assert same(plain, watched)
    assert reported == [(1, 3), (2, 3), (3, 3)]
    assert callbacks == [0, 1, 2] and shapes == [(1, 4, 16, 16)] * 3
    assert pipe._progress_bar_config == bar


# --- weights and batches ---


def test_weights_in_a_prompt_are_applied_and_saved(pipe, tmp_path):
    plain = generate(pipe, "a red house", seed=7, steps=2)
    assert plain.settings.prompt == plain.settings.text == "a red house"
    run = generate(pipe, "a (red:3) house", seed=7, steps=2)
    assert run.settings.prompt == "a (red:3) house"
    assert run.settings.text == run.maps.tokens.prompt == "a red house"
    assert not same_pixels(run.image, plain.image)
    assert run.maps["red"].values.mean() > 2 * plain.maps["red"].values.mean()
    back = Run.load(run.save(tmp_path / "run", overlays=False))
    assert back.settings == run.settings
    assert same(run, back)
    with Image.open(tmp_path / "run" / "image.png") as image:
        assert image.text["parameters"].startswith("a (red:3) house\n")
    # One is no weight: the very same picture.
    assert same(plain, generate(pipe, "a (red:1) house", seed=7, steps=2))


def test_lists_of_prompts_and_seeds_give_lists_of_runs(pipe):
    def inputs(prompt, seed) -> list[tuple[str, int]]:
        runs = generate(pipe, prompt, seed=seed, steps=1)
        return [(run.settings.prompt, run.settings.seed) for run in runs]

    assert inputs(["a house", "a sea"], [1, 2]) == [("a house", 1), ("a sea", 2)]
    assert inputs("a house", [1, 2]) == [("a house", 1), ("a house", 2)]
    for prompt, seed in ((["a house", "a sea"], [1]), ([], 1), ("a house", [])):
        with pytest.raises(ArgumentError, match="seed"):
            generate(pipe, prompt, seed=seed, steps=1)


def test_concepts_change_no_picture(pipe):
    prompts = ["a red house", "at sea"]
    concepts = ["red house", "cat"]
    plain = generate_batch(pipe, prompts, seeds=[1, 2], steps=2)
    found = generate_batch(pipe, prompts, seeds=[1, 2], steps=2, concepts=concepts)
    with trace(pipe, concepts=concepts) as recorder:
        generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
        pipe(prompts, num_inference_steps=2, generator=generators)
    for bare, run, maps in zip(plain, found, recorder.concept_maps, strict=True):
        assert bare.concepts is None and bare.settings.concepts == ()
        assert same_pixels(bare.image, run.image)
        assert run.settings.concepts == ("red house", "cat") and run.concepts.image is run.image
        np.testing.assert_array_equal(run.concepts["cat"].values, maps["cat"].values)


# --- hostile prompts, bad arguments, warnings ---


@pytest.mark.parametrize(
    "prompt", ["한국어 🦒🏽 “château”", 'a\nred\t\r\n"`$(rm)"<img></script>', "!!!"]
)
def test_hostile_prompts_are_saved_and_read_back(pipe, prompt, tmp_path, recwarn):
    run = generate(pipe, prompt, seed=0, steps=1)
    back = Run.load(run.save(tmp_path / "run"))
    assert back.settings.prompt == prompt
    assert back.maps.words == run.maps.words
    assert len(list((tmp_path / "run").glob("words/*"))) == len(run.maps.words)


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": " \n "},
        {"prompt": "a (red:2 house"},
        {"seed": -1},
        {"guidance": float("nan")},
        {"size": (100, 128)},
        {"concepts": ["cat", "cat"]},
        {"limit": 10},
    ],
)
def test_bad_arguments_end_before_the_first_step(pipe, given):
    usual = {"prompt": "a house", "steps": 1, "seed": 0, "progress": fail}
    with pytest.raises(ArgumentError, match=r"prompt|seed|guidance|size|concept|limit"):
        generate(pipe, **{**usual, **given})


@pytest.mark.parametrize(
    ("prompt", "negative", "warned"),
    [
        ("a ((red)) house", None, True),
        ("a (red:1.3) house", None, False),
        ("a house", "(red:1.3) house", True),
    ],
)
def test_brackets_that_are_no_weights_give_a_warning(pipe, prompt, negative, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HeedmapWarning)
        generate(pipe, prompt, seed=1, steps=1, guidance=2, negative=negative)
    assert len(caught) == warned


def test_unknown_words_give_a_warning_and_are_saved(embedded):
    prompts = ["a (Horse:1.5), a red cat", "a red house"]
    with pytest.warns(HeedmapWarning, match="'Horse' and 'blurry'"):
        runs = generate_batch(embedded, prompts, seeds=[1, 2], steps=1, negative="blurry, a cat")
    assert [run.settings.untaught for run in runs] == [("Horse", "blurry"), ("blurry",)]
    with warnings.catch_warnings(action="error"):
        assert generate(embedded, "a red house", steps=1).settings.untaught == ()


@pytest.mark.parametrize(
    ("size", "far"), [((128, 256), False), ((88, 88), True), ((136, 256), True)]
)
def test_a_size_far_from_the_models_gives_a_warning(pipe, size, far):
    for call in (
        lambda: generate(pipe, "a house", steps=1, size=size),
        lambda: edit(pipe, "a red house", "a red tree", steps=1, cross_replace=0.0, size=size),
    ):
        with warnings.catch_warnings(record=True, action="always") as warned:
            call()
        about = [one for one in warned if f"{size[0]}×{size[1]}" in str(one.message)]
        assert [one.category for one in about] == [HeedmapWarning] * far


def test_latents_that_are_not_finite_are_an_error():
    """diffusers' own UniPC of the first kind of B(h) divides by nothing in its last step."""
    pipe = random_pipeline()
    pipe.scheduler = diffusers.UniPCMultistepScheduler.from_config(
        pipe.scheduler.config, solver_type="bh1"
    )
    with pytest.raises(ModelError, match="latents"):
        generate(pipe, "a house", seed=1, steps=8)
