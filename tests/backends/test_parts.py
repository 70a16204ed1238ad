"""The parts of a pipeline and its LoRAs, compared with its own configuration and modules."""

from types import SimpleNamespace

import torch
from making import random_pipeline
from peft import LoraConfig

from heedmap.backends import family


def test_parts_are_those_of_its_configuration():
    pipe = random_pipeline()
    found = dict(family.parts_of(pipe))
    own = {name: part for name, part in pipe.components.items() if part is not None}
    assert found == {name: part for name, part in own.items() if name != "scheduler"}
    vars(pipe)["unet"] = SimpleNamespace(_orig_mod=pipe.unet)  # as torch.compile wraps it
    assert dict(family.parts_of(pipe))["unet"] is found["unet"]


def test_a_watermark_is_a_part():
    bare = SimpleNamespace(watermark=3)
    assert dict(family.parts_of(bare)) == {"watermark": 3}


def test_where_parts_came_from():
    pipe, commit = random_pipeline(), "0123456789abcdef0123456789abcdef01234567"
    assert family.commit_of(pipe) is None
    pipe.unet.register_to_config(_name_or_path=f"/h/models--a--b/snapshots/{commit}/unet")
    assert family.commit_of(pipe) == commit


def test_where_it_computes(pipe):
    assert family.device_of(pipe) == torch.device("cpu")
    other = SimpleNamespace(device="cpu", _execution_device="meta")
    assert family.device_of(other) == torch.device("meta")


# --- what was attached ---


def test_loras_with_their_scale_and_state():
    pipe = random_pipeline()
    asked = LoraConfig(r=2, lora_alpha=3, init_lora_weights=False, target_modules=["to_q"])
    pipe.unet.add_adapter(asked, "red")
    told = {"name": "red", "part": "unet", "scale": 3 / 2, "active": True, "fused": False}
    assert family.loras(pipe) == [told]
    pipe.unet.disable_adapters()
    assert family.loras(pipe) == [{**told, "active": False}]
    pipe.unet.enable_adapters()
    pipe.fuse_lora(components=["unet"])
    assert family.loras(pipe) == [{**told, "fused": True}]
    pipe.unload_lora_weights()
    assert family.loras(pipe) == [{"name": "red", "fused": True}]
