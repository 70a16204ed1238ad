"""One map a step, whatever a scheduler makes of a step."""

import inspect
import warnings
from collections import Counter

import diffusers
import numpy as np
import pytest
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    FlowMatchLCMScheduler,
    HeunDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
    StableDiffusionImg2ImgPipeline,
)

import heedmap as hm
from families.checking import check, paint
from families.models import OneLayer, picture
from heedmap.recording.tracing import trace

PROMPT = "a red house"
STEPS = 4
EACH = [[0], [1], [2], [3]]

# Which calls of the UNet make which step.
CASES = {
    # PNDM calls twice before it takes its first step: a guess, and its correction.
    "PNDM": (PNDMScheduler, {"skip_prk_steps": True}, [[0, 1], [2], [3], [4]]),
    "Euler a": (EulerAncestralDiscreteScheduler, {}, EACH),
    "Karras": (DPMSolverMultistepScheduler, {"use_karras_sigmas": True}, EACH),
    # Heun corrects each step by a second call, but the last.
    "Heun": (HeunDiscreteScheduler, {}, [[0, 1], [2, 3], [4, 5], [6]]),
    "LCM": (LCMScheduler, {}, EACH),
}
SMALL = {"height": 64, "width": 64}


@pytest.mark.parametrize("family", ["short", "sigma"])
@pytest.mark.parametrize("name", CASES)
def test_each_scheduler_has_one_map_a_step(load, family, name):
    pipe, (scheduler, config, groups) = load(family), CASES[name]
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config, **config)
    more = SMALL if family == "short" else {**SMALL, "use_resolution_binning": False}
    call = lambda: paint(pipe, PROMPT, steps=STEPS, **more)  # noqa: E731
    recorder = check(pipe, call, [PROMPT], groups=groups)
    timesteps = recorder.recordings[0].timesteps
    assert len(timesteps) == STEPS
    assert list(timesteps) == sorted(set(timesteps), reverse=True)
    assert all(0 <= timestep < 1000 for timestep in timesteps)


def test_image_to_image_begins_in_the_middle_of_the_schedule(load):
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    pipe.scheduler = HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    more = {"image": picture(64, 64), "strength": 0.5, "steps": STEPS}
    check(pipe, lambda: paint(pipe, PROMPT, **more), [PROMPT], groups=[[0, 1], [2]])


def test_custom_timesteps_are_steps(load):
    """`steps` may be a schedule of the user's own."""
    pipe = load("sd1")
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)

    more = {"steps": 3, "timesteps": [900, 500, 100], **SMALL}
    recorder = check(pipe, lambda: paint(pipe, PROMPT, **more), [PROMPT])
    assert recorder.recordings[0].timesteps == (900, 500, 100)


# --- every scheduler, many steps: rounded timesteps repeat ---

SIGMAS = {
    "as it is": {},
    "karras": {"use_karras_sigmas": True},
    "exponential": {"use_exponential_sigmas": True},
    "beta": {"use_beta_sigmas": True},
    "lu": {"use_lu_lambdas": True},
    "third order": {"solver_order": 3},
    "sde": {"algorithm_type": "sde-dpmsolver++"},
    "trailing": {"timestep_spacing": "trailing"},
    "runge-kutta": {"skip_prk_steps": False},
}
DENSE = [
    ("DPMSolverMultistepScheduler", "karras", 45),
    ("UniPCMultistepScheduler", "karras", 45),
    ("HeunDiscreteScheduler", "karras", 50),
    ("PNDMScheduler", "runge-kutta", 100),
    ("PNDMScheduler", "as it is", 50),
]


@pytest.fixture
def counting(load):
    """A pipeline whose UNet is `OneLayer`."""
    pipe = load("least")
    pipe.unet.__class__ = OneLayer
    return pipe


def one_map_a_step(pipe, name, sigmas, steps) -> bool:
    """Whether the scheduler takes these settings; if so, each of its steps has a map of its own."""
    before, passes = pipe.scheduler, []
    config = {key: value for key, value in before.config.items() if key[0] != "_"}
    kind = getattr(diffusers, name)
    if not set(SIGMAS[sigmas]) <= set(inspect.signature(kind.__init__).parameters):
        return False

    def call():
        pipe.scheduler = kind.from_config(config, **SIGMAS[sigmas])
        how = {"height": 32, "width": 32, "guidance_scale": 1.0, "output_type": "latent"}
        with warnings.catch_warnings():  # some schedulers warn of their own arithmetic
            warnings.simplefilter("ignore")
            return paint(pipe, PROMPT, steps=steps, **how)

    hook = pipe.unet.register_forward_pre_hook(lambda *_: passes.append(1))
    try:
        bare = call()
        if not np.isfinite(bare).all():
            return False
    except Exception:  # not for these pipelines, or not for so many steps
        return False
    else:
        hook.remove()
        with trace(pipe, {"step"}) as recorder:
            traced = call()
        assert np.array_equal(bare, traced)
        assert "step" not in vars(pipe.scheduler)
    finally:
        hook.remove()
        pipe.scheduler = before
    recording = recorder.recordings[0]
    steps = min(steps, len(passes))  # a few schedulers leave out steps that would repeat
    assert len(recording.timesteps) == recorder.steps == steps, (name, sigmas, steps)
    assert recording.arrays[0].shape[0] == steps
    return True


@pytest.mark.parametrize(("name", "sigmas", "steps"), DENSE)
def test_repeated_timesteps_are_steps_of_their_own(counting, name, sigmas, steps):
    assert one_map_a_step(counting, name, sigmas, steps)


EVERY = sorted(
    name
    for name in dir(diffusers)
    # A class whose package is not installed is there by its name alone.
    if name.endswith("Scheduler") and ".schedulers." in getattr(diffusers, name).__module__
)
MANY = 11


@pytest.mark.slow
def test_every_scheduler_of_diffusers_is_recorded_or_refused(counting):
    """Each with each of its settings, in four steps and in 11."""
    served = Counter()
    for name in EVERY:
        taken = [sigmas for sigmas in SIGMAS if one_map_a_step(counting, name, sigmas, STEPS)]
        served[STEPS] += bool(taken)
        served[MANY] += any([one_map_a_step(counting, name, sigmas, MANY) for sigmas in taken])
    assert min(served[STEPS], served[MANY]) >= 20, served


@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_noise_of_each_step_is_the_seeds_where_the_pipeline_passes_no_generator(load, family):
    pipe, call = (
        load(family),
        {"height": 64, "width": 64, "num_inference_steps": 3, "max_sequence_length": 12},
    )
    pipe.scheduler = FlowMatchLCMScheduler.from_config(pipe.scheduler.config)
    runs = [hm.generate(pipe, PROMPT, seed=3, **call) for _ in range(2)]
    again = hm.repeat(pipe, runs[0]).same
    generator = torch.Generator().manual_seed(3)

    class Seeded(FlowMatchLCMScheduler):
        def step(self, *args, **kwargs):
            return super().step(*args, generator=generator, **kwargs)

    pipe.scheduler = Seeded.from_config(pipe.scheduler.config)
    image = np.asarray(pipe(PROMPT, generator=generator, **call).images[0])
    assert again and all(np.array_equal(image, run.image) for run in runs)
