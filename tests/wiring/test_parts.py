"""Of what a pipeline is made: held against the pipeline's own configuration and modules."""

from types import SimpleNamespace

import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor
from families import models
from making import random_pipeline
from peft import LoraConfig

from heedmap.wiring import parts


def test_parts_are_those_of_its_configuration():
    pipe = random_pipeline()
    found = dict(parts.parts_of(pipe))
    own = {name: part for name, part in pipe.components.items() if part is not None}
    assert found == {name: part for name, part in own.items() if name != "scheduler"}
    vars(pipe)["unet"] = SimpleNamespace(_orig_mod=pipe.unet)  # as torch.compile wraps it
    assert dict(parts.parts_of(pipe))["unet"] is found["unet"]


def test_a_watermark_is_a_part():
    bare = SimpleNamespace(watermark=3)
    assert dict(parts.parts_of(bare)) == {"watermark": 3}
    assert parts.told(bare) == {} and parts.configuration(bare) is None


def test_what_it_was_told():
    pipe = random_pipeline()
    assert parts.told(pipe) == {"requires_safety_checker": False}
    pipe.pag_applied_layers = ["mid"]
    assert parts.told(pipe)["pag_applied_layers"] == ["mid"]
    assert parts.configuration(pipe.unet)["block_out_channels"] == (
        pipe.unet.config.block_out_channels
    )
    assert not any(key.startswith("_") for key in parts.configuration(pipe.text_encoder))


def test_a_manner_that_is_not_everybodys():
    pipe = random_pipeline()
    assert parts.manner(pipe.unet) == parts.manner(pipe.vae) == []
    assert parts.manner(pipe.tokenizer) == ["77 tokens"]
    pipe.enable_freeu(0.9, 0.2, 1.2, 1.4)
    pipe.unet.to(memory_format=torch.channels_last)
    assert parts.manner(pipe.unet) == ["channels last", "FreeU s1=0.9 s2=0.2 b1=1.2 b2=1.4"]
    pipe.vae.enable_slicing()
    pipe.vae.enable_tiling()
    size = pipe.vae.tile_sample_min_size
    assert parts.manner(pipe.vae)[:3] == ["slicing", "tiling", f"tile_sample_min_size={size}"]


def test_where_parts_came_from():
    pipe, commit = random_pipeline(), "0123456789abcdef0123456789abcdef01234567"
    assert parts.commit_of(pipe) is None
    pipe.unet.register_to_config(_name_or_path=f"/h/models--a--b/snapshots/{commit}/unet")
    assert parts.source_of(pipe.unet).endswith(f"{commit}/unet")
    assert parts.commit_of(pipe) == commit
    assert parts.source_of(object()) == ""


def test_attention_that_is_not_the_usual_one(pipe):
    assert parts.unusual_attention(pipe) == ()
    pipe.unet.set_attn_processor(AttnProcessor())
    assert parts.unusual_attention(pipe) == ("AttnProcessor",)


def test_where_it_computes(pipe):
    assert parts.device_of(pipe) == torch.device("cpu")
    other = SimpleNamespace(device="cpu", _execution_device="meta")
    assert parts.device_of(other) == torch.device("meta")


# --- what was attached ---


def test_loras_with_their_matrices():
    pipe = random_pipeline()
    asked = LoraConfig(r=2, lora_alpha=3, init_lora_weights=False, target_modules=["to_q"])
    pipe.unet.add_adapter(asked, "red")
    ((lora, weights),) = parts.loras(pipe)
    assert set(lora.pop("scale")) == {3 / 2}
    told = {"name": "red", "part": "unet", "from": None, "rank": 2, "active": True, "fused": False}
    assert lora == told
    state = {name: value for name, value in pipe.unet.state_dict().items() if "lora_" in name}
    assert {f"{path}.red.weight" for path in weights} == set(state)
    for path, weight in weights.items():
        assert torch.equal(weight, state[f"{path}.red.weight"])
    pipe.unet.disable_adapters()
    assert not parts.loras(pipe)[0][0]["active"]
    pipe.unet.enable_adapters()
    pipe.fuse_lora(components=["unet"])
    assert parts.loras(pipe)[0][0]["fused"] and parts.fused_names(pipe) == {"red"}


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_image_prompts(load_pictures, scale: float):
    pipe = load_pictures
    pipe.set_ip_adapter_scale(scale)
    found = parts.image_prompts(pipe)
    assert len(found) == sum("attn2" in name for name in pipe.unet.attn_processors)
    assert {tuple(own) for _, own in found} == {(scale,)}
    assert parts.image_prompts(random_pipeline()) == []


@pytest.fixture
def load_pictures(tmp_path):
    pipe = random_pipeline()
    models.save_ip_adapter(tmp_path, pipe.unet)
    pipe.load_ip_adapter(
        str(tmp_path), subfolder="models", weight_name="ip-adapter_sd15.safetensors"
    )
    return pipe


def test_added_words_have_their_vectors():
    pipe = random_pipeline()
    assert parts.added_words(pipe) == {}
    pipe.tokenizer.add_tokens(["<x>"])
    pipe.text_encoder.resize_token_embeddings(len(pipe.tokenizer), mean_resizing=False)
    (vector,) = parts.added_words(pipe)["tokenizer"].values()
    number = pipe.tokenizer.convert_tokens_to_ids("<x>")
    assert torch.equal(vector, pipe.text_encoder.get_input_embeddings().weight[number])
