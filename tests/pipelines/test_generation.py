"""From a prompt to a run: determinism, batches, arguments, hostile prompts."""

import math
import sys
import warnings

import diffusers
import numpy as np
import pytest
import torch
from making import random_pipeline
from PIL import Image

from heedmap.errors import ArgumentError, HeedmapWarning, ModelError, TruncatedWordError
from heedmap.pipelines.generation import generate, generate_batch
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
    with pytest.raises(ArgumentError, match="pass a higher limit"):
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
    ("arguments", "sentence"),
    [
        ({"prompt": ""}, "has no words"),
        ({"prompt": " \n "}, "has no words"),
        ({"prompt": ["a"]}, "the prompt is .*: expected a text"),
        ({"seed": -1}, "the seed is -1: expected a whole number from 0"),
        ({"steps": 0}, "steps is 0: expected a whole number from 1 to 999"),
        ({"guidance": float("nan")}, "guidance is nan: expected a finite number from 0 to 100"),
        ({"size": (100, 128)}, "multiples of 8 pixels"),
        ({"size": (0, 128)}, "multiples of 8 pixels"),
        ({"output_type": "latent"}, "output_type is set by heedmap: use run.image"),
        ({"keep": {"colour"}}, "expected a list of 'layer', 'step' or"),
    ],
)
def test_bad_arguments(pipe, arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        generate(pipe, **{"prompt": "a house", "steps": 1, "seed": 0, **arguments})


WRONG = [
    True, 1.5, math.nan, "7", b"7", [7], (7,), {7: 7}, object(), np.array(7), np.array([7, 8, 9]),
    10**5000, np.True_, 1j,
]  # fmt: skip


@pytest.mark.parametrize("name", ["prompt", "seed", "steps", "guidance", "size", "negative"])
def test_wrong_kinds_are_told_before_the_first_step(pipe, name):
    """One sentence each, with the argument's name; what is right for one of them is left out."""
    said = {"size": "the size|a side of the size", "prompt": "the prompt", "seed": "the seed"}

    def never(*_):
        raise AssertionError("a step was run")

    right = {"guidance": (1.5,), "negative": ("7",), "prompt": ("7",)}.get(name, ())
    for value in WRONG:
        if type(value) in (float, str) and value in right:
            continue
        given = {"prompt": "a house", "steps": 1, "seed": 0, "progress": never, name: value}
        with pytest.raises(ArgumentError, match=f"^({said.get(name, name)}) .*: expected") as found:
            generate(pipe, **given)
        assert "\n" not in str(found.value) and len(str(found.value)) < 300


def test_a_prompt_without_words_can_be_drawn_shown_and_kept(pipe, tmp_path):
    run = generate(pipe, "!!!", seed=1, steps=2)
    assert not run.maps.words
    assert run.maps.token(0).overlay().size
    back = Run.load(run.save(tmp_path / "run"))
    assert back.sheet() == run.sheet()


def test_arguments_of_the_wrong_kind(pipe):
    import torch

    from heedmap import compare, layer_shapes, repeat, trace

    run = generate(pipe, "a house", seed=1, steps=1)
    for call, said in (
        (lambda: generate(pipe, "a \ud800 house"), "is not valid Unicode"),
        (
            lambda: generate(pipe, "a", keep=5),
            "keep is 5: expected a list of 'layer', 'step' or 'head'",
        ),
        (
            lambda: generate(pipe, "a", branches=5),
            "branches is 5: expected a list of 'conditional' or",
        ),
        (lambda: generate(pipe, "a", tokens=np.array([1, 2])), "tokens is array.*: expected"),
        (lambda: generate(pipe, "a", progress=5), "progress is 5: expected a function"),
        (lambda: generate(pipe, "a", preview=5), "preview is 5: expected a function"),
        (lambda: generate(pipe, "a", edits=np.array(1)), "expected a list of edits"),
        (lambda: generate(pipe, "a", prompt_embeds=torch.ones(1)), r"use the prompt as text, or t"),
        (lambda: trace(pipe, prompts=5), "prompts is 5: expected a list of texts"),
        (lambda: compare(5), "the runs are 5: expected a list of runs"),
        (lambda: compare([run, 5]), "the runs are .*: expected a list of runs"),
        (lambda: compare([run, run], words=5), "words is 5: expected a list of words"),
        (lambda: compare([run, run], scale=[]), r"scale is \[\]: expected 'shared'"),
        (lambda: repeat(pipe, 5), "the run is 5"),
        (lambda: layer_shapes(pipe, 5), "the prompt is 5: expected a text"),
        (lambda: run.maps.select(0), "layers is 0: expected 'down'"),
    ):
        with pytest.raises(ArgumentError, match=said):
            call()


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
    with pytest.raises(ArgumentError, match="the concept 'cat' is asked for twice: expected each"):
        generate(pipe, "a house", concepts=["cat", "cat"], steps=1)


def test_latents_that_are_not_finite_are_no_picture():
    """diffusers' own UniPC of the first kind of B(h) divides by nothing in its last step."""
    pipe = random_pipeline()
    pipe.scheduler = diffusers.UniPCMultistepScheduler.from_config(
        pipe.scheduler.config, solver_type="bh1"
    )
    with pytest.raises(ModelError, match="after 8 steps the latents hold values that are not fin"):
        generate(pipe, "a house", seed=1, steps=8)
