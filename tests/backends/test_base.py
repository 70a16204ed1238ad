"""The interface of a family, the parts of a pipeline, its calls, and methods put on instances."""

import copy
import inspect
from types import SimpleNamespace

import pytest
import torch
from diffusers import EulerDiscreteScheduler
from making import random_pipeline
from peft import LoraConfig

from heedmap.backends import base, registry
from heedmap.backends.base import Family, replace_method
from heedmap.backends.hunyuan import HunyuanDiT
from heedmap.backends.joint import PackedFamily
from heedmap.backends.sana import Sana
from heedmap.recording.tracing import trace

each_family = pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda one: one.__name__)


class Wrapped:
    """A model as torch.compile and peft wrap it."""

    def __init__(self, model, compiled):
        if compiled:
            self._orig_mod = model
        else:
            self.get_base_model = lambda: model


@each_family
def test_the_denoiser_is_found_in_its_wrappers(family: type[Family]):
    model = torch.nn.Identity()
    both = Wrapped(Wrapped(model, False), True)
    for part in (model, Wrapped(model, True), Wrapped(model, False), both):
        found = family(SimpleNamespace(**{family.component: part}))
        assert found.called_model is part and found.model is model
    bare = family(SimpleNamespace())
    assert bare.called_model is bare.model is None


# Sana and HunyuanDiT change the timestep or join two texts: tests/families runs them.
@pytest.mark.parametrize(
    "family", [one for one in registry.FAMILIES if one not in (Sana, HunyuanDiT)]
)
def test_inputs_of_a_pass_are_read_by_position_and_by_name(family: type[Family]):
    served = family(SimpleNamespace())
    names = served.inputs[:4]
    given = {name: torch.full((1,), float(n)) for n, name in enumerate(names)}
    expected = [given[name] for name in (names[0], "timestep", "encoder_hidden_states")]
    for count in range(5):
        args = tuple(given.values())[:count]
        kwargs = dict(list(given.items())[count:])
        found = served.passed(args, {**kwargs, "more": None})
        # The pipelines of Flux divide the timestep by 1000.
        assert float(found[1]) == float(expected[1]) * (
            1000 if issubclass(family, PackedFamily) else 1
        )
        assert found[0] is expected[0] and found[2] is expected[2]


def test_the_side_of_a_cell_is_the_scale_factor_of_the_decoder():
    family = registry.FAMILIES[0]
    assert family(SimpleNamespace(vae_scale_factor=16.0)).cell_side == 16
    bare = family(SimpleNamespace())
    assert bare.cell_side == 8 and bare.decoder is None


# --- the parts of a pipeline ---


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


# --- the calls of a pipeline ---


class Pipe:
    """Calls what it is given; `free` says whether its class lets go of its models."""

    def __call__(self, then, output_type="pil"):
        self.maybe_free_model_hooks = None
        return then()


class Quiet:
    def __call__(self, then, output_type="pil"):
        return then()


def test_active_calls_are_listed_innermost_first():
    pipe, other = Pipe(), Pipe()
    assert base.active_calls(pipe) == []

    def within():
        return [frame.f_locals["output_type"] for frame in base.active_calls(pipe)]

    assert pipe(within, "one") == ["one"]
    assert pipe(lambda: pipe(within, "two"), "one") == ["two", "one"]
    assert pipe(lambda: other(within), "one") == ["one"], "another one of the class is another"
    assert other(lambda: base.active_calls(pipe)) == []


def test_only_calls_that_free_the_models_announce_their_end():
    pipe, quiet = Pipe(), Quiet()
    assert pipe(lambda: base.announces_end(pipe)) is True
    assert pipe(lambda: base.announces_end(pipe), "latent") is False
    assert quiet(lambda: base.announces_end(quiet)) is False


# --- methods put on an instance ---


class Owner:
    def __init__(self):
        self.state = 1

    def step(self, sample, eta=0.0):
        return self.state + sample


def louder(owner, by):
    before = owner.step
    return replace_method(owner, "step", lambda *args, **kwargs: before(*args, **kwargs) + by)


def test_a_wrapped_method_keeps_its_signature_and_is_unwrapped():
    owner = Owner()
    undo = louder(owner, 10)
    assert owner.step(2) == 13 and owner.step(sample=2, eta=1.0) == 13
    assert list(inspect.signature(owner.step).parameters) == ["sample", "eta"]
    undo()
    undo()
    assert owner.step(2) == 3 and vars(owner) == {"state": 1}


def test_wrappers_are_removed_in_reverse_order():
    owner = Owner()
    undos = [louder(owner, by) for by in (10, 100, 1000)]
    for undo in reversed(undos):
        undo()
    assert vars(owner) == {"state": 1}


def test_a_method_that_was_replaced_meanwhile_stays():
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


def test_two_traces_can_be_closed_in_the_order_they_were_opened():
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
