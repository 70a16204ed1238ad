"""The picture at each step: it changes nothing, is each picture's own, and is what it says."""

from collections.abc import Callable
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from families import models
from making import generate_batch, pixels
from PIL import Image

from heedmap.backends.latents import Moment
from heedmap.pipelines.generation import StepRecorder
from heedmap.recording.tracing import StepState

BETAS: dict[str, Any] = {**models.BETAS, "steps_offset": 1}
PROMPTS = ["a red house", "a blue tree"]
MADE: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "sd": (models.sd1, {}),
    "Heun": (lambda: models.sd1(scheduler=diffusers.HeunDiscreteScheduler(**BETAS)), {}),
    "img2img": (
        lambda: models.sd1(diffusers.StableDiffusionImg2ImgPipeline),
        {"image": models.picture(128, 128), "strength": 0.6},
    ),
    "lcm": (models.lcm, {}),
}


@pytest.mark.parametrize("name", MADE)
def test_each_step_has_an_image_and_no_result_changes(name: str):
    make, asked = MADE[name]
    pipe = make()
    asked = {"seeds": [5, 6], "steps": 3, **asked}
    plain = generate_batch(pipe, PROMPTS, keep=(), **asked)
    watched = generate_batch(pipe, PROMPTS, keep={"step"}, **asked)
    for without, run in zip(plain, watched, strict=True):
        assert without.step_pictures is None
        assert without.image.tobytes() == run.image.tobytes()
        steps = run.step_pictures
        assert steps is not None and steps.shows == "prediction"
        assert len(steps.frames) == len(run.maps.recording.timesteps)
        assert max(steps.size) <= 64 and {frame.mode for frame in steps.frames} == {"RGB"}
        w, h = run.image.size
        assert steps.size[0] * h == steps.size[1] * w


def near(frame: Image.Image, image: Image.Image) -> float:
    """The correlation of a step's picture with another."""
    small = image.convert("RGB").resize(frame.size, Image.Resampling.BOX)
    return float(np.corrcoef(pixels(frame).ravel(), pixels(small).ravel())[0, 1])


def test_the_last_step_image_is_nearer_the_result_than_the_first(embedded):
    prompts = ["a red house next to a blue tree", "a yellow boat at night"]
    runs = generate_batch(embedded, prompts, seeds=[7, 5], steps=10, keep={"step"})
    for run, other in zip(runs, reversed(runs), strict=True):
        assert run.step_pictures is not None
        frames = run.step_pictures.frames
        assert near(frames[-1], run.image) > 0.93
        assert near(frames[-1], run.image) > near(frames[0], run.image) + 0.03
        assert near(frames[-1], run.image) > near(frames[-1], other.image) + 0.2


# --- on its own --------------------------------------------------------------------------------


def record(predictions: list[torch.Tensor | None], latents: list[torch.Tensor]) -> StepRecorder:
    watch = StepRecorder()
    for step, (guess, noisy) in enumerate(zip(predictions, latents, strict=True)):
        watch.record(StepState(Moment(step, len(latents), True), noisy, guess, {}))
    return watch


def chance(seed: int, h: int = 8, w: int = 12) -> torch.Tensor:
    return torch.randn(1, 4, h, w, generator=torch.Generator().manual_seed(seed))


PICTURE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 96, 3), dtype=np.uint8))


def test_without_predictions_step_images_are_named_latents():
    latents = [chance(n) for n in range(3)]
    (steps,) = record([None] * 3, latents).images([PICTURE], 3)
    assert steps is not None and steps.shows == "latents" and steps.size == (96, 64)
    (other,) = record(list(reversed(latents)), latents).images([PICTURE], 3)
    assert other is not None and other.shows == "prediction"
    assert other.frames[0].tobytes() == steps.frames[2].tobytes()
    (mixed,) = record([None, *latents[1:]], latents).images([PICTURE], 3)
    assert mixed is not None and mixed.shows == "latents"
