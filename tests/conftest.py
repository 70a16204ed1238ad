"""Shared fixtures: a small Stable Diffusion of random weights, and the embedded one."""

import gc
import os
from copy import deepcopy
from functools import cache
from typing import Any

# Tiny tensors: threads cost more than they bring, above all where other work shares the cores. The
# variable reaches the processes that tests start, so that they compute the same bits.
os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis
import pytest
import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from PIL import Image
from tokenizers import pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from heedmap.models import pipelines
from heedmap.text.tokens import tokenize
from heedmap.text.words import TokenTable

torch.set_num_threads(1)
# A clock on the wall says how busy the machine is; what must be quick is timed by the processor.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def _packed_less(save: Any) -> Any:
    def saved(image: Image.Image, file: Any, name: Any) -> None:
        image.encoderinfo |= {"compress_level": 1}
        save(image, file, name)

    return saved


# Packing PNGs is most of what saving a run takes. The pixels are the same, packed well or less so.
Image.preinit()
Image.SAVE["PNG"] = _packed_less(Image.SAVE["PNG"])


def letter_tokenizer() -> CLIPTokenizer:
    """A CLIP tokenizer without merges but for "house" and "at": the other words are letters."""
    merges = [("h", "o"), ("u", "s"), ("ho", "us"), ("hous", "e</w>"), ("a", "t</w>")]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(c + "</w>" for c in letters), *("".join(pair) for pair in merges)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[special] = len(vocabulary)
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


@cache
def _tokenizer(name: str, limit: int) -> Any:
    found = letter_tokenizer() if name == "letters" else pipelines.tokenizer()
    found.model_max_length = limit
    return found


def table(prompt: str, limit: int = 77, name: str = "letters") -> TokenTable:
    """The words and tokens of a prompt by `letter_tokenizer`, or by the embedded model's."""
    return tokenize(prompt, _tokenizer(name, limit))


def random_pipeline() -> StableDiffusionPipeline:
    """A Stable Diffusion 1.x of real classes with tiny random weights: 3 levels, 7 cross layers."""
    made = deepcopy(_random_pipeline())  # in half of the time
    torch.manual_seed(0)  # a test that draws numbers of its own draws the same in any order
    return made


@cache
def _random_pipeline() -> StableDiffusionPipeline:
    torch.manual_seed(0)
    tokenizer = letter_tokenizer()
    unet = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32, 32),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        mid_block_type="UNetMidBlock2DCrossAttn",
        layers_per_block=1,
        attention_head_dim=2,
        cross_attention_dim=32,
        norm_num_groups=8,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        norm_num_groups=4,
    )
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=77,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    # Random weights attend almost evenly: sharper keys make wrong maps visible.
    for name, parameter in unet.named_parameters():
        if ".attn2.to_q." in name or ".attn2.to_k." in name:
            parameter.data.mul_(6)
    pipe = StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=text.eval(),
        tokenizer=tokenizer,
        unet=unet.eval(),
        scheduler=DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="module", autouse=True)
def _heap() -> None:
    """Leave what is there already out of the collector's full rounds.

    With a million objects of other tests about, one such round takes a second, and comes where it
    likes: also into what a test says must be done within a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def random_model() -> StableDiffusionPipeline:
    """The pipeline of random weights, for a file of tests together."""
    return random_pipeline()


@pytest.fixture
def pipe() -> StableDiffusionPipeline:
    """A fresh random pipeline."""
    return random_pipeline()


@pytest.fixture(scope="session")
def embedded() -> StableDiffusionPipeline:
    """The embedded model, loaded once; tests must leave it as it was."""
    import heedmap

    loaded = heedmap.load()
    loaded.set_progress_bar_config(disable=True)
    return loaded
