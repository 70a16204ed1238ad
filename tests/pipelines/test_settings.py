"""A run's settings say what was asked for, not what came out of it."""

import pytest
import torch
from diffusers import (
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    PNDMScheduler,
)
from making import random_pipeline

from heedmap import generate, repeat
from heedmap.options import GenerateOptions
from heedmap.pipelines import settings
from heedmap.pipelines.arguments import argument


def test_an_interrupted_run_has_the_requested_settings(pipe):
    def stop(pipe, step, timestep, tensors):
        pipe._interrupt = step == 1
        return tensors

    run = generate(pipe, "a house", seed=1, steps=5, callback_on_step_end=stop)
    assert len(run.maps.recording.timesteps) == 2
    assert run.settings.steps == 5
    assert run.settings.arguments == {
        "callback_on_step_end": {"object": "function", "name": "stop"}
    }


@pytest.mark.parametrize(
    ("scheduler", "options"),
    [
        (DPMSolverMultistepScheduler, {"use_karras_sigmas": True}),
        (PNDMScheduler, {"skip_prk_steps": False}),
    ],
)
def test_settings_have_the_requested_steps_and_the_scheduler(pipe, scheduler, options):
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config, **options)
    noted = generate(pipe, "a house", seed=1, steps=4).settings
    assert noted.steps == 4
    about = noted.schedulers["scheduler"]
    assert about.kind == noted.scheduler == scheduler.__name__
    config = argument(about.config)  # infinity is no JSON
    assert config.items() >= options.items()
    own = {k: v for k, v in pipe.scheduler.config.items() if not k.startswith("_")}
    assert config == own


def test_defaults_are_saved_with_their_origin(pipe, embedded):
    noted = generate(pipe, "a house", seed=1, steps=1, guidance=2).settings
    assert noted.defaults == {"size": "pipeline"}
    for drawing, source, values in (
        (embedded, "card", (25, 4.0)),
        (pipe, "pipeline", (50, 7.5)),
    ):
        found, sources = settings.effective_options(drawing, GenerateOptions())
        assert (found.steps, found.guidance) == values
        assert sources == {"steps": source, "guidance": source, "size": "pipeline"}


@pytest.mark.parametrize(
    ("scheduler", "name", "values", "steps"),
    [
        (EulerDiscreteScheduler, "sigmas", [9.0, 3.0, 1.0, 0.0], 3),
        (DDPMScheduler, "timesteps", [900, 600, 300, 1], 4),
    ],
)
def test_lists_of_steps_count_as_the_scheduler_counts_them(pipe, scheduler, name, values, steps):
    """Of Euler's sigmas the last one is the end of the last step."""
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    run = generate(pipe, "a house", seed=1, **{name: values})
    assert run.settings.steps == len(run.maps.recording.timesteps) == steps
    assert run.settings.defaults["steps"] == name
    assert repeat(pipe, run).same


def test_settings_that_differ_are_listed():
    pipe = random_pipeline()
    saved = generate(pipe, "a house", seed=1, steps=1).settings
    assert settings.settings_diff(saved, pipe) == {}
    pipe.to(torch.float16)
    own = pipe.scheduler
    pipe.scheduler = type(own).from_config(own.config, timestep_spacing="trailing")
    found = settings.settings_diff(saved, pipe)
    assert found == {
        "dtype": ("float32", "float16"),
        "schedulers.scheduler.config.timestep_spacing": ("leading", "trailing"),
    }


def test_the_commit_is_read_from_the_paths_of_the_parts(pipe):
    commit = "0123456789abcdef0123456789abcdef01234567"
    pipe.unet.register_to_config(_name_or_path=f"/h/models--a--b/snapshots/{commit}/unet")
    assert settings.describe(pipe)["revision"] == commit
