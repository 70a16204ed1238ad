"""How noisy latents are at each step: beside what schedulers themselves take the noise off by."""

from typing import Any

import diffusers
import pytest
import torch
from families.checking import assert_restored, state_of
from making import random_pipeline

from heedmap.backends.noise_levels import noise_levels
from heedmap.errors import ModelError

# Two of diffusers' schedulers compute with numpy what torch holds, as numpy 2 likes no more.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
CLEAN = torch.randn(1, 4, 8, 6, generator=torch.Generator().manual_seed(1)) * 0.8
NOISE = torch.randn(1, 4, 8, 6, generator=torch.Generator().manual_seed(2))
BETAS: dict[str, Any] = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000, "prediction_type": "epsilon",
}  # fmt: skip
SCHEDULERS: list[tuple[str, dict[str, Any]]] = [
    ("DDIMScheduler", {"clip_sample": False, "timestep_spacing": "trailing"}),
    ("PNDMScheduler", {"skip_prk_steps": True}),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True}),
    ("HeunDiscreteScheduler", {}),
    ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    ("UniPCMultistepScheduler", {}),
]


def pipe_with(name: str, config: dict[str, Any]) -> Any:
    pipe = random_pipeline()
    pipe.scheduler = getattr(diffusers, name).from_config({**BETAS, **config})
    return pipe


@pytest.mark.parametrize(("name", "config"), SCHEDULERS)
@pytest.mark.parametrize("steps", [1, 8])  # of which the training has a multiple
def test_a_step_with_the_true_noise_leads_to_the_next_level(name, config, steps):
    """With the true noise for the model's output each scheduler comes to that level."""
    pipe = pipe_with(name, config)
    levels, _ = noise_levels(pipe, steps)
    assert len(levels) == steps + 1 and levels[-1] == (1.0, 0.0)
    scheduler = pipe.scheduler
    order = getattr(pipe.scheduler, "order", 1)
    scheduler.set_timesteps(steps)
    wanted = [a * CLEAN + s * NOISE for a, s in levels]
    x = wanted[0]
    step = 0
    calls = len(scheduler.timesteps)
    for call, t in enumerate(scheduler.timesteps):
        scheduler.scale_model_input(x, t)
        x = scheduler.step(NOISE, t, x).prev_sample
        # The last call of a step: each, each second one, and all but the first of PNDM's.
        within = call % 2 == 0 and call + 1 < calls if order > 1 else False
        within = within or (name == "PNDMScheduler" and call == 0 and calls > 1)
        if within:
            continue
        step += 1
        # Some end at the least noise of the training, 3 % of it, and not at none.
        bound = 3e-3 if step < steps else 0.04 * float(NOISE.abs().max())
        assert (x - wanted[step]).abs().max() < bound, (call, step)
    assert step == steps


@pytest.mark.parametrize(("name", "config"), SCHEDULERS)
def test_initial_noise_is_as_strong_as_the_pipelines(name, config):
    """What it is given is multiplied by its scheduler's own number: as its own noise is."""
    pipe = pipe_with(name, config)
    _, scale = noise_levels(pipe, 4)
    pipe.scheduler.set_timesteps(4)
    assert scale == pytest.approx(float(pipe.scheduler.init_noise_sigma))


def test_a_schedule_with_zero_snr_starts_at_pure_noise():
    pipe = pipe_with(
        "DDIMScheduler", {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    )
    assert noise_levels(pipe, 3)[0][0] == (0.0, 1.0)


def test_the_scheduler_is_left_as_it_was():
    pipe = pipe_with("DPMSolverMultistepScheduler", {})
    pipe("a house", num_inference_steps=3)
    before = state_of(pipe)
    scheduler = pipe.scheduler
    timesteps = scheduler.timesteps.clone()
    sigmas = scheduler.sigmas.clone()
    noise_levels(pipe, 7)
    assert_restored(pipe, before)
    assert pipe.scheduler is scheduler
    assert torch.equal(scheduler.timesteps, timesteps) and torch.equal(scheduler.sigmas, sigmas)


@pytest.mark.parametrize("name", ["FlowMatchEulerDiscreteScheduler", "RePaintScheduler"])
def test_a_scheduler_without_noise_levels_is_refused(name):
    pipe = random_pipeline()
    pipe.scheduler = getattr(diffusers, name)()
    with pytest.raises(ModelError, match="noise"):
        noise_levels(pipe, 3)


def test_levels_follow_the_steps_where_add_noise_differs():
    """SASolver's own add_noise knows the steps of the training alone; the model sees its sigmas."""
    pipe = pipe_with("SASolverScheduler", {"use_karras_sigmas": True})
    pipe.scheduler.set_timesteps(30)
    held = pipe.scheduler.sigmas.double()[:-1]
    levels = noise_levels(pipe, 30)[0][:-1]
    for (a, s), sigma in zip(levels, held.tolist(), strict=True):
        assert s / a == pytest.approx(sigma, rel=1e-5) and a * a + s * s == pytest.approx(1)
