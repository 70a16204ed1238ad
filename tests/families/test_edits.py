"""Edits in the company of others: what they change, and nothing else, held against arithmetic.

While an edited run goes on, a hook on every text cross-attention computes beside it what must come
out: the output of the layer's own processor, and (P' − P) V added before the output projection,
with P by diffusers' classic computation and P' by the definition of the edit. So whatever else a
layer adds (a LoRA, the picture of an IP-Adapter) has to be there too.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from diffusers import (
    ControlNetModel,
    EulerAncestralDiscreteScheduler,
    HeunDiscreteScheduler,
    PNDMScheduler,
    StableDiffusionControlNetPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPipeline,
    UniPCMultistepScheduler,
)
from diffusers.models.attention_processor import Attention
from making import generate_batch

from families import models
from families.checking import (
    ALONE,
    GUIDED,
    Layout,
    assert_restored,
    denoiser,
    query_and_key,
    state_of,
)
from families.models import mask, picture
from heedmap import Confine, Reweight, ablate, edit, generate
from heedmap.errors import ArgumentError, HeedmapWarning

RED = [2, 3, 4]  # "r", "e" and "d": after the start and "a"
RED_TWICE = [*RED, 79, 80, 81]  # and as T5 reads them behind 77 positions
SOURCE, TARGET = "a red house", "a red at"  # of as many tokens: each takes the source's column
TALL = dict.fromkeys(("sana", "sana15", "hunyuan"), (64, 96)) | {
    "sprint": (96, 64), "sigma": (128, 192),
}  # fmt: skip
Change = Callable[[torch.Tensor], torch.Tensor]  # of P (B, H, Q, K), of the conditional branch


def threefold(p: torch.Tensor) -> torch.Tensor:
    """What Reweight("red", 3) does to every image."""
    changed = p.clone()
    changed[..., RED_TWICE if p.shape[-1] == 77 + 256 else RED] *= 3
    return changed


def of_the_source(p: torch.Tensor) -> torch.Tensor:
    """What edit(SOURCE, TARGET) with cross_replace=1 does."""
    return p[[0, 0]]


@contextmanager
def arithmetic(
    pipe, change: Change, layout: Layout, tolerance: float = 2e-5
) -> Iterator[dict[str, int]]:
    """Beside an edited run: holds each layer's output against its own; counts where it moved."""
    model = denoiser(pipe)
    plain = {name.removesuffix(".processor"): p for name, p in model.attn_processors.items()}
    moved: dict[str, int] = {}

    @torch.no_grad()
    def hold(name: str, layer: Attention, args: tuple, kwargs: dict, output: torch.Tensor) -> None:
        text = kwargs.get("encoder_hidden_states")
        if text is None:  # self-attention
            return
        expected = plain[name](layer, args[0], **kwargs)
        text = text[0] if isinstance(text, tuple) else text
        query, key = (
            part.flatten(0, 1).float()
            for part in query_and_key(
                layer, layer.to_q(args[0]), layer.to_k(text), kwargs.get("image_rotary_emb")
            )
        )
        value = layer.head_to_batch_dim(layer.to_v(text)).float()
        mask = layer.prepare_attention_mask(
            kwargs.get("attention_mask"), key.shape[1], args[0].shape[0]
        )
        p = layer.get_attention_scores(
            query, key, None if mask is None else mask.float()
        ).unflatten(0, (-1, layer.heads))
        rows = torch.arange(len(p)).chunk(len(layout))[layout.index("conditional")]
        difference = torch.zeros_like(p)
        difference[rows] = change(p[rows]) - p[rows]
        added = layer.batch_to_head_dim(difference.flatten(0, 1) @ value).to(output)
        project = layer.to_out[0]  # with its LoRA, without its bias
        added = project(added) - project(torch.zeros_like(added))
        scale = expected.abs().max().item()
        torch.testing.assert_close(output, expected + added, rtol=0, atol=tolerance * scale)
        moved[name] = moved.get(name, 0) + (added.abs().max().item() > 1e-3 * scale)

    handles = [
        layer.register_forward_hook(
            lambda layer, args, kwargs, output, name=name: hold(name, layer, args, kwargs, output),
            with_kwargs=True,
        )
        for name, layer in model.named_modules()
        if isinstance(layer, Attention)
    ]
    try:
        yield moved
    finally:
        for handle in handles:
            handle.remove()


def check(pipe, layout: Layout = GUIDED, tolerance: float = 2e-5, passes: int = 2, **arguments):
    """Both ways of editing, with arithmetic beside; the pipeline must come back as it was."""
    pipe.set_progress_bar_config(disable=True)
    arguments = {"seed": 3, "steps": 2} | arguments
    plain = generate(pipe, SOURCE, **arguments)
    before = state_of(pipe)  # of a pipeline that has run
    with arithmetic(pipe, threefold, layout, tolerance) as moved:
        run = generate(pipe, SOURCE, edits=[Reweight("red", 3)], **arguments)
    everywhere = dict.fromkeys(moved, passes)
    assert moved == everywhere and moved
    assert_restored(pipe, before)
    assert np.abs(np.asarray(run.image, int) - np.asarray(plain.image)).max() > 1
    with arithmetic(pipe, of_the_source, layout, tolerance) as moved:
        pair = edit(pipe, SOURCE, TARGET, cross_replace=1.0, self_replace=0, **arguments)
    assert moved == everywhere
    assert pair.report.sites == len(moved) * min(passes, arguments["steps"])  # layers at a step
    assert_restored(pipe, before)
    return run


@pytest.mark.parametrize("family", ["sana", "sprint", "hunyuan"])
def test_one_edit_without_guidance_equals_the_definition(load, family):
    check(load(family), ALONE if family == "sprint" else GUIDED, size=TALL.get(family))


def test_an_edit_of_a_transformer_with_a_size_condition_equals_the_definition(load):
    check(load("alpha"), size=(64, 96))


def test_an_edit_keeps_a_lora_in_force(load, tmp_path):
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    trained = load("short")
    torch.manual_seed(8)
    targets = ["to_q", "to_k", "to_v", "to_out.0"]
    trained.unet.add_adapter(LoraConfig(r=2, target_modules=targets, init_lora_weights=False))
    weights = get_peft_model_state_dict(trained.unet)
    StableDiffusionPipeline.save_lora_weights(tmp_path, unet_lora_layers=weights)
    pipe = load("short")
    bare = generate(pipe, SOURCE, edits=[Reweight("red", 3)], seed=3, steps=2)
    pipe.load_lora_weights(tmp_path)
    adapted = check(pipe)
    assert np.abs(np.asarray(adapted.image, int) - np.asarray(bare.image)).max() > 1


def test_an_edit_keeps_the_image_of_an_ip_adapter(load, tmp_path):
    pipe = load("short")
    models.save_ip_adapter(tmp_path, pipe.unet)
    pipe.load_ip_adapter(
        str(tmp_path), subfolder="models", weight_name="ip-adapter_sd15.safetensors"
    )
    check(pipe, ip_adapter_image=picture(32, 32))


@pytest.mark.parametrize(
    ("family", "arguments", "layout"),
    [
        ("short", {"size": (72, 136), "negative": "at sea"}, GUIDED),
        ("short", {"guidance": 1.0}, ALONE),
        ("sigma", {"size": (192, 128)}, GUIDED),
        ("sigma", {"negative": SOURCE}, GUIDED),  # the branches then read the same text
    ],
)
def test_edits_of_all_sizes_and_guidance_equal_the_definition(load, family, arguments, layout):
    check(load(family), layout, **arguments)


def test_edits_respect_the_length_of_the_text(load):
    check(load("sigma"), max_sequence_length=10)


def test_an_edit_of_sdxl_equals_the_definition(load):
    check(load("sdxl"), size=(96, 64))


def test_an_edit_with_embedded_guidance_equals_the_definition(load):
    check(load("lcm"), ALONE)


@pytest.mark.parametrize(
    ("family", "scheduler", "passes"),
    [
        ("short", EulerAncestralDiscreteScheduler, 2),
        ("short", HeunDiscreteScheduler, 3),
        ("sigma", UniPCMultistepScheduler, 2),
        ("sigma", PNDMScheduler, 3),  # two calls before its first step
    ],
)
def test_edits_with_each_scheduler_equal_the_definition(load, family, scheduler, passes):
    pipe = load(family)
    more = {"skip_prk_steps": True} if scheduler is PNDMScheduler else {}
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config, **more)
    check(pipe, passes=passes, size=TALL.get(family))


@pytest.mark.parametrize("family", ["short", "sigma", "hunyuan"])
def test_an_edit_with_fused_projections_equals_the_definition(load, family):
    pipe = load(family)
    denoiser(pipe).fuse_qkv_projections()
    check(pipe, size=TALL.get(family))


@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"),
    [
        ("short", "bfloat16", 3e-2),
        ("sigma", "float16", 4e-3),
        ("sana15", "bfloat16", 3e-2),
        ("hunyuan", "float16", 4e-3),
    ],
)
def test_edits_in_half_precision_equal_the_definition(load, family, dtype, tolerance):
    pipe = load(family).to(getattr(torch, dtype))
    run = check(pipe, tolerance=tolerance, size=TALL.get(family))
    assert run.settings.dtype == dtype


def test_an_edit_of_img2img_equals_the_definition(load):
    pipe = load("short", StableDiffusionImg2ImgPipeline)
    check(pipe, image=picture(64, 96), strength=0.5, steps=4)


def test_reweighting_a_batch_of_two_equals_the_definition(load):
    pipe = load("sigma")
    prompts = [SOURCE, "a red big house at sea"]
    generate_batch(pipe, prompts, seeds=[1, 2], steps=2)
    before = state_of(pipe)
    with arithmetic(pipe, threefold, GUIDED) as moved:
        generate_batch(pipe, prompts, seeds=[1, 2], steps=2, edits=[Reweight("red", 3)])
    assert set(moved.values()) == {2}
    assert_restored(pipe, before)


# --- beside a model that reads the text, too ---


@pytest.mark.parametrize(
    "act",
    [
        lambda pipe, **given: generate(pipe, SOURCE, edits=[Reweight("red", 0)], **given),
        lambda pipe, **given: generate(pipe, "a (red:2) house", **given),
        lambda pipe, **given: edit(pipe, SOURCE, TARGET, **given),
        lambda pipe, **given: ablate(
            pipe, generate(pipe, SOURCE, **given), "red", image=given["image"]
        ),
    ],
    ids=["edits", "weight", "edit", "ablate"],
)
@pytest.mark.parametrize("reads", [True, False])
def test_a_controlnet_that_reads_the_text_is_named(load, act, reads):
    net = models.controlnet(load("sd1").unet)
    if not reads:
        plain = {
            "down_block_types": ["DownBlock2D"] * len(net.config.down_block_types),
            "mid_block_type": "UNetMidBlock2D",
        }
        net = ControlNetModel.from_config({**net.config, **plain})
    pipe = load("sd1", StableDiffusionControlNetPipeline, controlnet=net)
    given = {"seed": 1, "steps": 2, "image": picture(64, 64)}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", HeedmapWarning)
        generate(pipe, SOURCE, **given)
        assert not warned
        act(pipe, **given)
    assert len(["ControlNet" in str(one.message) for one in warned]) == reads


# --- where the pictures have a size of their own ------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arguments", "size"),
    [
        (StableDiffusionImg2ImgPipeline, {"image": picture(68, 96), "strength": 1.0}, (64, 96)),
        (
            StableDiffusionInpaintPipeline,
            {"image": picture(64, 96), "mask_image": mask(64, 96), "strength": 1.0},
            (128, 128),
        ),
        (
            StableDiffusionInpaintPipeline,
            {"image": picture(64, 96), "mask_image": mask(64, 96), "size": (96, 64)},
            (96, 64),
        ),
    ],
)
def test_a_box_is_given_in_pixels_of_the_image(load, kind, arguments, size):
    pipe = load("short", kind)
    run = generate(
        pipe, SOURCE, seed=1, steps=2, edits=[Confine("house", (0, 0, *size))], **arguments
    )
    assert run.image.size == size
    outside = Confine("house", (0, 0, size[0] + 1, size[1]))
    with pytest.raises(ArgumentError, match="{}×{} pixels".format(*size)):
        generate(pipe, SOURCE, seed=1, steps=2, edits=[outside], **arguments)
