"""What a model foretells at a step: held against what schedulers say themselves, and the truth."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch

from heedmap.backends.noise_levels import predicted

BETAS: dict[str, Any] = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
}
CLEAN = torch.randn(2, 4, 5, 3, generator=torch.Generator().manual_seed(1)) * 0.8


def make_scheduler(name: str, **config: Any) -> Any:
    return getattr(diffusers, name).from_config({**BETAS, **config})


def walk(scheduler: Any, steps: int = 6) -> list[tuple[Any, torch.Tensor, Any]]:
    """(the prediction, and that of the scheduler itself) at each call."""
    chance = torch.Generator().manual_seed(2)
    scheduler.set_timesteps(steps)
    x = torch.randn(CLEAN.shape, generator=chance) * scheduler.init_noise_sigma
    found = []
    for t in scheduler.timesteps:
        output = torch.randn(CLEAN.shape, generator=chance)
        prediction = predicted(scheduler, output, t, x)
        made = scheduler.step(output, t, x)
        found.append((prediction, made.pred_original_sample))
        x = made.prev_sample
    return found


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("DDIMScheduler", {"clip_sample": False}),
        ("EulerDiscreteScheduler", {}),
        ("HeunDiscreteScheduler", {}),
    ],
)
def test_the_predicted_image_equals_the_schedulers_own(
    name: str, config: dict[str, Any], kind: str
):
    scheduler = make_scheduler(name, prediction_type=kind, **config)
    found = walk(scheduler)
    first = [0] if name.startswith("Heun") else []  # its second calls are between two steps
    for number, (prediction, own) in enumerate(found):
        if not first or number % 2 == 0:
            assert torch.allclose(prediction, own, atol=1e-3, rtol=1e-4), (name, number)


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # diffusers' own
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
        ("PNDMScheduler", {"skip_prk_steps": True}),
        ("KDPM2DiscreteScheduler", {}),
        ("LCMScheduler", {}),
    ],
)
def test_with_the_true_noise_the_prediction_is_the_image(name: str, config: dict[str, Any]):
    """At the first call of each step: noise is mixed in here by its definition alone."""
    scheduler = make_scheduler(name, prediction_type="epsilon", **config)
    scheduler.set_timesteps(6)
    noise = torch.randn(CLEAN.shape, generator=torch.Generator().manual_seed(3))
    last = None
    for number, t in enumerate(scheduler.timesteps):
        if "sigmas" in vars(scheduler):
            sigma = float(scheduler.sigmas[number])
            scaled = float(scheduler.init_noise_sigma) > 1.1
            a = 1.0 if scaled else (1 / (1 + sigma**2)) ** 0.5
            s = sigma * a
        else:
            a = float(scheduler.alphas_cumprod[int(t)]) ** 0.5
            s = (1 - a * a) ** 0.5
        x = a * CLEAN + s * noise
        if s and not (name.startswith("KDPM2") and number % 2):
            prediction = predicted(scheduler, model_output=noise, timestep=t, sample=x)
            assert prediction is not None
            assert torch.allclose(prediction, CLEAN, atol=2e-3), (name, number)
            last = prediction
        scheduler.scale_model_input(x, t)  # else some warn
        scheduler.step(noise, t, x)
    assert last is not None


def test_a_prediction_of_the_image_is_used_without_its_variance():
    scheduler = make_scheduler("DDIMScheduler", prediction_type="sample")
    scheduler.set_timesteps(4)
    output = torch.cat([CLEAN, CLEAN * 9], dim=1)  # the second half is a variance
    prediction = predicted(scheduler, output, scheduler.timesteps[0], torch.zeros_like(CLEAN))
    assert prediction is not None and torch.equal(prediction, CLEAN)


def test_half_precision_is_computed_in_float32():
    scheduler = make_scheduler("DDIMScheduler", prediction_type="v_prediction")
    scheduler.set_timesteps(4)
    prediction = predicted(scheduler, CLEAN.half(), scheduler.timesteps[0], CLEAN.half())
    assert prediction is not None and prediction.dtype == torch.float32


@pytest.mark.parametrize(
    "scheduler",
    [
        diffusers.EDMEulerScheduler(),  # prepares what a model is given
        diffusers.FlowMatchEulerDiscreteScheduler(),
        SimpleNamespace(config=SimpleNamespace(prediction_type="epsilon")),
    ],
)
def test_an_unknown_prediction_type_gives_no_prediction(scheduler: Any):
    assert predicted(scheduler, CLEAN, 5, CLEAN) is None


def test_the_scheduler_is_unchanged():
    """Also where its tables are of another kind than what is asked of it."""
    scheduler = make_scheduler("DDIMScheduler", prediction_type="epsilon")
    scheduler.set_timesteps(5)
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.double()
    for t in scheduler.timesteps[:2]:
        before = deepcopy(vars(scheduler))
        held = dict(vars(scheduler))
        predicted(scheduler, CLEAN, t, CLEAN)
        assert vars(scheduler).keys() == before.keys()
        for key, value in vars(scheduler).items():
            assert value is held[key], key
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, before[key]), key
        scheduler.step(CLEAN, t, CLEAN)
