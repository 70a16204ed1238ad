"""Which call of the scheduler makes which step, by hand."""

from types import SimpleNamespace

import pytest
import torch

from heedmap.backends.schedules import Schedule, SchedulerCall, listen, matches, schedule_of
from heedmap.errors import TraceError


def pipe(timesteps, own=None, **scheduler):
    """As much of a pipeline as announces its schedule."""
    kind = type("Pipe", (), {} if own is None else {"num_timesteps": own})
    made = kind()
    made.scheduler = SimpleNamespace(timesteps=torch.tensor(timesteps), **scheduler)
    return made


@pytest.mark.parametrize(
    ("made", "first", "timesteps", "steps"),
    [
        (pipe([9, 6, 3]), 9, [9, 6, 3], [0, 1, 2]),
        (pipe([9, 6, 3]), 6, [6, 3], [0, 1]),  # image to image
        # Repeated timesteps: the one that leaves as many as the pipeline says.
        (pipe([9, 6, 6, 6, 3], own=3), 6, [6, 6, 3], [0, 1, 2]),
        (pipe([9, 6, 6, 6, 3], begin_index=3), 6, [6, 3], [0, 1]),
        # Two calls a step, the last with one; a run begins with a whole step.
        (pipe([9, 6, 6, 3, 3], order=2), 9, [9, 6, 6, 3, 3], [0, 0, 1, 1, 2]),
        (pipe([9, 6, 6, 3, 3], order=2), 6, [6, 3, 3], [0, 0, 1]),
        # PNDM: its second timestep twice, both calls of the first step.
        (pipe([9, 6, 6, 3], prk_timesteps=[]), 9, [9, 6, 6, 3], [0, 0, 1, 2]),
        # Its Runge-Kutta steps take four calls each.
        (
            pipe([9, 8, 8, 7, 7, 6, 6, 5, 5, 4], prk_timesteps=list(range(8))), 9,
            [9, 8, 8, 7, 7, 6, 6, 5, 5, 4], [0, 0, 0, 0, 1, 1, 1, 1, 2, 3],
        ),
        (
            pipe([9, 8, 8, 7, 7, 6, 6, 5, 5, 4], prk_timesteps=list(range(8))), 6,
            [6, 6, 5, 5, 4], [0, 0, 0, 1, 2],
        ),
    ],
)  # fmt: skip
def test_each_call_of_the_scheduler_has_its_step(made, first, timesteps, steps):
    found = schedule_of(made, first)
    assert (list(found.timesteps), list(found.steps)) == (timesteps, steps)
    assert found.count == steps[-1] + 1
    for call, step in enumerate(steps):
        last = call + 1 == len(steps) or steps[call + 1] != step
        assert found.moment(call) == SchedulerCall(step, found.count, last)


def test_a_timestep_of_no_step_is_found_nowhere():
    with pytest.raises(TraceError, match="timestep 7"):
        schedule_of(pipe([9, 6, 3]), 7)


def test_timesteps_match_to_the_digits_of_float32():
    schedule = Schedule((900.0, 0.0), (0, 1))
    assert matches(schedule, 0, 900.0005) and not matches(schedule, 0, 900.002)
    small = Schedule((0.7,), (0,))
    assert matches(small, 0, 0.7 + 9e-7) and not matches(small, 0, 0.7 + 1.2e-6)
    assert matches(schedule, 1, 5e-7) and not matches(schedule, 1, 5e-6)


class Scheduler:
    def step(self, latents):
        return latents + 1, "more"


def test_latents_after_a_step_are_passed_to_the_listener():
    scheduler = Scheduler()
    heard = []

    def after(latents):
        heard.append(latents.clone())
        return latents * 10

    undo = listen(scheduler, after)
    x = torch.ones(2)
    made, more = scheduler.step(x)
    assert torch.equal(made, 20 * x) and more == "more"
    assert len(heard) == 1 and torch.equal(heard[0], 2 * x)
    undo()
    assert "step" not in vars(scheduler)
    assert torch.equal(scheduler.step(x)[0], 2 * x) and len(heard) == 1


@pytest.mark.parametrize(("own", "steps"), [(None, 2), (5, 2), (2, 2), (1, 1)])
def test_a_schedule_that_ends_early_has_fewer_steps(own, steps):
    """Of a thousand timesteps those from 600 on; a pipeline may count before it leaves them out."""
    config = SimpleNamespace(num_train_timesteps=1000)
    made = pipe([900, 700, 500, 300, 100], own=own, config=config, begin_index=0)
    made.denoising_end = 0.4
    assert schedule_of(made, 900.0).timesteps == (900.0, 700.0)[:steps]
    made.denoising_end = None
    assert len(schedule_of(made, 900.0).timesteps) == (own or 5)
