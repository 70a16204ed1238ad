"""Guides of the latents: what they change, and what they leave as it is."""

import diffusers
import numpy as np
import pytest
import torch
from families.checking import assert_restored, state_of
from making import random_pipeline, same_pixels
from msgspec import structs
from oracle import denoiser

import heedmap as hm
from heedmap.errors import (
    ArgumentError,
    HeedmapWarning,
    ModelError,
    SelectionError,
    UnknownWordError,
)

# A guide without effect measures the losses of a plain run.
pytestmark = pytest.mark.filterwarnings("ignore:a guide changed nothing")
PROMPT = "a red house"
DEFAULTS = ("step_size", "end")  # of which a guide has those of the model's generation
SURE = {"target": 0.0, "step_size": 0.2, "iterations": 2, "end": 1.0}


def generate(pipe, guide, prompt=PROMPT, **options):
    options = {"seed": 0, "steps": 3, **options}
    return hm.generate(pipe, prompt, guide=guide, **options)


def first_inputs(pipe, call):
    """The latents of the first pass of the pipeline itself, in the rows of the prompt.

    And the number of positional arguments of each pass.
    """
    inputs = []
    counts = []

    def see(_, args, kwargs, output):
        inputs.append((args or [*kwargs.values()])[0])
        counts.append(len(args))

    handle = denoiser(pipe).register_forward_hook(see, with_kwargs=True)
    result = call()
    handle.remove()
    return inputs[0][-1:], counts, result


@pytest.fixture(scope="module", params=[None, "joint"], ids=["unet", "joint"])
def model(request):
    pipe = hm.load(request.param)
    pipe.set_progress_bar_config(disable=True)
    return pipe


# --- what is changed ---


@pytest.mark.parametrize(
    "guide",
    [
        hm.Excite("house", **SURE),
        hm.Inside("house", (0, 0, 64, 128), **SURE),
        hm.Inside("house", np.eye(128, dtype=bool), **SURE),
        hm.Bind("red", "house", **SURE),
        hm.Separate("red", "house", **SURE),
    ],
    ids=["excite", "box", "mask", "bind", "separate"],
)
def test_each_guide_lowers_its_loss(model, guide):
    measured = generate(model, [structs.replace(guide, target=1.0)])
    run = generate(model, [guide])
    (before,), (after,) = measured.guide_report.before, run.guide_report.after
    assert all(a < b for a, b in zip(after, before, strict=True))
    assert run.guide_report.passes == 6
    assert run.settings.guide == (guide,)


def test_a_guide_that_starts_late_acts_to_the_end(model):
    run = generate(model, [hm.Excite("house", target=0.0, start=0.6)], steps=5)
    assert run.guide_report.passes == 2 * 2  # before the last two steps
    assert run.settings.guide[0].end == 1.0


def test_the_latents_are_changed_against_the_gradient(model):
    """A small change lowers the loss by the gradient's length times it."""
    size = 1e-3
    guide = [hm.Excite("house", target=0.0, step_size=size, iterations=1, end=0.3)]
    report = generate(model, guide).guide_report
    assert report.passes == 1
    fall = report.before[0][0] - report.after[0][0]
    assert fall > 0
    double = [hm.Excite("house", target=0.0, step_size=2 * size, iterations=1, end=0.3)]
    report = generate(model, double).guide_report
    assert report.before[0][0] - report.after[0][0] == pytest.approx(2 * fall, rel=0.1)


def test_a_loss_of_the_users_own_gets_the_maps_that_are_recorded_with_their_graph(model):
    maps, tracked, shapes = {}, [], set()

    def loss(now, step):
        house = now["house"]
        shapes.add(house.shape)
        tracked.append(house.requires_grad)
        for layer in layers:  # at last those of the pass of the pipeline itself
            maps[step, layer.name] = now.select(layer.name)["house"].detach().numpy()
        return 0 * house.sum()

    layers = generate(model, []).maps.layers
    run = generate(model, [loss], keep={"layer", "step"})
    assert any(tracked) and shapes == {max(layer.grid for layer in layers)}
    recording = run.maps.recording
    tokens = [recording.columns[token] for token in run.maps.tokens.find("house")]
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        expected = array[:, 0, :, tokens].sum(0).reshape(3, *layer.grid)
        for step in range(3):
            found = maps[step, layer.name]
            np.testing.assert_allclose(found, expected[step], atol=1e-6, rtol=0)
    assert run.settings.guide[0].name == "loss"
    with pytest.raises(ArgumentError, match="loss"):
        generate(model, [lambda maps, step: maps["house"]])


def test_images_of_a_batch_are_guided_each_by_its_own_words(model):
    prompts, seeds = ["a red house", "a cat and a house"], [3, 4]
    guide = [hm.Excite("house", **SURE)]
    batch = hm.generate(model, prompts, seed=seeds, steps=3, guide=guide)
    for run, prompt, seed in zip(batch, prompts, seeds, strict=True):
        alone = hm.generate(model, prompt, seed=seed, steps=3, guide=guide)
        for found, expected in zip(run.guide_report.after, alone.guide_report.after, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4)
        difference = np.asarray(run.image, int) - np.asarray(alone.image, int)
        assert np.abs(difference).max() <= 3


# --- what stays as it is ---


def test_a_guide_that_is_content_changes_nothing(model):
    """Its passes are neither recorded nor counted as steps."""
    keep = {"keep": "all", "concepts": ["tree"], "budget": True}
    plain = generate(model, [], **keep)
    with pytest.warns(HeedmapWarning, match="guide"):
        run = generate(model, [hm.Excite("house", target=1.0, end=1.0)], **keep)
    assert same_pixels(plain.image, run.image)
    report = run.guide_report
    assert report.passes == 3
    assert report.before[0] == pytest.approx(report.after[0], rel=1e-4)
    for name in ("maps", "concepts"):
        pair = [getattr(one, name).recording.arrays for one in (plain, run)]
        for one, other in zip(*pair, strict=True):
            assert np.array_equal(one, other)


def test_the_pipeline_is_restored_after_an_error_in_a_loss(model):
    before = state_of(model)
    tracked = [one.requires_grad for one in denoiser(model).parameters()]

    def loss(maps, step):
        assert not any(one.requires_grad for one in denoiser(model).parameters()) or step
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        generate(model, [loss])
    assert_restored(model, before)
    assert [one.requires_grad for one in denoiser(model).parameters()] == tracked
    assert all(one.grad is None for one in denoiser(model).parameters())


def test_a_callback_of_the_users_own_goes_on_from_the_guided_latents(model):
    steps = []

    def callback(pipe, step, timestep, given):
        steps.append(step)
        return {"latents": given["latents"] * 1.01}

    guide = [hm.Excite("house", **SURE)]
    run = generate(model, guide, callback_on_step_end=callback)
    assert steps == [0, 1, 2]
    assert not same_pixels(run.image, generate(model, guide).image)
    assert run.guide_report.passes == 6


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_compiled_model_is_guided_and_explained_as_it_was_before():
    pipe = random_pipeline()
    guide = [hm.Excite("house", **SURE)]
    expected = generate(pipe, guide)
    pipe.unet = torch.compile(pipe.unet)
    with pytest.warns(hm.HeedmapWarning, match="compiled"):
        run = generate(pipe, guide)
    assert same_pixels(run.image, expected.image)
    assert run.guide_report == expected.guide_report
    with pytest.warns(hm.HeedmapWarning, match="compiled"):
        explained = hm.explain(pipe, run, "house", at=(20, 20))
    assert explained.report.word == "house" and not explained.report.settings_diff


def test_gradient_checkpointing_gives_the_same_image(model):
    guide = [hm.Separate("red", "house", **SURE)]
    run = generate(model, guide)
    denoiser(model).enable_gradient_checkpointing()
    try:
        again = generate(model, guide)
    finally:
        denoiser(model).disable_gradient_checkpointing()
    assert np.abs(np.asarray(run.image, int) - np.asarray(again.image, int)).max() <= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_in_half_precision_is_guided(dtype):
    pipe = random_pipeline().to(dtype)
    content = generate(pipe, [hm.Excite("house", target=1.0)]).guide_report
    report = generate(pipe, [hm.Excite("house", **(SURE | {"iterations": 1}))]).guide_report
    assert report.after[0][0] < content.after[0][0]


def test_an_ablation_leaves_out_the_guides_of_the_word(model):
    guide = [hm.Excite("red"), hm.Excite("house")]
    run = generate(model, guide, steps=2)
    ablation = hm.ablate(model, run, "red")
    kept = {way: one.settings.guide for way, one in ablation.without.items()}
    assert kept == {"attention": run.settings.guide, "prompt": run.settings.guide[1:]}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "joint",
        "EulerDiscreteScheduler",
        "HeunDiscreteScheduler",
        "PNDMScheduler",
        "DPMSolverMultistepScheduler",
        "LMSDiscreteScheduler",
    ],
)
def test_the_run_goes_on_from_the_latents_that_were_changed(name):
    """Of the first step alone: as from other noise, whatever the scheduler makes of it."""
    pipe = random_pipeline() if name.endswith("Scheduler") else hm.load(name or None)
    pipe.set_progress_bar_config(disable=True)
    kind = getattr(diffusers, name, type(pipe.scheduler))
    pipe.scheduler = kind.from_config(pipe.scheduler.config)
    guide = [hm.Excite("house", **(SURE | {"end": 0.2, "iterations": 1}))]
    plain, passes, _ = first_inputs(pipe, lambda: generate(pipe, [], steps=4))
    moved, guided, run = first_inputs(pipe, lambda: generate(pipe, guide, steps=4))
    assert guided == passes  # of the pipeline's own hooks
    assert float((moved - plain).square().mean().sqrt()) == pytest.approx(0.2, rel=1e-3)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(plain.shape, generator=generator)
    factor = (plain * noise).sum() / noise.square().sum()
    again = hm.generate(pipe, PROMPT, steps=4, seed=0, latents=moved / factor)
    for one, other in zip(run.maps.recording.arrays, again.maps.recording.arrays, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=0)
    assert len(run.guide_report.before[0]) == 4


# --- what is saved, and refused ---


def test_a_guided_run_is_saved_and_repeats(model, tmp_path):
    """A loss of the user's own is given again."""

    def loss(maps, step):
        return 1 - maps["house"].max()

    guide = [hm.Inside("red", (0, 0, 64, 128)), hm.Bind("red", "house"), loss]
    run = generate(model, guide)
    run.save(tmp_path / "run")
    loaded = hm.Run.load(tmp_path / "run")
    assert loaded.guide_report == run.guide_report
    assert loaded.settings.guide == run.settings.guide
    assert None not in {getattr(one, name) for one in run.settings.guide[:2] for name in DEFAULTS}
    with pytest.raises(ArgumentError, match="guide"):
        hm.repeat(model, tmp_path / "run")
    assert hm.repeat(model, tmp_path / "run", guide=guide).same


def test_guides_of_an_edit_change_the_edited_image_alone(model, tmp_path):
    """The edit takes the source's attention, which depends on the source's latents."""
    call = {"source": "a red house", "target": "a red cat", "seed": 0, "steps": 3}
    plain = hm.edit(model, **call)
    pair = hm.edit(model, guide=[hm.Inside("cat", (0, 0, 64, 128), **SURE)], **call)
    assert same_pixels(pair.source.image, plain.source.image)
    assert not same_pixels(pair.edited.image, plain.edited.image)
    report = pair.edited.guide_report
    assert report.after[0][-1] < report.before[0][0]
    assert (pair.source.guide_report, pair.source.settings.guide) == (None, ())
    pair.save(tmp_path / "edit")
    assert hm.repeat(model, tmp_path / "edit").same


def test_what_cannot_be_guided_is_refused_before_the_first_step():
    pipe = random_pipeline()
    passes = []
    pipe.unet.conv_in.register_forward_hook(lambda *_: passes.append(1))
    for guide, error in (
        ([hm.Excite("cat")], UnknownWordError),
        ([hm.Bind("red", "cat")], UnknownWordError),
        (hm.Excite("house"), ArgumentError),
        ([hm.Excite], ArgumentError),
        (["house"], ArgumentError),
        ([hm.Excite("house", layers="sideways")], SelectionError),
        ([hm.Inside("house", (0, 0, 500, 500))], ArgumentError),
    ):
        with pytest.raises(error):
            generate(pipe, guide)
    guide = [hm.Excite("house")]
    with torch.inference_mode():
        loaded_there = random_pipeline()
        with pytest.raises(ArgumentError, match="inference_mode"):
            generate(pipe, guide)
    with pytest.raises(ArgumentError, match="inference_mode"):
        generate(loaded_there, guide)
    for name in ("UniPCMultistepScheduler", "DPMSolverSinglestepScheduler"):
        pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
        with pytest.raises(ArgumentError, match=name):
            generate(pipe, guide)
    assert not passes


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_quantised_model_is_refused():
    pipe = random_pipeline()
    pipe.unet = torch.ao.quantization.quantize_dynamic(pipe.unet, {torch.nn.Linear}, torch.qint8)
    with pytest.raises(ModelError, match="quantised"):
        generate(pipe, [hm.Excite("house")])


def test_a_layer_without_a_gradient_is_refused():
    pipe = random_pipeline()
    for layer in pipe.unet.modules():
        if hasattr(layer, "to_q"):
            layer.to_q.register_forward_hook(lambda *args: args[-1].detach())
    with pytest.raises(ModelError, match="gradient"):
        generate(pipe, [hm.Excite("house")])


@pytest.mark.parametrize(
    "options",
    [
        {"step_size": -1},
        {"iterations": 0},
        {"target": 2},
        {"start": 0.5, "end": 0.2},
        {"layers": 1.5},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ArgumentError):
        hm.Excite("house", **options)
    with pytest.raises(ArgumentError):
        hm.Separate("house", "house")


@pytest.mark.parametrize(
    "loss",
    [
        lambda maps, step: maps["house"].sum() * float("nan"),
        lambda maps, step: (maps["house"] * 0).sum().sqrt() + 1,  # its gradient is infinite
        lambda maps, step: maps["house"].detach().max(),
    ],
)
def test_a_loss_without_a_finite_gradient_is_refused_at_the_first_step(loss):
    pipe = hm.load()
    passes = []
    handle = pipe.unet.register_forward_pre_hook(lambda *_: passes.append(1))
    with pytest.raises(ArgumentError):
        generate(pipe, [hm.Excite("red", **SURE), loss])
    handle.remove()
    assert len(passes) <= 1


def test_the_step_size_is_that_of_the_guides_that_act():
    """A guide that is content moves nothing for another one."""
    pipe = hm.load()
    small = hm.Excite("house", target=0.0, step_size=0.01, iterations=1)
    idle = hm.Inside("red", (0, 0, 64, 128), step_size=0.5, target=1.0)
    plain, *_ = first_inputs(pipe, lambda: generate(pipe, []))
    moved, *_ = first_inputs(pipe, lambda: generate(pipe, [idle, small]))
    assert (moved - plain).square().mean().sqrt() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("name", [None, "joint"])
def test_the_maps_of_tokens_are_exact_under_autocast(name):
    pipe = hm.load(name)
    errors = []

    def compare(event):
        with torch.autocast("cpu", torch.bfloat16):
            maps = event.token_maps(0, [1, 2])
        exact = event.row(0).probabilities([1, 2]).mean(dim=0).mT.reshape(maps.shape)
        errors.append(((maps - exact) / exact).abs().max())

    with hm.observe(pipe, compare):
        pipe(PROMPT, num_inference_steps=1)
    assert max(errors) < 1e-4
