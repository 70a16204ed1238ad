"""What a pipeline is called with: what its own signature says it takes."""

from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline
from families import models
from making import gradient

from heedmap.backends.registry import check_names, for_batch
from heedmap.errors import ArgumentError
from heedmap.options import GenerateOptions


def test_a_batch_has_prompts_and_generators_of_its_rows(pipe):
    own = {"eta": 0.5, "prompt_2": "b", "negative_prompt_2": ["c", "d"]}
    asked = GenerateOptions(steps=3, size=(96, 64), negative="", arguments=own)
    call = for_batch(pipe, ["a", "b"], [1, 2], asked)
    noise = [torch.randn(2, generator=one) for one in call.pop("generator")]
    alone = [torch.randn(2, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    assert all(map(torch.equal, noise, alone))
    assert call == {
        "prompt": ["a", "b"],
        "num_inference_steps": 3,
        "width": 96,
        "height": 64,
        "negative_prompt": ["", ""],
        "eta": 0.5,
        "prompt_2": ["b", "b"],
        "negative_prompt_2": ["c", "d"],
    }


def rows(pipe, count: int = 3, **own) -> dict[str, Any]:
    texts = [str(n) for n in range(count)]
    return for_batch(pipe, texts, range(count), GenerateOptions(arguments=own))


@pytest.mark.parametrize("name", ["image", "mask_image"])
def test_one_picture_is_repeated_for_each_row(name):
    pipe = models.sd1(StableDiffusionInpaintPipeline)
    one = gradient(16, 24)
    for given in (one, [one], (one,)):
        made = rows(pipe, **{name: given})[name]
        assert isinstance(made, list) and len(made) == 3 and all(each is one for each in made)
    assert rows(pipe, 1, **{name: one})[name] is one
    three = [one, gradient(16, 16), one]
    assert rows(pipe, **{name: three})[name] is three


def test_one_array_or_tensor_is_repeated_for_each_row():
    pipe = models.sd1(StableDiffusionInpaintPipeline)
    name = "image"
    plain = np.asarray(gradient(16, 24), np.float32) / 255
    for alone in (plain, torch.from_numpy(plain).permute(2, 0, 1)):  # of one picture, without rows
        made = rows(pipe, **{name: alone})[name]
        assert len(made) == 3 and all(each is alone for each in made)
    many = np.repeat(plain[None], 3, axis=0)
    assert np.array_equal(rows(pipe, **{name: plain[None]})[name], many)
    assert torch.equal(
        rows(pipe, **{name: torch.from_numpy(plain[None])})[name], torch.from_numpy(many)
    )


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_masks_of_three_axes_are_one_for_each_row(kind):
    """As diffusers reads them: (B, H, W), but for an array (H, W, 1)."""
    pipe = models.sd1(StableDiffusionInpaintPipeline)
    three = np.random.default_rng(0).random((3, 24, 16)).astype(np.float32)
    given = kind(three)
    assert rows(pipe, mask_image=given)["mask_image"] is given
    with pytest.raises(ArgumentError, match="mask_image"):
        rows(pipe, 2, mask_image=given)
    wanted = np.repeat(three[:1], 3, axis=0)
    for one in (kind(three[:1]), kind(three[0])):
        made = rows(pipe, mask_image=one)["mask_image"]
        read = pipe.mask_processor.preprocess(made)
        assert read.shape == (3, 1, 24, 16)
        assert torch.equal(read[:, 0], torch.from_numpy(wanted).round())


def test_one_noise_is_repeated_for_each_row(pipe):
    latents = torch.randn(1, 4, 8, 8)
    made = rows(pipe, latents=latents)["latents"]
    assert made.shape == (3, 4, 8, 8) and all(torch.equal(row, latents[0]) for row in made)
    assert rows(pipe, latents=made)["latents"] is made
    assert "latents" not in rows(pipe, 1) and rows(pipe, latents=None)["latents"] is None


@pytest.mark.parametrize(("count", "given"), [(3, [gradient()] * 2), (1, torch.zeros(4, 3, 8, 8))])
def test_a_count_that_is_neither_one_nor_all_rows_is_refused(count, given):
    with pytest.raises(ArgumentError, match="image"):
        rows(models.sd1(StableDiffusionInpaintPipeline), count, image=given)


def test_unknown_argument_names_are_refused(pipe):
    check_names(pipe, ["prompt", "callback_on_step_end", "mine"], ["mine"])
    for name in ("promt", "image", "callback_steps"):
        with pytest.raises(ArgumentError, match=name):
            check_names(pipe, [name], ["steps", "seed"])
    check_names(models.sd1(StableDiffusionImg2ImgPipeline), ["image"], ["steps", "seed"])
