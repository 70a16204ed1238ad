"""One map a step, whatever a scheduler makes of a step."""

import pytest
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    HeunDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
    StableDiffusionImg2ImgPipeline,
    UniPCMultistepScheduler,
)

from families.checking import check, paint
from families.models import picture

PROMPT = "a red house"
STEPS = 4
EACH = [[0], [1], [2], [3]]

# Which calls of the UNet make which step.
CASES = [
    pytest.param(DDIMScheduler, {}, EACH, id="DDIM"),
    # PNDM calls twice before it takes its first step: a guess, and its correction.
    pytest.param(PNDMScheduler, {"skip_prk_steps": True}, [[0, 1], [2], [3], [4]], id="PNDM"),
    pytest.param(EulerAncestralDiscreteScheduler, {}, EACH, id="Euler a"),
    pytest.param(DPMSolverMultistepScheduler, {}, EACH, id="DPM++ 2M"),
    pytest.param(DPMSolverMultistepScheduler, {"use_karras_sigmas": True}, EACH, id="Karras"),
    pytest.param(UniPCMultistepScheduler, {}, EACH, id="UniPC"),
    # Heun corrects each step by a second call, but the last.
    pytest.param(HeunDiscreteScheduler, {}, [[0, 1], [2, 3], [4, 5], [6]], id="Heun"),
    pytest.param(LCMScheduler, {}, EACH, id="LCM"),
]


@pytest.mark.parametrize(("scheduler", "config", "groups"), CASES)
def test_scheduler(load, scheduler, config, groups):
    pipe = load("sd1")
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config, **config)
    recorder = check(pipe, lambda: paint(pipe, PROMPT, steps=STEPS), [PROMPT], groups=groups)
    timesteps = recorder.recordings[0].timesteps
    assert len(timesteps) == STEPS
    assert list(timesteps) == sorted(set(timesteps), reverse=True)
    assert all(0 <= timestep < 1000 for timestep in timesteps)


@pytest.mark.parametrize(
    ("scheduler", "groups"),
    [
        (EulerAncestralDiscreteScheduler, [[0], [1]]),
        (HeunDiscreteScheduler, [[0, 1], [2]]),
    ],
)
def test_scheduler_of_img2img(load, scheduler, groups):
    """It begins in the middle of the schedule."""
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)

    def call():
        return paint(pipe, PROMPT, image=picture(64, 64), strength=0.5, steps=STEPS)

    check(pipe, call, [PROMPT], groups=groups)


def test_custom_timesteps(load):
    """`steps` may be a schedule of the user's own."""
    pipe = load("sd1")
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)

    def call():
        return paint(pipe, PROMPT, steps=3, timesteps=[900, 500, 100])

    recorder = check(pipe, call, [PROMPT])
    assert recorder.recordings[0].timesteps == (900, 500, 100)
