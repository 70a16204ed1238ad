"""From a prompt to a run: determinism, batches, arguments, hostile prompts."""

import sys
import warnings

import diffusers
import numpy as np
import pytest
import torch
from making import generate_batch, random_pipeline
from PIL import Image

from heedmap.errors import ArgumentError, HeedmapWarning, ModelError, TruncatedWordError
from heedmap.pipelines.generation import generate
from heedmap.recording.tracing import trace
from heedmap.results.runs import Run


def same(a: Run, b: Run) -> bool:
    return np.array_equal(np.asarray(a.image), np.asarray(b.image)) and all(
        np.array_equal(x.values, y.values) for x, y in zip(a.maps, b.maps, strict=True)
    )


def test_same_seed_same_picture(pipe):
    first = generate(pipe, "a red house", seed=7, steps=2)
    assert same(first, generate(random_pipeline(), "a red house", seed=7, steps=2))
    assert not same(first, generate(pipe, "a red house", seed=8, steps=2))


def test_the_picture_is_the_bare_pipelines(pipe):
    import torch

    run = generate(pipe, "a house", seed=3, steps=2, guidance=4.0, size=(144, 96), negative="sea")
    bare = pipe(
        "a house", negative_prompt="sea", num_inference_steps=2, guidance_scale=4.0, width=144,
        height=96, generator=torch.Generator().manual_seed(3),
    ).images[0]  # fmt: skip
    assert np.array_equal(np.asarray(run.image), np.asarray(bare))
    assert run.image.size == (144, 96)
    assert run.maps["house"].values.shape == (64, 96)


def test_settings_repeat_the_run(pipe):
    run = generate(pipe, "a house", steps=2, guidance=3.0, eta=0.5, keep={"layer", "step"})
    s = run.settings
    assert (s.steps, s.guidance, s.arguments) == (2, 3.0, {"eta": 0.5})
    again = generate(
        pipe,
        s.prompt,
        seed=s.seed,
        steps=s.steps,
        guidance=s.guidance,
        size=s.size,
        negative=s.negative,
        keep=s.keep,
        **s.arguments,
    )
    assert same(run, again)
    assert s.versions.torch == torch.__version__ and s.versions.python in sys.version
    assert (s.device, s.dtype, s.pipeline) == ("cpu", "float32", "StableDiffusionPipeline")


def test_weights_in_a_prompt(pipe, tmp_path):
    plain = generate(pipe, "a red house", seed=7, steps=2)
    assert plain.settings.prompt == plain.settings.text == "a red house"
    run = generate(pipe, "a (red:3) house", seed=7, steps=2)
    assert run.settings.prompt == "a (red:3) house"
    assert run.settings.text == run.maps.tokens.prompt == "a red house"
    assert not np.array_equal(np.asarray(run.image), np.asarray(plain.image))
    assert run.maps["red"].values.mean() > 2 * plain.maps["red"].values.mean()
    back = Run.load(run.save(tmp_path / "run"))
    assert back.settings == run.settings
    assert same(run, back)
    with Image.open(tmp_path / "run" / "image.png") as image:
        assert image.text["parameters"].startswith("a (red:3) house\n")
    # One, and escapes, are no weights: the very same picture.
    for written in ("a (red:1) house", "a red house"):
        assert same(plain, generate(pipe, written, seed=7, steps=2))
    escaped = generate(pipe, r"a \(red\) house", seed=7, steps=2)
    assert escaped.settings.text == "a (red) house"


def test_weights_may_be_negative_and_of_some_of_a_batch(pipe, tmp_path):
    prompts = ["a red house", "a (red house:-1)", "a red house"]
    runs = generate_batch(pipe, prompts, seeds=[7, 7, 7], steps=2)
    plain = generate_batch(pipe, ["a red house"] * 3, seeds=[7, 7, 7], steps=2)
    for number in (0, 2):
        mine, other = runs[number], plain[number]
        assert np.array_equal(np.asarray(mine.image), np.asarray(other.image))
        for a, b in zip(mine.maps, other.maps, strict=True):
            np.testing.assert_allclose(a.values, b.values, atol=1e-6)
    assert not same(runs[1], plain[1])
    assert runs[1].maps["red"].values.max() < 0
    assert Run.load(runs[1].save(tmp_path / "run")).sheet().width > 256


@pytest.mark.parametrize(
    ("prompt", "error", "sentence"),
    [
        ("a (red:2 house", ArgumentError, "is not closed"),
        ("a (red:1,5) house", ArgumentError, "is not a number"),
        ("a (,:2) house", ArgumentError, "covers no word"),
        ("a house " * 40 + "(red:2)", TruncatedWordError, "has no effect"),
    ],
)
def test_bad_weights_end_before_the_first_step(pipe, prompt, error, sentence):
    def never(*_):
        raise AssertionError("a step was run")

    with pytest.raises(error, match=sentence):
        generate(pipe, prompt, steps=1, seed=0, progress=never)


def test_more_tokens_and_the_negative_branch(pipe):
    plain = generate(pipe, "a house", negative="at sea", seed=1, steps=2)
    assert plain.negative_maps is None
    run = generate(
        pipe, "a house", negative="at sea", seed=1, steps=2, tokens="all", branches=["negative"],
        progress=lambda *_: None,
    )  # fmt: skip
    assert run.maps.recording.positions == tuple(range(77))
    assert [word.text for word in run.negative_maps.words] == ["at", "sea"]
    assert run.negative_maps.image is run.image
    np.testing.assert_allclose(run.maps["house"].values, plain.maps["house"].values, atol=1e-6)
    with pytest.raises(ArgumentError):
        generate(pipe, "a house", steps=2, limit=10)


def test_a_batch_is_many_runs(pipe):
    prompts = ["a house", "at the sea"]
    runs = generate_batch(pipe, prompts, seeds=[1, 2], steps=2)
    assert [r.settings.prompt for r in runs] == prompts
    assert [r.settings.seed for r in runs] == [1, 2]
    alone = generate(pipe, "at the sea", seed=2, steps=2)
    difference = np.asarray(runs[1].image).astype(int) - np.asarray(alone.image)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize(
    "prompt",
    [
        "한국어 🦒🏽 “château”",
        'a\nred\thouse\r\n"`$(rm -rf)"<img src=x onerror=alert(1)></script>',
        "!!!",
    ],
)
def test_hostile_prompts(pipe, prompt, tmp_path, recwarn):
    run = generate(pipe, prompt, seed=0, steps=1)
    back = Run.load(run.save(tmp_path / "run"))
    assert back.settings.prompt == prompt
    assert len(back.maps) == len(run.maps)
    assert len(list((tmp_path / "run" / "words").iterdir())) == len(run.maps)


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": " \n "},
        {"prompt": ["a"]},
        {"seed": -1},
        {"seed": 1.5},
        {"steps": 0},
        {"steps": "7"},
        {"guidance": float("nan")},
        {"size": (100, 128)},
        {"size": (0, 128)},
        {"size": 128},
        {"output_type": "latent"},
        {"keep": {"colour"}},
        {"negative": 7},
        {"concepts": [""]},
    ],
)
def test_bad_arguments_end_before_the_first_step(pipe, given):
    def never(*_):
        raise AssertionError("a step was run")

    usual = {"prompt": "a house", "steps": 1, "seed": 0, "progress": never}
    with pytest.raises(ArgumentError):
        generate(pipe, **{**usual, **given})


def test_a_prompt_without_words_can_be_drawn_shown_and_kept(pipe, tmp_path):
    run = generate(pipe, "!!!", seed=1, steps=2)
    assert not run.maps.words
    assert run.maps.token(0).overlay().size
    back = Run.load(run.save(tmp_path / "run"))
    assert back.sheet() == run.sheet()


@pytest.mark.parametrize(
    ("prompt", "negative", "warned"),
    [
        ("a ((red)) house", None, True),
        ("a [red] house", None, True),
        ("a (red:1.3) house", None, False),
        (r"a \(red:1.3\) \[house\]", None, False),
        ("a house", "(red:1.3) house", True),
    ],
)
def test_brackets_that_are_no_weights_are_warned_of(pipe, prompt, negative, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HeedmapWarning)
        generate(pipe, prompt, seed=1, steps=1, guidance=2, negative=negative)
    assert len(caught) == warned


def test_what_is_looked_for_changes_nothing_that_is_drawn(pipe):
    plain = generate_batch(pipe, ["a red house", "at sea"], seeds=[1, 2], steps=2)
    found = generate_batch(
        pipe, ["a red house", "at sea"], seeds=[1, 2], steps=2, concepts=["red house", "cat"]
    )
    with trace(pipe, concepts=["red house", "cat"]) as recorder:
        pipe(
            ["a red house", "at sea"], num_inference_steps=2,
            generator=[torch.Generator().manual_seed(seed) for seed in (1, 2)],
        )  # fmt: skip
    for bare, run, maps in zip(plain, found, recorder.concept_maps, strict=True):
        assert bare.concepts is None and bare.settings.concepts == ()
        assert np.array_equal(np.asarray(bare.image), np.asarray(run.image))
        assert run.settings.concepts == ("red house", "cat") and run.concepts.image is run.image
        np.testing.assert_array_equal(run.concepts["cat"].values, maps["cat"].values)
        assert run.concepts["red house"].mask().shape == (128, 128)
        assert run.concepts.segment().names == ("red house", "cat")
        assert run.concepts.refined["cat"].refined
    with pytest.raises(ArgumentError):
        generate(pipe, "a house", concepts=["cat", "cat"], steps=1)


def test_latents_that_are_not_finite_are_no_picture():
    """diffusers' own UniPC of the first kind of B(h) divides by nothing in its last step."""
    pipe = random_pipeline()
    pipe.scheduler = diffusers.UniPCMultistepScheduler.from_config(
        pipe.scheduler.config, solver_type="bh1"
    )
    with pytest.raises(ModelError):
        generate(pipe, "a house", seed=1, steps=8)
