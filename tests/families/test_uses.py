"""Every way of calling a pipeline: pictures in, adapters, guidance, batches, threads, callbacks."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import diffusers
import numpy as np
import pytest
import torch
from diffusers.callbacks import IPAdapterScaleCutoffCallback
from making import generate_batch, recordings_of
from oracle import denoiser, registers
from peft import get_peft_model

import heedmap as hm
from families import models
from families.checking import (
    TOLERANCE,
    WHOLE,
    assert_restored,
    check,
    check_family,
    count_passes,
    paint,
    state_of,
)
from families.models import ALONE, BESIDE, GUIDED, PERTURBED, TABLE, mask, picture
from heedmap.errors import HeedmapWarning, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
PAIR = [PROMPT, "the cat"]
SMALL = {"width": 64, "height": 96}
UNBINNED = SMALL | {"use_resolution_binning": False}


def of(family, kind="DiffusionPipeline", **parts):
    """A function that loads a family as a pipeline of this class."""
    return lambda load: load(family, getattr(diffusers, kind), **parts)


# --- pipelines of other classes, and what is put beside the model ---


def with_controlnet(load):
    net = models.controlnet(load("sd1").unet)
    return load("sd1", diffusers.StableDiffusionControlNetPipeline, controlnet=net)


def with_adapter(load):
    return load("sd1", diffusers.StableDiffusionAdapterPipeline, adapter=models.t2i_adapter())


def with_cycle(load):
    pipe = load("sd1", diffusers.CycleDiffusionPipeline)
    pipe.scheduler = diffusers.DDIMScheduler.from_config(pipe.scheduler.config)
    return pipe


def gligen(load):
    pipe = models.gligen()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def qwen_controlnet(load):
    """Qwen-Image with a ControlNet whose closing maps do not start at zero."""
    parts = load("qwen").components
    config = {**parts["transformer"].config, "num_layers": 1, "extra_condition_channels": 0}
    torch.manual_seed(4)
    net = diffusers.QwenImageControlNetModel.from_config(config)
    for parameter in net.controlnet_blocks.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    pipe = diffusers.QwenImageControlNetPipeline(**parts, controlnet=net.eval())
    pipe.set_progress_bar_config(disable=True)
    return pipe


def z_image_controlnet(load):
    torch.manual_seed(4)
    sizes = {"dim": 48, "n_refiner_layers": 1, "n_heads": 3, "n_kv_heads": 3}
    net = diffusers.ZImageControlNetModel([0, 2], [0], 4, **sizes).eval()
    for layer in net.control_layers:
        torch.nn.init.normal_(layer.after_proj.weight, std=0.2)
    return diffusers.ZImageControlNetPipeline(**load("zimage").components, controlnet=net)


IMAGE, MASK = picture(64, 64), mask(64, 64)
INPAINTED = {"image": IMAGE, "mask_image": MASK, "width": 64, "height": 64}
STARTED = {"image": picture(96, 128), "strength": 0.5, "steps": 4}
JOINT = {"max_sequence_length": 12, "width": 48, "height": 80}
PLAIN = JOINT | {"guidance_scale": 1.0}
CONTROLLED = JOINT | {"control_image": picture(48, 80)}
ALONE_STARTED = JOINT | {"image": picture(48, 80), "strength": 0.7, "steps": 4}
PAINTED = JOINT | {"image": picture(64, 96), "mask_image": mask(64, 96), "strength": 1.0}
USES = {
    "img2img": (of("sd1", "StableDiffusionImg2ImgPipeline"), STARTED, GUIDED),
    "inpainting": (of("sd1", "StableDiffusionInpaintPipeline"), INPAINTED, GUIDED),
    "ControlNet": (with_controlnet, {"image": picture(96, 64), "negative_prompt": "at"}, GUIDED),
    "GLIGEN": (
        gligen,
        {
            "gligen_phrases": ["a house"],
            "gligen_boxes": [[0.0, 0.0, 0.5, 1.0]],
            "gligen_scheduled_sampling_beta": 0.5,
        },
        GUIDED,
    ),
    "T2I-Adapter": (with_adapter, SMALL | {"image": picture(64, 96)}, GUIDED),
    "CycleDiffusion": (
        with_cycle,
        {"image": IMAGE, "strength": 0.99, "source_prompt": "a big tree", "eta": 0.1, "steps": 4},
        ("negative source", "negative", "source", "conditional"),
    ),
    "perturbed": (
        of("sd1", "StableDiffusionPAGPipeline", pag_applied_layers=["mid", "up"]),
        SMALL | {"pag_scale": 3.0, "guidance_scale": 5.0},
        PERTURBED,
    ),
    "perturbed PixArt": (
        of("sigma", "PixArtSigmaPAGPipeline", pag_applied_layers=["blocks.1"]),
        UNBINNED | {"pag_scale": 3.0, "guidance_scale": 0.0},
        PERTURBED[1:],
    ),
    "perturbed Sana": (
        of("sana", "SanaPAGPipeline", pag_applied_layers=["blocks.1"]),
        UNBINNED | {"pag_scale": 3.0, "guidance_scale": 0.0},
        PERTURBED[1:],
    ),
    "img2img of SD 3": (
        of("sd3", "StableDiffusion3Img2ImgPipeline"),
        ALONE_STARTED | {"guidance_scale": 5.0},
        GUIDED,
    ),
    "img2img of Flux": (of("flux", "FluxImg2ImgPipeline"), ALONE_STARTED, ALONE),
    "img2img of Qwen-Image": (of("qwen", "QwenImageImg2ImgPipeline"), ALONE_STARTED, ALONE),
    "inpainting of Kontext": (of("flux", "FluxKontextInpaintPipeline"), BESIDE | PAINTED, ALONE),
    "inpainting of klein": (
        of("klein", "Flux2KleinInpaintPipeline"),
        PAINTED | {"guidance_scale": 1.0, "max_sequence_length": 24},
        ALONE,
    ),
    "inpainting of Qwen-Image-Edit": (
        lambda load: models.qwen_edit(diffusers.QwenImageEditInpaintPipeline),
        PAINTED | {"image": picture(160, 96), "mask_image": mask(160, 96)},
        ALONE,
    ),
    "Qwen-Image-Edit of several images": (
        lambda load: models.qwen_edit(diffusers.QwenImageEditPlusPipeline),
        {"image": [picture(64, 96), picture(160, 96)], "width": 48, "height": 80},
        ALONE,
    ),
    # This pipeline gives the model the shapes of images in a flat list.
    "ControlNet of Qwen-Image": (qwen_controlnet, CONTROLLED, ALONE),
    "img2img of Z-Image": (of("zimage", "ZImageImg2ImgPipeline"), ALONE_STARTED, GUIDED[::-1]),
    "inpainting of Z-Image": (of("zimage", "ZImageInpaintPipeline"), INPAINTED, GUIDED[::-1]),
    "ControlNet of Z-Image": (z_image_controlnet, CONTROLLED, GUIDED[::-1]),
}


@pytest.mark.filterwarnings("ignore:The decode_latents method is deprecated:FutureWarning")
@pytest.mark.parametrize("name", USES)
def test_a_use_gives_exact_maps(load, name):
    make, arguments, layout = USES[name]
    pipe, more = make(load), {"prompt": PROMPT, **arguments}

    def call():
        torch.manual_seed(5)  # some pipelines draw latents of an image without a generator
        return paint(pipe, **more)

    branches = GUIDED if "negative_prompt" in more else ALONE
    recorder = check(pipe, call, [more["prompt"]], layout, branches=branches)
    if name == "img2img":  # the second half of the schedule
        assert len(recorder.recordings[0].timesteps) == 2
        assert max(recorder.recordings[0].timesteps) < 600


@pytest.mark.parametrize("family", ["sd1", "sigma", "flux", "zimage"])
def test_a_lora_gives_exact_maps(load, family):
    """Of a PixArt as diffusers' documentation loads one: peft wraps the transformer whole."""
    pipe, more = load(family), TABLE[family].arguments()
    bare = paint(pipe, PROMPT, **more)
    scale = {"cross_attention_kwargs": {"scale": 0.7}} if family == "sd1" else {}
    if family == "sigma":
        pipe.transformer = get_peft_model(pipe.transformer, models.lora())
    else:
        denoiser(pipe).add_adapter(models.lora())
    check_family(pipe, family, PROMPT, **scale)
    assert not np.array_equal(paint(pipe, PROMPT, **more), bare)


@pytest.mark.parametrize("negative", ["at", PROMPT])
def test_an_ip_adapter_gives_exact_maps_of_the_text(adapted, negative):
    """Also with equal prompts: the branches then differ by their picture alone."""
    more = {"negative_prompt": negative, "ip_adapter_image": picture(32, 32), **SMALL}
    recorder = check(adapted, lambda: paint(adapted, PROMPT, **more), [PROMPT], branches=GUIDED)
    for array in recorder.recordings[0].arrays:  # the tokens of the picture are apart
        assert array.shape[-1] == 77
        np.testing.assert_allclose(array.sum(-1), 1, atol=TOLERANCE)


def test_a_callback_of_diffusers_switches_an_ip_adapter_off(adapted):
    cutoff = IPAdapterScaleCutoffCallback(cutoff_step_ratio=None, cutoff_step_index=0)
    more = {"ip_adapter_image": picture(32, 32), **SMALL}

    def images(**callbacks):
        adapted.set_ip_adapter_scale(0.6)
        return paint(adapted, PROMPT, **more, **callbacks)

    whole = images()
    bare = images(callback_on_step_end=cutoff)
    with trace(adapted):
        traced = images(callback_on_step_end=cutoff)
    np.testing.assert_array_equal(traced, bare)
    assert not np.array_equal(bare, whole)


# --- the text ---


def test_a_learned_word_has_all_its_tokens_wherever_it_stands(load, tmp_path):
    pipe = load("sd1")
    models.save_textual_inversion(tmp_path / "cat", "<cat>", vectors=3, width=32)
    pipe.load_textual_inversion(str(tmp_path / "cat"))
    prompts = ["a <cat>, at <cat>", PROMPT]
    more = {"negative_prompt": ["at <cat>", "tree"], "seeds": (1, 2), **SMALL}
    recorder = check(pipe, lambda: paint(pipe, prompts, **more), prompts, branches=GUIDED)
    table, maps = recorder.recordings[0].table, recorder.maps[0]
    assert [word.tokens for word in table.words] == [(1,), (2, 3, 4), (6,), (7, 8, 9)]
    summed = sum(maps.token(place).values for place in table.find("<cat>"))
    np.testing.assert_allclose(maps["<cat>"].values, summed, atol=TOLERANCE)
    negative = recorder.negative_maps[0].recording.table
    assert [word.tokens for word in negative.words] == [(1,), (2, 3, 4)]


@pytest.mark.parametrize("vectors", [(3, 3), (3, 2)])
def test_a_learned_word_of_two_encoders_has_the_same_tokens_or_is_refused(load, tmp_path, vectors):
    pipe, prompt = load("sdxl"), "a <cat> at a house"
    for end, count in zip(("", "_2"), vectors, strict=True):
        encoder, tokenizer = (getattr(pipe, f"{n}{end}") for n in ("text_encoder", "tokenizer"))
        folder, width = tmp_path / f"cat{end}", encoder.config.hidden_size
        models.save_textual_inversion(folder, "<cat>", vectors=count, width=width)
        pipe.load_textual_inversion(str(folder), tokenizer=tokenizer, text_encoder=encoder)
    if vectors != (3, 2):
        more = {"guidance_scale": 1.0, **SMALL}
        recorder = check(pipe, lambda: paint(pipe, prompt, **more), [prompt], ALONE)
        assert recorder.recordings[0].table.find("<cat>") == (2, 3, 4)
        return
    passes = count_passes(pipe)
    with pytest.raises(TraceError, match="<cat>"):
        hm.generate(pipe, prompt, seed=1, steps=1)
    assert not passes


# By family the arguments of encode_prompt, and the places of arguments in its result.
UNGUIDED = {"do_classifier_free_guidance": False}
ENCODED = {
    "sd1": ({"device": "cpu", "num_images_per_prompt": 1, **UNGUIDED}, {"prompt_embeds": 0}),
    "sdxl": (UNGUIDED, {"prompt_embeds": 0, "pooled_prompt_embeds": 2}),
    "sigma": (
        {"max_sequence_length": 40, **UNGUIDED},
        {"prompt_embeds": 0, "prompt_attention_mask": 1},
    ),
    "sd3": (
        {"prompt_2": None, "prompt_3": None, "max_sequence_length": 12, **UNGUIDED},
        {"prompt_embeds": 0, "pooled_prompt_embeds": 2},
    ),
    "flux": (
        {"prompt_2": None, "max_sequence_length": 12},
        {"prompt_embeds": 0, "pooled_prompt_embeds": 1},
    ),
    "chroma": ({"max_sequence_length": 12}, {"prompt_embeds": 0, "prompt_attention_mask": 2}),
    "bria": ({"max_sequence_length": 12, **UNGUIDED}, {"prompt_embeds": 0}),
    "aura": (
        {"max_sequence_length": 12, **UNGUIDED},
        {"prompt_embeds": 0, "prompt_attention_mask": 1},
    ),
    "klein": ({"max_sequence_length": 24}, {"prompt_embeds": 0}),
    "ovis": ({"max_sequence_length": 24, **UNGUIDED}, {"prompt_embeds": 0}),
    "qwen": ({"max_sequence_length": 12}, {"prompt_embeds": 0, "prompt_embeds_mask": 1}),
    "krea": ({"max_sequence_length": 14}, {"prompt_embeds": 0, "prompt_embeds_mask": 1}),
    "cogview4": ({"max_sequence_length": 16, **UNGUIDED}, {"prompt_embeds": 0}),
    "lumina2": (UNGUIDED, {"prompt_embeds": 0, "prompt_attention_mask": 1}),
}


@pytest.mark.parametrize("family", ENCODED)
def test_prompt_embeds_are_recorded_by_position_or_by_their_labels(load, family):
    pipe, row, (options, places) = load(family), TABLE[family], ENCODED[family]
    with torch.no_grad():
        made = pipe.encode_prompt(PAIR, **options)
    more = {name: made[place] for name, place in places.items()}
    more |= {name: value for name, value in options.items() if name == "max_sequence_length"}
    more |= dict(zip(("width", "height"), row.size, strict=True), seeds=(1, 2))
    if family not in ("flux", "qwen"):
        more["guidance_scale"] = float(family != "krea")
    if family == "sigma":
        more |= {"negative_prompt": None, "use_resolution_binning": False}
    tokens = made[0].shape[1] + registers(denoiser(pipe))
    if family == "lumina2":
        tokens = int(made[1].sum(1).max())
    numbers = [" ".join(map(str, range(tokens)))] * 2
    for labels in (None, PAIR):
        recorder = check(pipe, lambda: paint(pipe, **more), labels or numbers, ALONE, labels=labels)
        counts = [tokens] * 2 if labels is None else [3, 2]
        assert [len(maps.words) for maps in recorder.maps] == counts
    passes = count_passes(pipe)
    with pytest.raises(TraceError), trace(pipe, prompts=PAIR[::-1]):
        paint(pipe, **more)
    assert not passes


def test_prompt_embeds_longer_than_one_text_are_recorded(load):
    """Prompt weighting tools join several texts of 77 tokens."""
    pipe = load("sd1")
    with torch.no_grad():
        made = [pipe.encode_prompt(text, "cpu", 1, True) for text in PAIR]
    states = [torch.cat(parts, dim=1) for parts in zip(*made, strict=True)]
    given = dict(zip(("prompt_embeds", "negative_prompt_embeds"), states, strict=True))
    check(pipe, lambda: paint(pipe, **given, **SMALL), [" ".join(map(str, range(154)))])


def test_clip_skip_gives_exact_maps(load):
    pipe = load("sdxl")
    check(pipe, lambda: paint(pipe, PROMPT, clip_skip=1, **SMALL), [PROMPT])


@pytest.mark.parametrize("family", ["sd1", "sigma", "sana", "hunyuan"])
def test_negative_prompts_of_a_batch_give_exact_maps(load, family):
    """Diffusers repeats masks in another order than the texts: that is what acts."""
    more = {"negative_prompt": ["at night", ""], "num_images_per_prompt": 2, "seeds": range(4)}
    recorder = check_family(load(family), family, PAIR, **more)
    found = [recording.table.prompt for recording in recordings_of(recorder.negative_maps)]
    assert found == ["at night", "at night", "", ""]


def test_two_pipelines_in_two_threads_keep_their_own_maps(load):
    """Also those with one text encoder, which reads both prompts at the same time."""
    one = load("sd1")
    # Not the tokenizer: transformers' own is no matter for two threads (a call sets how it pads).
    pipes = one, load("sd1", text_encoder=one.text_encoder)

    def record(pipe, prompt, step=lambda *given: given[-1]):
        with trace(pipe, WHOLE) as recorder:
            image = paint(pipe, prompt, callback_on_step_end=step, **SMALL)
        return image, recorder.recordings[0].arrays

    alone = list(map(record, pipes, PAIR))
    before = [state_of(pipe) for pipe in pipes]
    together, encode = Barrier(2, timeout=60), one.text_encoder.forward

    def meet(*args, **kwargs):
        together.wait()
        return encode(*args, **kwargs)

    def step(*given):  # so that their layers run at the same time
        together.wait()
        return given[-1]

    one.text_encoder.forward = meet
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(partial(record, step=step), pipes, PAIR))
    del one.text_encoder.forward
    for (image, arrays), (expected, maps) in zip(results, alone, strict=True):
        assert np.array_equal(image, expected)
        assert all(map(np.array_equal, arrays, maps))
    for pipe, state in zip(pipes, before, strict=True):
        assert_restored(pipe, state)


def end_guidance(pipe, step, timestep, given):
    """As diffusers' documentation has it: guidance is dropped after some steps."""
    if step == 1:
        given["prompt_embeds"] = given["prompt_embeds"].chunk(2)[-1]
        pipe._guidance_scale = 0.0
    return given


def stop(pipe, step, timestep, given):
    pipe._interrupt = step == 1
    return given


EMBEDS = {"callback_on_step_end_tensor_inputs": ["prompt_embeds"]}


@pytest.mark.parametrize(
    ("callback", "more", "layout"),
    [
        (end_guidance, EMBEDS, [GUIDED, GUIDED, ALONE, ALONE]),
        (stop, {}, [GUIDED] * 2),
    ],
)
def test_what_a_callback_changes_has_exact_maps(load, callback, more, layout):
    pipe = load("sd1")

    def call():
        return paint(pipe, PROMPT, steps=4, callback_on_step_end=callback, **more, **SMALL)

    check(pipe, call, [PROMPT], layout)


def test_black_images_are_noted_and_give_one_warning(load, tmp_path):
    pipe = load("short")

    def check_images(images, *_):
        return torch.stack([images[0], torch.zeros_like(images[1])]), [False, True]

    pipe.run_safety_checker = check_images
    with pytest.warns(HeedmapWarning, match=PAIR[1]) as warned:
        runs = generate_batch(pipe, PAIR, seeds=[1, 2], steps=2)
    assert len(warned) == 1
    assert [run.settings.nsfw_content_detected for run in runs] == [False, True]
    assert [run.image.getbbox() is None for run in runs] == [False, True]
    assert (
        hm.Run.load(runs[1].save(tmp_path / "x", overlays=False)).settings.nsfw_content_detected
        is True
    )
