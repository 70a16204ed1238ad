"""Edits of a picture that one has: the source is that picture, whatever draws."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers import StableDiffusionImg2ImgPipeline
from families import models
from families.checking import assert_restored, state_of
from making import random_pipeline
from PIL import Image

import heedmap
from heedmap import EditResult, edit, repeat
from heedmap.errors import ArgumentError, ModelError

# An autoencoder of random weights gives no picture back well.
pytestmark = pytest.mark.filterwarnings("ignore:the (model.s autoencoder|image also changed)")
SOURCE = "a red house"
TARGET = "a blue house"
BETAS: dict[str, Any] = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
}


def paint(width: int = 128, height: int = 128, seed: int = 0) -> Image.Image:
    """Soft colours, which are a picture to an autoencoder of random weights too."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


@torch.no_grad()
def reconstruct(pipe: Any, picture: Image.Image) -> np.ndarray:
    """What the autoencoder alone gives back, by diffusers' own means, uint8 (H, W, 3)."""
    pixels = pipe.image_processor.preprocess(picture)
    latents = pipe.vae.encode(pixels).latent_dist.mode()
    made = pipe.vae.decode(latents).sample
    return np.asarray(pipe.image_processor.postprocess(made)[0]).astype(int)


def largest_difference(image: Image.Image, other: np.ndarray) -> int:
    return int(np.abs(np.asarray(image).astype(int) - other).max())


@pytest.fixture(scope="module")
def pipe():
    """One for all: whatever is edited leaves it as it was."""
    return random_pipeline()


# --- the source ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:edits of your own image")
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("PNDMScheduler", 4),
        ("DPMSolverMultistepScheduler", 4),
    ],
)
def test_the_source_is_the_autoencoders_reconstruction(pipe, name, steps):
    own = pipe.scheduler
    picture = paint()
    config = {**BETAS, "prediction_type": "v_prediction"}
    pipe.scheduler = getattr(diffusers, name).from_config(config)
    try:
        pair = edit(pipe, SOURCE, TARGET, image=picture, seed=3, steps=steps, guidance=7.5)
    finally:
        pipe.scheduler = own
    wanted = reconstruct(pipe, picture)
    assert largest_difference(pair.source.image, wanted) <= 1
    back = pair.report.reconstruction
    off = np.asarray(pair.source.image) / 255 - np.asarray(picture) / 255
    assert back is not None and back.share == 1
    assert back.mse == pytest.approx(float((off**2).mean()))
    for run in (pair.source, pair.edited):
        about = run.settings.input_image
        assert about is not None and about.size == (128, 128) and run.settings.size == (128, 128)
        assert np.array_equal(np.asarray(run.input_image), np.asarray(picture))


@torch.no_grad()
def follow_differences(
    pipe: Any, picture: Image.Image, prompts: list[str], seed: int, steps: int, each: int = 1
) -> Any:
    """The definition, with the model and the scheduler alone: no attention is taken over.

    Of each row: x ← step(x) + (picture with the next noise) − step(source), where a step is so many
    calls of the scheduler, and the last but one; float64 but for the model.
    """
    scheduler = deepcopy(pipe.scheduler)
    scheduler.set_timesteps(steps)
    states = pipe.encode_prompt(prompts, "cpu", 1, False)[0]
    pixels = pipe.image_processor.preprocess(picture)
    clean = pipe.vae.encode(pixels).latent_dist.mode().double() * pipe.vae.config.scaling_factor
    chance = torch.Generator().manual_seed(seed)
    noises = [torch.randn(clean.shape, generator=chance).double() for _ in range(steps)]

    def at(step: int) -> torch.Tensor:
        if step == steps:
            return clean
        if hasattr(scheduler, "sigmas"):
            return clean + float(scheduler.sigmas[each * step]) * noises[step]
        kept = scheduler.alphas_cumprod[scheduler.timesteps[step]].double()
        return kept**0.5 * clean + (1 - kept) ** 0.5 * noises[step]

    x = at(0).repeat(len(prompts), 1, 1, 1)
    for call, t in enumerate(scheduler.timesteps):
        given = scheduler.scale_model_input(x, t).float()
        output = pipe.unet(given, t, encoder_hidden_states=states).sample.double()
        x = scheduler.step(output, t, x).prev_sample
        if (call + 1) % each == 0 or call + 1 == len(scheduler.timesteps):
            x = x + at(call // each + 1) - x[:1]
    return x


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "steps", "each"),
    [
        ("DDIMScheduler", 4, 1),
        ("EulerDiscreteScheduler", 3, 1),
        ("HeunDiscreteScheduler", 3, 2),
    ],
)
def test_edits_follow_the_difference_of_predictions(pipe, name, steps, each):
    """From step to step: where a scheduler calls the model twice a step, not in between."""
    prompts = [SOURCE, TARGET, "a red sea"]
    seen = []
    own = pipe.scheduler
    if name != type(own).__name__:
        config = {**BETAS, "prediction_type": "epsilon"}
        pipe.scheduler = getattr(diffusers, name).from_config(config)
    try:
        wanted = follow_differences(pipe, paint(), prompts, 3, steps, each)
        edit(
            pipe,
            SOURCE,
            prompts[1:],
            image=paint(),
            seed=3,
            steps=steps,
            guidance=1.0,
            cross_replace=0.0,
            self_replace=0.0,
            preview=seen.append,
        )
    finally:
        pipe.scheduler = own
    assert torch.allclose(seen[-1].double(), wanted, atol=1e-4)
    assert (wanted[1] - wanted[2]).abs().max() > 1e-3


def test_outside_a_blend_the_source_stays(embedded):
    picture = paint()
    how: dict[str, Any] = {"only": "house->tree", "seed": 3, "steps": 6}
    pair = edit(embedded, "a red house", "a red tree", image=picture, **how)
    assert pair.blend is not None and 0 < pair.blend.mean() < 1
    assert largest_difference(pair.source.image, reconstruct(embedded, picture)) <= 1
    far = np.asarray(Image.fromarray(pair.blend).resize((16, 16), Image.Resampling.BOX)) == 0
    off = np.abs(np.asarray(pair.source.image) / 255 - np.asarray(pair.edited.image) / 255)
    cells = off.reshape(16, 8, 16, 8, 3).mean(axis=(1, 3, 4))
    assert cells[far].mean() < 0.4 * cells[~far].mean()  # the decoder spreads what changes


def test_an_img2img_pipeline_gets_the_image_as_its_argument():
    made = StableDiffusionImg2ImgPipeline(
        **random_pipeline().components, requires_safety_checker=False
    )
    made.set_progress_bar_config(disable=True)
    pair = edit(made, SOURCE, TARGET, image=paint(), strength=0.5, seed=3, steps=4)
    assert pair.source.settings.input_image is None and pair.source.input_image is None
    assert "image" in pair.source.settings.arguments


# --- saved, and drawn again -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(pipe) -> EditResult:
    return edit(pipe, SOURCE, TARGET, image=paint(200, 100), seed=3, steps=2)


def test_an_edit_of_an_image_is_saved_loaded_and_repeated(pipe, pair: EditResult, tmp_path: Path):
    folder = pair.save(tmp_path / "x", overlays=False)
    read = EditResult.load(folder)
    assert read.report == pair.report and read.source.settings == pair.source.settings
    assert np.array_equal(np.asarray(read.edited.input_image), np.asarray(pair.source.input_image))
    for name in (folder, folder / "source", folder / "edited"):
        again = repeat(pipe, name)
        assert again.same and not again.changed, name
    with Image.open(folder / "edited" / "image.png") as image:
        assert "parameters" not in image.info  # no settings alone make it


# --- the pipeline, and what is refused ------------------------------------------------------------


def test_the_pipeline_is_restored(pipe):
    edit(pipe, SOURCE, TARGET, seed=3, steps=1)
    before = state_of(pipe)
    own = pipe.scheduler
    with pytest.raises(KeyboardInterrupt):
        edit(pipe, SOURCE, TARGET, image=paint(), seed=3, steps=4, progress=_stop)
    assert_restored(pipe, before)
    assert pipe.scheduler is own


def _stop(done: int, of: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("given", [{"image": 5}, {"timesteps": [9, 5]}])
def test_options_that_contradict_an_image_are_refused(pipe, given):
    with pytest.raises(ArgumentError, match=r"image|timesteps"):
        edit(pipe, SOURCE, TARGET, seed=3, steps=2, **{"image": paint(), **given})


def test_models_that_cannot_edit_an_image_are_refused():
    pipe = models.lcm()
    with pytest.raises(ModelError, match="latents"):
        edit(pipe, SOURCE, TARGET, image=paint(), seed=3, steps=2)


def test_a_poor_reconstruction_gives_a_warning(pipe):
    pixels = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    noise = Image.fromarray(pixels)
    with pytest.warns(heedmap.HeedmapWarning, match="PSNR"):
        pair = edit(pipe, SOURCE, TARGET, image=noise, seed=3, steps=2)
    assert pair.report.notes is not None and any("dB" in note for note in pair.report.notes)
