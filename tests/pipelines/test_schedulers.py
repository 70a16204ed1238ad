"""Saved schedulers: made from their configuration, and removed again."""

from types import SimpleNamespace
from typing import Any

import pytest
from diffusers import DDIMScheduler, EulerDiscreteScheduler
from making import settings_of

from heedmap.errors import RunError
from heedmap.io.schemas import Settings
from heedmap.pipelines.settings import saved_schedulers


@pytest.fixture
def pipe() -> Any:
    return SimpleNamespace(scheduler=DDIMScheduler(), low_res_scheduler=DDIMScheduler())


def note(kind: str = "DDIMScheduler", **config: object) -> dict[str, Any]:
    return {"class": kind, "config": config}


def settings_with(**schedulers: dict[str, Any]) -> Settings:
    return settings_of(schedulers=schedulers)


def test_the_pipelines_schedulers_are_restored_after_an_error(pipe):
    own = pipe.scheduler, pipe.low_res_scheduler
    saved = settings_with(
        scheduler=note("EulerDiscreteScheduler"), low_res_scheduler=note(clip_sample=False)
    )
    with pytest.raises(KeyError), saved_schedulers(pipe, saved):
        assert type(pipe.scheduler) is EulerDiscreteScheduler
        assert pipe.low_res_scheduler is not own[1]
        assert pipe.low_res_scheduler.config.clip_sample is False
        raise KeyError
    assert (pipe.scheduler, pipe.low_res_scheduler) == own


def test_a_scheduler_of_a_users_class_is_rebuilt(pipe):
    class Mine(DDIMScheduler):
        pass

    pipe.scheduler = Mine()
    with saved_schedulers(pipe, settings_with(scheduler=note("Mine", clip_sample=False))):
        assert type(pipe.scheduler) is Mine and pipe.scheduler.config.clip_sample is False


@pytest.mark.parametrize(
    "bad",
    [
        note("NoSuchScheduler"),
        note(trained_betas={"object": "tensor", "shape": [1]}),
    ],
)
def test_a_scheduler_that_cannot_be_built_is_an_error(pipe, bad):
    own = pipe.scheduler, pipe.low_res_scheduler
    saved = settings_with(scheduler=note("EulerDiscreteScheduler"), low_res_scheduler=bad)
    with pytest.raises(RunError, match="scheduler"), saved_schedulers(pipe, saved):
        pass
    assert (pipe.scheduler, pipe.low_res_scheduler) == own
