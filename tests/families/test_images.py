"""Images of one's own: their noise, their edits, and one noise for a source and its edits."""

import warnings
from copy import deepcopy

import diffusers
import numpy as np
import pytest
import torch
from diffusers import (
    DDPMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchLCMScheduler,
    StableDiffusionControlNetInpaintPipeline,
    StableDiffusionControlNetPipeline,
)
from oracle import denoiser
from PIL import Image

import heedmap as hm
from families import models
from families.checking import count_passes, paint, state_of
from families.models import TABLE, mask, picture
from heedmap.backends.registry import default_size, family_of
from heedmap.errors import ModelError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
SHORT = {"max_sequence_length": 12}

# --- locate: what the model is given, beside diffusers' own noise ---


def inputs_of(pipe, run) -> tuple[list[torch.Tensor], list[float]]:
    """The latents and timesteps that the model is given while something runs."""
    samples, timesteps = [], []
    thousandth = ("Flux", "Ovis", "Aura", "Krea")  # is what they are given
    scale = 1000 if type(pipe).__name__.startswith(thousandth) else 1
    names = ("sample" if hasattr(pipe, "unet") else "hidden_states", "timestep")

    def watch(_, args, kwargs):
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        samples.append(given[names[0]].clone())
        timesteps.append(scale * float(torch.as_tensor(given["timestep"]).flatten()[0]))

    hook = denoiser(pipe).register_forward_pre_hook(watch, with_kwargs=True)
    try:
        run()
    finally:
        hook.remove()
    return samples, timesteps


@torch.no_grad()
def add_noise(pipe, image: Image.Image, seed: int, timesteps: list[float]) -> list[torch.Tensor]:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 127.5 - 1
    config = pipe.vae.config
    if hasattr(config, "temperal_downsample"):  # Krea 2 has one of videos
        clean = pipe.vae.encode(pixels[:, :, None]).latent_dist.mode()[:, :, 0]
        mean, deviation = map(torch.tensor, (config.latents_mean, config.latents_std))
        clean = (clean - mean[:, None, None]) / deviation[:, None, None]
    elif hasattr(pipe, "_patchify_latents"):  # which ERNIE-Image normalizes then
        clean = pipe._patchify_latents(pipe.vae.encode(pixels).latent_dist.mode())
        mean, deviation = pipe.vae.bn.running_mean, (pipe.vae.bn.running_var + 1e-5).sqrt()
        clean = (clean - mean[:, None, None]) / deviation[:, None, None]
    else:
        clean = pipe.vae.encode(pixels).latent_dist.mode()
        clean = (clean - (config.shift_factor or 0)) * config.scaling_factor
    if hasattr(pipe, "_pack_latents"):  # whose noise is that of packed latents
        clean = pipe._pack_latents(clean, *clean.shape)
    generator = torch.Generator().manual_seed(seed)
    noises = [torch.randn(clean.shape, generator=generator) for _ in timesteps]
    levels = [t / 1000 for t in timesteps]
    if type(pipe).__name__ == "CogView4Pipeline":
        # The scheduler shifts the noise of a timestep by the number of positions.
        scheduler, (h, w) = deepcopy(pipe.scheduler), clean.shape[-2:]
        shift = 0.5 + 1.15 * (h * w / 4 / 256) ** 0.5  # of the scheduler's configuration
        scheduler.set_timesteps(sigmas=levels, timesteps=timesteps, mu=shift)
        levels = scheduler.sigmas.tolist()
    if isinstance(pipe.scheduler, FlowMatchEulerDiscreteScheduler):
        pairs = zip(levels, noises, strict=False)
        return [(1 - level) * clean + level * noise for level, noise in pairs]
    scheduler = DDPMScheduler.from_config(pipe.scheduler.config)
    times = [torch.tensor([int(t)]) for t in timesteps]
    return [scheduler.add_noise(clean, *pair) for pair in zip(noises, times, strict=True)]


FLOW = ["sd3", "flux", "bria", "ovis", "aura", "cogview4", "krea", "ernie"]


@pytest.mark.parametrize("family", ["sd1", "sd2", "lcm", "sdxl", "sigma", "hunyuan", *FLOW])
def test_locate_gives_the_model_the_noised_image(load, family):
    pipe, image, runs = load(family), picture(96, 160), []
    scheduler, before = pipe.scheduler, state_of(pipe)["processors"]
    levels = [2500 / 3, 500, 500 / 3] if family in FLOW else [833, 500, 166]
    call = {"seed": 2, "steps": 3, "size": image.size, "keep": "all"}
    samples, timesteps = inputs_of(
        pipe, lambda: runs.append(hm.locate(pipe, image, PROMPT, **call))
    )
    (run,) = runs
    assert pipe.scheduler is scheduler and state_of(pipe)["processors"] == before
    assert timesteps == pytest.approx(levels) == run.maps.recording.timesteps
    for sample, expected in zip(samples, add_noise(pipe, image, 2, timesteps), strict=True):
        assert sample.shape == expected.shape  # without guidance: one row
        torch.testing.assert_close(sample, expected, atol=1e-4, rtol=0)


def test_locate_refuses_unknown_noise(load):
    pipe = load("sprint")
    passes = count_passes(pipe)
    with pytest.raises(ModelError), warnings.catch_warnings(action="ignore"):
        hm.locate(pipe, picture(64, 64), PROMPT, seed=2, size=(64, 64))
    assert not passes


def test_locate_passes_a_control_image_on(load):
    net = models.controlnet(load("sd1").unet)
    pipe = load("sd1", StableDiffusionControlNetPipeline, controlnet=net)
    edges = picture(128, 128)
    run = hm.locate(pipe, picture(128, 128), PROMPT, seed=2, steps=2, image=edges)
    assert hm.repeat(pipe, run, image=edges).same


# --- packed latents ---


@pytest.mark.parametrize("family", sorted({*models.JOINT, "dev2"} - {"fibo", "longcat"}))
def test_latents_are_unpacked_and_packed(load, family):
    pipe, seen, row = load(family), [], TABLE[family]
    cell = 1 + (family == "qwen21")  # which packs no cells, and draws an even number of them
    assert family_of(pipe).unit == 16 * cell and default_size(pipe) == (64, 64)
    hm.generate(pipe, "at", preview=seen.append, **row.options(size=(64 * cell, 48 * cell)))
    assert [tuple(latents.shape) for latents in seen] == [(1, 4, 6, 8)] * 2
    if not hasattr(pipe, "_pack_latents"):
        return
    latents = torch.randn(2, 4, 6, 10)
    packed = family_of(pipe).pack(latents)
    if cell == 1:
        assert packed.shape == (2, 15, 16)
        assert torch.equal(packed[1, 7].view(4, 2, 2), latents[1, :, 2:4, 4:6])  # row 1, column 2
    assert torch.equal(family_of(pipe).unpack(packed, (6, 10)), latents)


@pytest.mark.parametrize("family", ["flux", "klein"])
def test_latents_of_the_users_own(load, family):
    pipe, latents = load(family), torch.randn(1, 4, 6, 8)
    own = family_of(pipe).initial(latents)
    more = {"guidance_scale": 1.0, "width": 64, "height": 48, "prompt": "at"}
    bare = paint(pipe, latents=own, **more)
    with trace(pipe):
        assert np.array_equal(paint(pipe, latents=own, **more), bare)


# --- one picture, or one noise, for a source and its edits ---


def with_nets(load):
    net = models.controlnet(load("sd1").unet)
    return load("sd1", StableDiffusionControlNetInpaintPipeline, controlnet=[net] * 2)


def of(family, kind="DiffusionPipeline"):
    return lambda load: load(family, getattr(diffusers, kind))


INPAINTED = {"image": picture(64, 64), "mask_image": mask(64, 64)}
CONTROL = picture(64, 64).rotate(90)
STARTED = {"image": picture(64, 64), "strength": 0.6}
NOISE = {"latents": torch.randn(1, 4, 16, 16, generator=torch.manual_seed(0))}
PIPELINES = {
    "img2img": (of("sd1", "StableDiffusionImg2ImgPipeline"), STARTED),
    "inpainting": (of("inpainting"), INPAINTED),
    "SDXL": (of("sdxl", "StableDiffusionXLInpaintPipeline"), {**INPAINTED, "strength": 0.6}),
    "two nets": (
        with_nets,
        {**INPAINTED, "strength": 0.6, "control_image": [CONTROL] * 2},
    ),
    "pix2pix": (of("pix2pix"), {"image": picture(64, 64)}),
    "upscaler": (of("upscaler"), {"image": picture(32, 32)}),
    "noise": (of("sd1"), NOISE),
}


@pytest.mark.filterwarnings("ignore:The decode_latents method is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:the ControlNet reads")
@pytest.mark.parametrize("name", PIPELINES)
def test_edits_start_from_the_noise_of_their_source(load, name):
    make, given = PIPELINES[name]
    pipe, call, runs = make(load), {"seed": 3, "steps": 2, **given}, []
    targets = ["a red at", "a at"]
    alone, _ = inputs_of(pipe, lambda: runs.append(hm.generate(pipe, PROMPT, **call)))
    together, _ = inputs_of(pipe, lambda: runs.append(hm.edit(pipe, PROMPT, targets, **call)))
    rows = together[0].unflatten(0, (len(alone[0]), 3))
    for row in range(3):
        torch.testing.assert_close(rows[:, row], alone[0], rtol=0, atol=1e-5)
    _, pairs = runs
    # In batches of two the same: a picture is given once, however many are drawn at a time.
    again = hm.edit(pipe, PROMPT, targets, batch=2, **call)
    for one, other in zip(pairs, again, strict=True):
        assert np.abs(np.asarray(one.edited.image, int) - np.asarray(other.edited.image)).max() <= 1


# --- FlowEdit ---


@torch.no_grad()
def flow_edit(pipe, image, prompts, seed, steps):
    """FlowEdit (arXiv 2412.08629) by its definition, in float64 but for the model.

    Z ← Z + (σ' − σ) · (V(Z + (1 − σ) x + σ ε − x) − V((1 − σ) x + σ ε)), from Z = x.
    """
    family, config = family_of(pipe), pipe.vae.config
    pixels, is_flux2 = pipe.image_processor.preprocess(image), hasattr(pipe, "_patchify_latents")
    if is_flux2:
        clean = pipe._unpatchify_latents(pipe._encode_vae_image(pixels, None)).double()
    else:
        clean = pipe.vae.encode(pixels).latent_dist.mode().double()
        clean = (clean - config.shift_factor) * config.scaling_factor
    generator = torch.Generator().manual_seed(seed)
    noises = [torch.randn(clean.shape, generator=generator).double() for _ in range(steps)]
    sigmas = pipe.scheduler.sigmas.double()
    z = clean.repeat(len(prompts), 1, 1, 1)
    for at, following, noise in zip(sigmas[:-1], sigmas[1:], noises, strict=True):
        seen = z + at * (noise - clean)
        time = torch.full((len(prompts),), float(at))
        if is_flux2:
            states, ids = pipe.encode_prompt(prompts, max_sequence_length=24)
            places = pipe._prepare_latent_ids(pipe._patchify_latents(seen))
            more = dict(txt_ids=ids, img_ids=places, guidance=None)
        else:
            states, _, pooled, _ = pipe.encode_prompt(
                prompts, None, None, do_classifier_free_guidance=False, **SHORT
            )
            time, more = time * 1000, {"pooled_projections": pooled}
        velocity = pipe.transformer(
            hidden_states=family.pack(seen.float()), timestep=time, encoder_hidden_states=states,
            return_dict=False, **more,
        )[0]  # fmt: skip
        velocity = family.unpack(velocity, (8, 8)).double()
        z = z + (following - at) * (velocity - velocity[:1])
    return z, clean


@pytest.mark.filterwarnings("ignore:the (model.s autoencoder|image also changed)")
@pytest.mark.parametrize(("family", "length"), [("sd3", 12), ("klein", 24)])
def test_an_edit_of_an_image_is_flow_edit(load, family, length):
    """Also where the pipeline takes an image, which it reads beside the prompt."""
    pipe, seen, image, targets = load(family), [], picture(64, 64), ["a blue house", "a red sea"]
    pair, _ = hm.edit(
        pipe, PROMPT, targets, cross_replace=0.0, self_replace=0.0, image=image, seed=3, steps=4,
        guidance=1.0, preview=seen.append, max_sequence_length=length,
    )  # fmt: skip
    wanted, clean = flow_edit(pipe, image, [PROMPT, *targets], 3, 4)
    torch.testing.assert_close(seen[-1][0].double(), clean[0], atol=2e-6, rtol=0)
    torch.testing.assert_close(seen[-1].double(), wanted, atol=1e-4, rtol=0)
    assert (wanted[1] - clean).abs().max() > 1e-2
    assert pair.report.reconstruction is not None and pair.source.input_image is not None


@pytest.mark.parametrize(
    ("family", "config"), [("flux", {}), ("sd3", {"stochastic_sampling": True})]
)
def test_a_scheduler_whose_noise_is_not_known_is_refused_before_sampling(load, family, config):
    pipe = load(family)
    passes = count_passes(pipe)
    kind = type(pipe.scheduler) if config else FlowMatchLCMScheduler
    pipe.scheduler = kind.from_config(pipe.scheduler.config, **config)
    with pytest.raises(ModelError):
        hm.edit(pipe, PROMPT, "a blue house", image=picture(64, 64), seed=1, steps=2, **SHORT)
    assert not passes
