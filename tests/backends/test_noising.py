"""A picture in the place of what a model draws: held against diffusers' own way of adding noise."""

from fractions import Fraction
from math import floor

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    HeunDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
)
from making import random_pipeline

from heedmap.backends.image_schedulers import showing
from heedmap.errors import ModelError

LATENTS = torch.randn((1, 4, 8, 8), generator=torch.Generator().manual_seed(5))


def run_schedule(pipe, count: int, seed: int = 3) -> tuple[list[float], list[torch.Tensor]]:
    """The timesteps and what a pipeline's model would be given at each, and what is left."""
    with showing(pipe, LATENTS, torch.Generator().manual_seed(seed), count) as sample:
        scheduler = pipe.scheduler
        scheduler.set_timesteps(count, device="cpu")
        seen = []
        for t in scheduler.timesteps:
            seen.append(scheduler.scale_model_input(sample, t))
            sample = scheduler.step(torch.full((1, 4, 8, 8), 7.0), t, sample).prev_sample
        return scheduler.timesteps.tolist(), [*seen, sample]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (DDIMScheduler, 1),
        (PNDMScheduler, 2),
        (EulerDiscreteScheduler, 3),
        (HeunDiscreteScheduler, 10),
    ],
)
def test_the_noise_is_that_of_the_training(kind, count):
    pipe = random_pipeline()
    betas = {"beta_start": 0.0008, "beta_end": 0.013, "beta_schedule": "scaled_linear"}
    own = pipe.scheduler = kind(**betas)
    timesteps, seen = run_schedule(pipe, count)
    assert pipe.scheduler is own
    assert timesteps == [floor(1000 * (1 - Fraction(2 * i + 1, 2 * count))) for i in range(count)]
    oracle = DDPMScheduler(**betas)
    noise = torch.Generator().manual_seed(3)
    for t, given in zip(timesteps, seen[:-1], strict=True):
        fresh = torch.randn(LATENTS.shape, generator=noise)
        expected = oracle.add_noise(LATENTS, fresh, torch.tensor([t]))
        assert torch.allclose(given, expected, atol=1e-6)
    assert torch.equal(seen[-1], LATENTS)


@pytest.mark.parametrize(
    "own",
    [
        LCMScheduler(),
        DDIMScheduler.from_config(LCMScheduler().config),
    ],
)
def test_default_betas_of_the_scheduler_are_kept(own):
    """Not those that the class which shows the picture has."""
    pipe = random_pipeline()
    pipe.scheduler = own
    with showing(pipe, LATENTS, torch.Generator().manual_seed(3), 5):
        torch.testing.assert_close(pipe.scheduler.alphas_cumprod, own.alphas_cumprod)
        assert pipe.scheduler.config.prediction_type == own.config.prediction_type


def test_no_part_of_the_schedule_is_lost():
    pipe = random_pipeline()
    pipe.scheduler = DDIMScheduler(rescale_betas_zero_snr=True, prediction_type="v_prediction")
    _, (first, *_) = run_schedule(pipe, 1000)
    noise = torch.randn(LATENTS.shape, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(first, noise, atol=1e-6)  # nothing of the picture is left there


def test_noise_is_added_to_half_types_and_batches():
    pipe = random_pipeline()
    with showing(pipe, LATENTS.half(), torch.Generator().manual_seed(3), 2) as first:
        pipe.scheduler.set_timesteps(2)
        t = pipe.scheduler.timesteps[0]
        given = pipe.scheduler.scale_model_input(first.half().expand(2, -1, -1, -1), t)
        stepped = pipe.scheduler.step(given, t, given, return_dict=False)[0]
    oracle = DDPMScheduler.from_config(pipe.scheduler.config)
    fresh = torch.randn(LATENTS.shape, generator=torch.Generator().manual_seed(3))
    expected = oracle.add_noise(LATENTS.half().float(), fresh, torch.tensor([int(t)])).half()
    assert given.dtype == stepped.dtype == torch.float16
    assert torch.equal(given, expected.expand(2, -1, -1, -1)) and stepped.shape == given.shape


@pytest.mark.parametrize(
    "scheduler",
    [
        FlowMatchEulerDiscreteScheduler(),
        DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True),
    ],
)
def test_noise_of_another_shape_is_refused(scheduler):
    pipe = random_pipeline()
    pipe.scheduler = scheduler
    with (
        pytest.raises(ModelError, match="betas"),
        showing(pipe, LATENTS, torch.Generator().manual_seed(0), 1),
    ):
        pass
    assert pipe.scheduler is scheduler
