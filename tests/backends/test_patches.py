"""A method put on an instance for a while: called, copied, taken off in any order."""

import copy
import inspect
from itertools import permutations

import pytest
from diffusers import EulerDiscreteScheduler
from making import random_pipeline

from heedmap.backends.active_calls import put
from heedmap.recording.tracing import trace


class Owner:
    def __init__(self):
        self.state = 1

    def step(self, sample, eta=0.0):
        return self.state + sample


def louder(owner, by):
    before = owner.step
    return put(owner, "step", lambda *args, **kwargs: before(*args, **kwargs) + by)


def test_in_front_and_off_again():
    owner = Owner()
    undo = louder(owner, 10)
    assert owner.step(2) == 13 and owner.step(sample=2, eta=1.0) == 13
    assert list(inspect.signature(owner.step).parameters) == ["sample", "eta"]
    undo()
    undo()
    assert owner.step(2) == 3 and vars(owner) == {"state": 1}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_taken_off_in_any_order(order):
    owner = Owner()
    undos = [louder(owner, by) for by in (10, 100, 1000)]
    for number in order:
        undos[number]()
    assert vars(owner) == {"state": 1}


def test_what_somebody_else_has_put_there_stays():
    owner = Owner()
    undo = louder(owner, 10)
    owner.step = lambda sample: 0
    undo()
    assert owner.step(2) == 0


def test_a_scheduler_copied_within_a_trace_steps_by_itself():
    pipe = random_pipeline()
    pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    with trace(pipe) as recorder:
        pipe("a house", num_inference_steps=2, output_type="latent")
        other = copy.deepcopy(pipe.scheduler)
        assert other.step.__self__ is other
    assert "step" not in vars(pipe.scheduler)
    assert len(recorder.maps) == 1


def test_two_traces_closed_in_the_order_they_were_opened():
    one, two = random_pipeline(), random_pipeline()
    two.scheduler = one.scheduler
    first, second = trace(one), trace(two)
    first.__enter__()
    one("a house", num_inference_steps=2, output_type="latent")
    second.__enter__()
    two("a house", num_inference_steps=2, output_type="latent")
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert "step" not in vars(one.scheduler)
