"""The parts of a pipeline, and methods put on instances."""

import copy
import inspect
from types import SimpleNamespace

import torch
from diffusers import EulerDiscreteScheduler
from making import random_pipeline
from peft import LoraConfig

from heedmap.backends import base
from heedmap.backends.base import replace_method
from heedmap.recording.tracing import trace


def test_the_device_is_the_execution_device(pipe):
    assert base.device_of(pipe) == torch.device("cpu")
    other = SimpleNamespace(device="cpu", _execution_device="meta")
    assert base.device_of(other) == torch.device("meta")


def test_loras_are_listed_with_their_scale_and_state():
    pipe = random_pipeline()
    asked = LoraConfig(r=2, lora_alpha=3, init_lora_weights=False, target_modules=["to_q"])
    pipe.unet.add_adapter(asked, "red")
    expected = {"name": "red", "part": "unet", "scale": 3 / 2, "active": True, "fused": False}
    assert base.loras(pipe) == [expected]
    pipe.unet.disable_adapters()
    assert base.loras(pipe) == [{**expected, "active": False}]
    pipe.unet.enable_adapters()
    pipe.fuse_lora(components=["unet"])
    assert base.loras(pipe) == [{**expected, "fused": True}]
    pipe.unload_lora_weights()
    assert base.loras(pipe) == [{"name": "red", "fused": True}]


class Owner:
    def __init__(self):
        self.state = 1

    def step(self, sample, eta=0.0):
        return self.state + sample


def add_to_step(owner, by):
    before = owner.step
    return replace_method(owner, "step", lambda *args, **kwargs: before(*args, **kwargs) + by)


def test_a_wrapped_method_keeps_its_signature_and_is_unwrapped():
    owner = Owner()
    undo = add_to_step(owner, 10)
    assert owner.step(2) == 13 and owner.step(sample=2, eta=1.0) == 13
    assert list(inspect.signature(owner.step).parameters) == ["sample", "eta"]
    undo()
    assert owner.step(2) == 3 and vars(owner) == {"state": 1}


def test_a_scheduler_copied_within_a_trace_steps_by_itself():
    pipe = random_pipeline()
    pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    with trace(pipe) as recorder:
        pipe("a house", num_inference_steps=2, output_type="latent")
        other = copy.deepcopy(pipe.scheduler)
        assert other.step.__self__ is other
    assert "step" not in vars(pipe.scheduler)
    assert len(recorder.maps) == 1
