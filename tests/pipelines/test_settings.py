"""A run's settings say what was asked for, not what came out of it."""

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, EulerAncestralDiscreteScheduler, PNDMScheduler
from making import random_pipeline

from heedmap import edit, generate
from heedmap.pipelines import settings
from heedmap.pipelines.arguments import argument


def test_an_interrupted_run_notes_what_was_asked_for(pipe):
    def stop(pipe, step, timestep, tensors):
        pipe._interrupt = step == 1
        return tensors

    run = generate(pipe, "a house", seed=1, steps=5, callback_on_step_end=stop)
    assert len(run.maps.recording.timesteps) == 2
    assert run.settings.steps == 5
    assert run.settings.arguments == {
        "callback_on_step_end": {"object": "function", "name": "stop"}
    }


def test_a_callback_does_not_change_what_is_noted(pipe):
    def meddle(pipe, step, timestep, tensors):
        if step == 2:
            pipe._guidance_scale, pipe._num_timesteps = 0.0, 1
        return tensors

    run = generate(pipe, "a house", seed=1, steps=3, guidance=5.0, callback_on_step_end=meddle)
    assert (run.settings.guidance, run.settings.steps) == (5.0, 3)
    assert generate(pipe, "a house", seed=1, steps=1).settings.guidance == 7.5


@pytest.mark.parametrize(
    ("scheduler", "options"),
    [
        (DPMSolverMultistepScheduler, {"use_karras_sigmas": True}),
        (PNDMScheduler, {"skip_prk_steps": False}),
        (EulerAncestralDiscreteScheduler, {}),
    ],
)
def test_the_steps_are_those_asked_for_and_the_scheduler_is_told(pipe, scheduler, options):
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config, **options)
    noted = generate(pipe, "a house", seed=1, steps=4).settings
    assert noted.steps == 4
    about = noted.schedulers["scheduler"]
    assert about.kind == noted.scheduler == scheduler.__name__
    told = argument(about.config)  # infinity is no JSON
    assert told.items() >= options.items()
    own = {k: v for k, v in pipe.scheduler.config.items() if not k.startswith("_")}
    assert told == own


def test_what_nobody_said_is_told_with_whose_it_is(pipe, embedded):
    noted = generate(pipe, "a house", seed=1, steps=1, guidance=2).settings
    assert noted.defaults == {"size": "pipeline"}
    own = (
        settings.effective_value(embedded, "steps", None),
        settings.effective_value(embedded, "guidance", None),
    )
    assert own == ((25, "card"), (4.0, "card"))
    assert settings.effective_value(pipe, "steps", None) == (50, "pipeline")
    assert settings.effective_value(pipe, "guidance", None) == (7.5, "pipeline")


def test_a_source_that_is_text_in_brackets_is_noted_so_that_it_reads_back(pipe):
    pair = edit(pipe, r"a \(red\) (house:2)", seed=1, steps=2)
    assert pair.edited.settings.edit.source == r"a \(red\) house"
    assert pair.source.settings.prompt == r"a \(red\) house"
    assert pair.source.settings.text == "a (red) house"


def test_all_that_an_edit_was_asked_is_noted(pipe):
    targets = ["a blue house", "a red sea"]
    pairs = edit(pipe, "a red house", targets, kind="replace", batch=3, seed=1, steps=2)
    for number, pair in enumerate(pairs, 1):
        assert pair.edited.settings.batch_place == (number, 3)
        assert pair.edited.settings.edit.kind_asked == "replace"


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
    pipe.scheduler = EulerAncestralDiscreteScheduler.from_config(own.config)
    found = settings.settings_diff(saved, pipe)
    assert set(found) == {"dtype", "schedulers.scheduler.class"}


def test_a_commit_is_read_from_where_the_parts_came_from(pipe):
    commit = "0123456789abcdef0123456789abcdef01234567"
    pipe.unet.register_to_config(_name_or_path=f"/h/models--a--b/snapshots/{commit}/unet")
    assert settings.describe(pipe)["revision"] == commit
