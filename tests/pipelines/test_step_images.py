"""The picture at each step: it changes nothing, is each picture's own, and is what it says."""

from collections.abc import Callable
from typing import Any

import diffusers
import numpy as np
import pytest
from families import models
from making import generate_batch, pixels
from PIL import Image

BETAS: dict[str, Any] = {**models.BETAS, "steps_offset": 1}
PROMPTS = ["a red house", "a blue tree"]
PIPELINES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "sd": (models.sd1, {}),
    "Heun": (lambda: models.sd1(scheduler=diffusers.HeunDiscreteScheduler(**BETAS)), {}),
    "img2img": (
        lambda: models.sd1(diffusers.StableDiffusionImg2ImgPipeline),
        {"image": models.picture(128, 128), "strength": 0.6},
    ),
    "lcm": (models.lcm, {}),
    "EDM": (lambda: models.sd1(scheduler=diffusers.EDMEulerScheduler()), {}),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_each_step_has_an_image_and_no_result_changes(name: str):
    make, asked = PIPELINES[name]
    pipe = make()
    asked = {"seeds": [5, 6], "steps": 3, **asked}
    plain = generate_batch(pipe, PROMPTS, keep=(), **asked)
    watched = generate_batch(pipe, PROMPTS, keep={"step"}, **asked)
    for without, run in zip(plain, watched, strict=True):
        assert without.step_pictures is None
        assert without.image.tobytes() == run.image.tobytes()
        steps = run.step_pictures
        assert steps is not None and steps.shows == ("latents" if name == "EDM" else "prediction")
        assert len(steps.frames) == len(run.maps.recording.timesteps)
        assert max(steps.size) <= 64 and {frame.mode for frame in steps.frames} == {"RGB"}
        w, h = run.image.size
        assert steps.size[0] * h == steps.size[1] * w


def correlate(frame: Image.Image, image: Image.Image) -> float:
    """The correlation of a step's picture with another."""
    small = image.convert("RGB").resize(frame.size, Image.Resampling.BOX)
    return float(np.corrcoef(pixels(frame).ravel(), pixels(small).ravel())[0, 1])


def test_the_last_step_image_is_nearer_the_result_than_the_first(embedded):
    prompts = ["a red house next to a blue tree", "a yellow boat at night"]
    runs = generate_batch(embedded, prompts, seeds=[7, 5], steps=10, keep={"step"})
    for run, other in zip(runs, reversed(runs), strict=True):
        assert run.step_pictures is not None
        frames = run.step_pictures.frames
        assert correlate(frames[-1], run.image) > 0.93
        assert correlate(frames[-1], run.image) > correlate(frames[0], run.image) + 0.03
        assert correlate(frames[-1], run.image) > correlate(frames[-1], other.image) + 0.2
