"""A picture taken back to noise: beside a model that is always right, and the equation itself."""

from copy import deepcopy
from typing import Any

import diffusers
import pytest
import torch
from making import random_pipeline, state_of

from heedmap.errors import ModelError
from heedmap.wiring.inversion import inverting, levels

# Two of diffusers' schedulers compute with numpy what torch holds, as numpy 2 likes no more.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
PICTURE = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(1)) * 0.8
NOISE = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(2))
BETAS: dict[str, Any] = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
}  # fmt: skip
SCHEDULERS = [
    ("DDIMScheduler", {"clip_sample": False}),
    ("DDIMScheduler", {"clip_sample": False, "timestep_spacing": "trailing"}),
    ("PNDMScheduler", {"skip_prk_steps": True}),
    ("DDPMScheduler", {"clip_sample": False}),
    ("EulerDiscreteScheduler", {}),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True}),
    ("EulerAncestralDiscreteScheduler", {}),
    ("HeunDiscreteScheduler", {}),
    ("KDPM2DiscreteScheduler", {}),
    ("DPMSolverMultistepScheduler", {}),
    ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    ("DPMSolverSinglestepScheduler", {}),
    ("UniPCMultistepScheduler", {}),
    ("DEISMultistepScheduler", {}),
    ("LCMScheduler", {}),
]


def made(name: str, config: dict[str, Any], kind: str = "epsilon") -> Any:
    return getattr(diffusers, name).from_config({**BETAS, **config, "prediction_type": kind})


def answering(pipe: Any, answer: Any) -> list[float]:
    """Let a pipeline's model answer by latents and timestep; the timesteps that it was told."""
    asked: list[float] = []

    def forward(sample: torch.Tensor, timestep: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(float(timestep))
        return (answer(sample, float(timestep)),)

    pipe.unet.forward = forward
    return asked


def gone_back(pipe: Any, steps: int, told: Any = None) -> Any:
    with inverting(pipe, PICTURE, told) as way:
        pipe(
            "a house",
            num_inference_steps=steps,
            guidance_scale=1.0,
            latents=PICTURE,
            output_type="latent",
        )
    return way


@pytest.mark.parametrize(("name", "config"), SCHEDULERS)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_model_that_knows_the_noise_finds_the_way_of_the_scheduler(name, config, steps):
    pipe = random_pipeline()
    pipe.scheduler = made(name, config)
    answering(pipe, lambda x, t: NOISE)
    way = gone_back(pipe, steps)
    assert len(way.latents) == steps + 1 and torch.equal(way.after(steps), PICTURE)
    fresh = made(name, config)
    fresh.set_timesteps(steps)
    order = getattr(fresh, "order", 1)
    # PNDM asks twice for its first step where it has more than one.
    firsts = (
        [0, *range(2, steps + 1)]
        if name == "PNDMScheduler" and steps > 1
        else [order * step for step in range(steps)]
    )
    for step, call in enumerate(firsts):
        if hasattr(fresh, "set_begin_index"):
            fresh.set_begin_index(call)
        wanted = fresh.add_noise(PICTURE, NOISE, fresh.timesteps[call][None])
        assert torch.allclose(way.after(step), wanted, atol=2e-4, rtol=1e-4), step
    assert way.scale == pytest.approx(float(fresh.init_noise_sigma))


@pytest.mark.parametrize(
    ("name", "config"), [one for one in SCHEDULERS if one[0] not in ("LCMScheduler",)]
)
def test_from_there_a_pipeline_draws_the_picture(name, config):
    """Where the model is always right no step needs to be set back, whichever scheduler steps."""
    if "sde" in str(config) or name in ("DDPMScheduler", "EulerAncestralDiscreteScheduler"):
        pytest.skip("adds noise of its own")
    pipe = random_pipeline()
    pipe.scheduler = made(name, config)
    answering(pipe, lambda x, t: NOISE)
    way = gone_back(pipe, 9)
    drawn = pipe(
        "a house",
        num_inference_steps=9,
        guidance_scale=1.0,
        latents=way.first,
        output_type="latent",
    ).images
    # Some end at the least noise of the training, 3 % of it, and not at none.
    ends = name in ("PNDMScheduler", "DEISMultistepScheduler") or "timestep_spacing" in config
    assert (drawn - PICTURE).abs().max() < (0.04 * NOISE.abs().max() if ends else 2e-3)


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
def test_each_step_is_that_of_the_paper(kind):
    """DDIM's equation 12 without noise, solved for the noisier side, in float64."""
    pipe, steps = random_pipeline(), 4
    pipe.scheduler = made(
        "DDIMScheduler", {"clip_sample": False, "timestep_spacing": "trailing"}, kind
    )
    asked = answering(pipe, lambda x, t: torch.tanh(1.3 * x.flip(-1)) + t / 2000)
    way = gone_back(pipe, steps)
    kept = pipe.scheduler.alphas_cumprod.double()
    times = [999, 749, 499, 249]
    assert asked == [249, 249, 499, 749]  # the model is told of the latents as they are
    x, before = PICTURE.double(), 1.0
    for number, t in enumerate(reversed(times)):
        out = torch.tanh(1.3 * x.flip(-1)) + asked[number] / 2000
        a, s = before**0.5, (1 - before) ** 0.5
        if kind == "epsilon":
            clean, noise = (x - s * out) / a, out
        elif kind == "v_prediction":
            clean, noise = a * x - s * out, s * x + a * out
        else:
            at = kept[t] if number == 0 else before
            clean, noise = out, (x - at**0.5 * out) / (1 - at) ** 0.5
        x = kept[t] ** 0.5 * clean + (1 - kept[t]) ** 0.5 * noise
        before = float(kept[t])
        assert torch.allclose(way.after(steps - 1 - number).double(), x, atol=1e-4), number


def test_pure_noise_is_no_trouble():
    pipe = random_pipeline()
    pipe.scheduler = made(
        "DDIMScheduler",
        {"clip_sample": False, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"},
        "v_prediction",
    )
    other = deepcopy(pipe.scheduler)
    other.set_timesteps(3)
    assert levels(other)[0].a == 0.0 and levels(other)[0].s == 1.0
    way = gone_back(pipe, 3)
    assert all(bool(one.isfinite().all()) for one in way.latents)


def test_progress_and_the_scheduler_comes_back():
    pipe, seen = random_pipeline(), []
    pipe("a house", num_inference_steps=1)
    own, before = pipe.scheduler, state_of(pipe)
    gone_back(pipe, 3, lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert pipe.scheduler is own and state_of(pipe) == before
    with pytest.raises(KeyError), inverting(pipe, PICTURE):
        raise KeyError
    assert pipe.scheduler is own and state_of(pipe) == before


@pytest.mark.parametrize(
    "scheduler",
    [
        diffusers.EDMEulerScheduler(),
        diffusers.FlowMatchEulerDiscreteScheduler(),
        diffusers.DPMSolverMultistepScheduler(use_flow_sigmas=True, prediction_type="epsilon"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_scheduler_that_does_not_say_its_noise_is_refused(scheduler):
    pipe = random_pipeline()
    pipe.scheduler = scheduler
    with pytest.raises(ModelError, match="so no picture can be taken back to noise: expected"):
        gone_back(pipe, 2)
    assert pipe.scheduler is scheduler
