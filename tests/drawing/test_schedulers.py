"""Schedulers as a file notes them: those of diffusers, of sensible numbers, and for a while."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from diffusers import DDIMScheduler, EulerDiscreteScheduler
from making import settings_of
from msgspec import structs

from heedmap.drawing.schedulers import set_up
from heedmap.errors import RunError
from heedmap.files.notes import checked
from heedmap.files.settings import Settings


@pytest.fixture
def pipe() -> Any:
    return SimpleNamespace(scheduler=DDIMScheduler(), low_res_scheduler=DDIMScheduler())


def noted(kind: object = "DDIMScheduler", **config: object) -> dict[str, Any]:
    return {"class": kind, "config": config}


def asking(schedulers: object) -> Settings:
    return settings_of(schedulers=schedulers)


def refused(pipe: Any, schedulers: object, said: str) -> None:
    """In one sentence; the pipeline keeps what it has."""
    before = dict(vars(pipe))
    with pytest.raises(RunError, match=said) as error, set_up(pipe, asking(schedulers)):
        raise AssertionError("it was set up")
    assert len(str(error.value)) < 600 and str(error.value).isprintable()
    assert {key: id(value) for key, value in vars(pipe).items()} == {
        key: id(value) for key, value in before.items()
    }


# --- whose they are ---------------------------------------------------------------------------


def test_the_pipelines_own_come_back_whatever_happens(pipe):
    mine = pipe.scheduler, pipe.low_res_scheduler
    both = {"scheduler": noted("EulerDiscreteScheduler"), "low_res_scheduler": noted(clip_sample=0)}
    with pytest.raises(KeyError), set_up(pipe, asking(both)):
        assert type(pipe.scheduler) is EulerDiscreteScheduler
        assert type(pipe.low_res_scheduler) is DDIMScheduler
        assert pipe.low_res_scheduler is not mine[1]
        raise KeyError
    assert pipe.scheduler is mine[0] and pipe.low_res_scheduler is mine[1]
    with set_up(pipe, settings_of()):
        assert pipe.scheduler is mine[0]


def test_one_that_is_set_up_before_another_fails_is_taken_back(pipe):
    both = {"scheduler": noted("EulerDiscreteScheduler"), "low_res_scheduler": noted("nothing")}
    refused(pipe, both, "is none that diffusers")


@pytest.mark.parametrize("name", ["unet", "__class__", "_scheduler", "", "schedulers"])
def test_nothing_else_of_a_pipeline_is_set(name):
    settings = structs.replace(settings_of(), schedulers={name: settings_of()})
    with pytest.raises(RunError):
        checked(settings, "these settings")


def test_one_that_the_pipeline_has_not(pipe):
    pipe.low_res_scheduler = None
    refused(pipe, {"low_res_scheduler": noted()}, "and SimpleNamespace has none: pass a pipeline")


@pytest.mark.parametrize(
    "kind",
    [
        "UNet2DConditionModel", "AutoencoderKL", "DiffusionPipeline", "StableDiffusionPipeline",
        "utils", "logging", "__version__", "__file__", "ConfigMixin", "os.system", "object", "",
        "SchedulerMixin.from_pretrained", "x" * 4000, "\x1b]0;",
    ],
)  # fmt: skip
def test_only_schedulers_are_made(pipe, kind):
    refused(pipe, {"scheduler": noted(kind)}, "is none that diffusers .* has")


# --- what they are asked for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_train_timesteps", 0), ("num_train_timesteps", -1), ("num_train_timesteps", True),
        ("num_train_timesteps", 10.0), ("num_train_timesteps", "10"), ("num_train_timesteps", None),
        ("num_train_timesteps", [10]), ("num_train_timesteps", 100_001),
        ("solver_order", 101), ("solver_order", -101), ("order", 101), ("any_order", [101]),
        ("beta_end", 100_001), ("beta_end", -100_001), ("beta_end", -1e30), ("x", 100_000.1),
        ("trained_betas", [0.1] * 100_001), ("trained_betas", [0.1, 1e6]),
        ("x", [[[1e6]]]), ("x", {"a": 1e6}), ("x", {"a": {"b": [-1e6]}}),
        ("x", {str(n): 0 for n in range(100_001)}),
    ],
)  # fmt: skip
def test_what_no_scheduler_has_use_for(pipe, name, value):
    said = f"the scheduler of this run has {name}=.*: expected .* up to 100(,000)?, and lists no lo"
    refused(pipe, {"scheduler": noted(**{name: value})}, said)


@pytest.mark.parametrize(
    "config",
    [
        {"num_train_timesteps": 1}, {"num_train_timesteps": 100_000}, {"my_order": 100},
        {"my_order": -100}, {"mine": 100_000}, {"mine": -100_000.0}, {"mine": [0] * 100_000},
        {"mine": "text"}, {"mine": None}, {"mine": True}, {"mine": {"a": [1, 2.5, "x", None]}},
        {"mine": {"object": "float", "value": "-inf"}},
    ],
)  # fmt: skip
def test_what_one_may_have_use_for(pipe, config):
    with set_up(pipe, asking({"scheduler": noted(**config)})):
        assert type(pipe.scheduler) is DDIMScheduler
        steps = config.get("num_train_timesteps")
        assert steps is None or pipe.scheduler.config.num_train_timesteps == steps


def test_a_setting_that_the_file_does_not_hold(pipe):
    config = {"mine": {"object": "tensor", "shape": [1]}}
    refused(pipe, {"scheduler": noted(**config)}, "has a setting 'mine' that is not in the file")


def test_what_a_constructor_finds_wrong_is_one_sentence(pipe):
    wrong = noted(beta_schedule="no such\n" * 99)
    refused(pipe, {"scheduler": wrong}, "the scheduler DDIMScheduler cannot be set up as this run")


# --- what need not be installed ---------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["scipy"] = None  # as where it is not installed; diffusers asks when it is imported
import heedmap as hm
from heedmap.drawing.schedulers import set_up
from diffusers import DDIMScheduler
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from making import random_pipeline, settings_of
pipe = SimpleNamespace(scheduler=DDIMScheduler())
for noted in (
    {"class": "LMSDiscreteScheduler", "config": {}},
    {"class": "EulerDiscreteScheduler", "config": {"use_beta_sigmas": True}},
):
    try:
        with set_up(pipe, settings_of(schedulers={"scheduler": noted})):
            pass
    except hm.HeedmapError as error:
        print(error)
made = random_pipeline()
made.save_pretrained("model")
for name in ("scheduler/scheduler_config.json", "model_index.json"):
    with open(f"model/{name}") as file:
        text = file.read()
    with open(f"model/{name}", "w") as file:
        file.write(text.replace(type(made.scheduler).__name__, "LMSDiscreteScheduler"))
try:
    hm.load("model")
except hm.HeedmapError as error:
    print(error)
"""


def test_a_scheduler_that_needs_scipy_says_so(tmp_path: Path):
    path = os.pathsep.join(map(str, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    needs = "needs scipy, which is not installed: `pip install scipy`"
    assert done.stdout.splitlines() == [
        f"the scheduler LMSDiscreteScheduler of this run {needs}; repeat the run then",
        f"the scheduler EulerDiscreteScheduler, as this run notes it, {needs}; repeat the run then",
        f"the model model {needs}",
    ], done.stderr
