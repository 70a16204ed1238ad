"""Text and image in one softmax: shares against float64, words, runs, and what is refused."""

import re
import warnings

import diffusers
import numpy as np
import pytest
import torch
from oracle import assert_probabilities

import heedmap as hm
from families import models
from families.checking import (
    ALONE,
    GUIDED,
    WHOLE,
    assert_restored,
    check,
    denoiser,
    paint,
    reference,
    state_of,
)
from families.joint import NAMES, NEGATIVE, PROMPTS, ROOM, asked
from heedmap.backends import loading
from heedmap.backends.latents import latents_of, pictures_of, rescaled, unscaled
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import (
    check_served,
    cross_attention_layers,
    family_of,
    unit,
    usual_size,
)
from heedmap.errors import HeedmapError, ModelError, SelectionError, TraceError
from heedmap.recording.tracing import trace

EACH = pytest.mark.parametrize("family", NAMES)
SAVED = pytest.mark.parametrize("family", ["sd3", "flux", "chroma", "klein", "qwen", "cogview4"])
SMALL = {"width": 64, "height": 64}

# The layers of each in running order, and their groups.
DOUBLE, FOUR = {"double": 2, "single": 2}, {"early": 2, "middle": 1, "late": 1}
GROUPS = dict.fromkeys(NAMES, DOUBLE) | {"sd3": FOUR, "sd35": FOUR}
GROUPS["qwen"] = GROUPS["cogview4"] = {"early": 1, "middle": 1, "late": 1}


def layers_of(family: str) -> list[str]:
    count = len(GROUPS[family]) if family in ("qwen", "cogview4") else 4
    names = [f"transformer_blocks.{n}.attn" for n in range(count)]
    if GROUPS[family] is DOUBLE:
        names[2:] = [f"single_{name}" for name in names[:2]]
    return [f"{name}1" for name in names] if family == "cogview4" else names


# --- the probabilities --------------------------------------------------------------------------


@EACH
def test_shares_agree_with_float64_for_prompts_of_different_length(load, family):
    pipe, (width, height) = load(family), (48, 80)
    more = asked(family, width=width, height=height, num_images_per_prompt=2)
    prompts = [text for text in PROMPTS for _ in range(2)]
    call = lambda: paint(pipe, prompt=PROMPTS, seeds=(1, 2, 3, 4), **more)  # noqa: E731
    recorder = check(pipe, call, prompts, ALONE)
    least = 0.95 if family.startswith(("sd3", "flux", "schnell")) else 0.98
    for recording in recorder.recordings:
        assert [layer.name for layer in recording.layers] == layers_of(family)
        assert recording.size == (width, height)
        assert {layer.grid for layer in recording.layers} == {(height // 16, width // 16)}
        for array in recording.arrays:  # the image's keys have the rest
            assert array.sum(-1).max() <= 1 + 1e-6 and array.sum(-1).min() < least


@pytest.mark.parametrize("family", NEGATIVE)
def test_the_negative_prompt_runs_in_a_pass_of_its_own(load, family):
    pipe = load(family)
    more = {"max_sequence_length": ROOM[family], **SMALL, **NEGATIVE[family]}

    def call():
        return paint(pipe, prompt=PROMPTS, seeds=(1, 2), **more)

    with reference(pipe) as scores:
        bare = call()
    before = state_of(pipe)
    branches = ("conditional", "negative")
    with trace(pipe, WHOLE, tokens="all", branches=branches) as recorder:
        assert np.array_equal(call(), bare)
    assert_restored(pipe, before)
    for first, recordings in ((0, recorder.recordings), (1, recorder.negative_recordings)):
        assert len(recordings) == 2
        for image, recording in enumerate(recordings):
            for layer, array in zip(recording.layers, recording.arrays, strict=True):
                expected = np.stack([found[image] for found in scores[layer.name][first::2]])
                assert_probabilities(array, expected, scores.near[layer.name])
    negative = more.get("negative_prompt", ["", ""])
    assert [maps.tokens.prompt for maps in recorder.negative_maps] == negative
    assert not np.allclose(recorder.recordings[0].arrays[0][1], recorder.recordings[0].arrays[0][0])


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("flux", torch.float16), *((family, torch.bfloat16) for family in NAMES[4:])],
)
def test_half_types_leave_the_image_as_it_is(load, family, dtype):
    """Pipelines that divide the timestep by 1000 round it in the latents' type."""
    pipe = load(family).to(dtype)
    more = asked(family, steps=5, output_type="latent", **SMALL)
    bare = paint(pipe, prompt=PROMPTS[0], **more)
    with trace(pipe, WHOLE) as recorder:
        assert np.array_equal(paint(pipe, prompt=PROMPTS[0], **more), bare)
    (recording,) = recorder.recordings
    assert recording.timesteps == tuple(map(float, pipe.scheduler.timesteps))
    assert recorder.maps[0]["house"].values.max() > 0


# --- words --------------------------------------------------------------------------------------


READERS = {  # the methods by which encoders read a prompt
    "sd3": "_get_t5_prompt_embeds",
    "klein": "_get_qwen3_prompt_embeds",
    "dev2": "_get_mistral_3_small_prompt_embeds",
    "qwen": "_get_qwen_prompt_embeds",
}


@pytest.mark.parametrize("family", READERS)
def test_labels_are_those_that_the_encoder_read(load, family):
    pipe = load(family)
    read = getattr(pipe, READERS[family])

    def other(*args, **more):
        if "prompt" in more:
            return read(*args, **more | {"prompt": ["at sea"]})
        return read(["at sea"], *args[1:], **more)

    setattr(pipe, READERS[family], other)
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, prompt="a red house", **asked(family, width=32, height=32))


@pytest.mark.parametrize(
    ("family", "other"),
    [
        *(("sd3", name) for name in ("prompt_2", "prompt_3", "negative_prompt_3")),
        ("sdxl", "prompt_2"),
    ],
)
def test_encoders_that_read_other_prompts_are_refused(load, family, other):
    pipe, ran = load(family), []
    denoiser(pipe).register_forward_pre_hook(lambda *_: ran.append(1))
    branches = ("conditional", "negative")
    with pytest.raises(TraceError, match=other), trace(pipe, branches=branches):
        paint(pipe, "a red house", **{other: "a blue house"})
    assert not ran


def test_words_are_those_of_the_prompt_that_attention_reads(load):
    """T5 reads the second prompt of Flux, and CLIP's vector of the first has no attention."""
    pipe, second = load("flux"), ["a blue house", "at sea"]
    more = asked("flux", true_cfg_scale=3.0, negative_prompt=["a", "a"], **SMALL)
    more |= {"prompt_2": second, "negative_prompt_2": ["at night", ""]}  # an empty one is none

    def call():
        return paint(pipe, prompt=["a red house", "a cat"], seeds=(1, 2), **more)

    with reference(pipe) as scores:
        bare = call()
    with trace(pipe, WHOLE, tokens="all", branches=["conditional", "negative"]) as recorder:
        assert np.array_equal(call(), bare)
    for image, recording in enumerate(recorder.recordings):
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            expected = np.stack([found[image] for found in scores[layer.name][::2]])
            np.testing.assert_allclose(array, expected, atol=1e-5)
    assert [maps.tokens.prompt for maps in recorder.maps] == second
    assert [maps.tokens.prompt for maps in recorder.negative_maps] == ["at night", ""]
    with pytest.warns(hm.HeedmapWarning, match="blue:2"):  # only the prompt takes weights
        hm.generate(pipe, "at", prompt_2="a (blue:2) sea", steps=1, size=(32, 32), seed=1)


@EACH
def test_advice_about_attention_out_of_sight_can_be_followed(load, family):
    """What it names as a method of the model is one."""
    pipe = load(family)
    layer = next(iter(cross_attention_layers(pipe).values()))
    kind = type(layer.processor)
    hidden = type(kind.__name__, (kind,), {"__call__": lambda self, attn, states, *_, **__: states})
    layer.set_processor(hidden())
    with pytest.raises(TraceError) as told, trace(pipe):
        paint(pipe, prompt="a red house", steps=1, **asked(family, **SMALL))
    for method in re.findall(r"(\w+)\(", str(told.value)):
        assert hasattr(pipe.transformer, method)


# By family the arguments of encode_prompt, and the places of arguments in its result.
ENCODED = {
    "sd3": (
        {"prompt_2": None, "prompt_3": None, "do_classifier_free_guidance": False},
        {"prompt_embeds": 0, "pooled_prompt_embeds": 2},
    ),
    "flux": ({"prompt_2": None}, {"prompt_embeds": 0, "pooled_prompt_embeds": 1}),
    "chroma": ({}, {"prompt_embeds": 0, "prompt_attention_mask": 2}),
    "klein": ({}, {"prompt_embeds": 0}),
    "qwen": ({}, {"prompt_embeds": 0, "prompt_embeds_mask": 1}),
    "cogview4": ({}, {"prompt_embeds": 0}),
}


@SAVED
def test_prompt_embeds(load, family):
    pipe, more = load(family), asked(family, width=32, height=32)
    options, places = ENCODED[family]
    made = pipe.encode_prompt(PROMPTS, max_sequence_length=ROOM[family], **options)
    embeds = {name: made[place] for name, place in places.items()}
    for labels, counts in ((None, [made[0].shape[1]] * 2), (PROMPTS, [3, 1])):
        with trace(pipe, prompts=labels) as recorder:
            paint(pipe, seeds=(1, 2), **embeds, **more)
        assert [len(maps.words) for maps in recorder.maps] == counts
    with pytest.raises(TraceError), trace(pipe, prompts=["a blue house", "at sea"]):
        paint(pipe, seeds=(1, 2), **embeds, **more)


@pytest.mark.parametrize(
    ("family", "given", "is_idle"),
    [
        ("qwen", {}, True), ("schnell", {}, True), ("schnell", {"guidance": 1.0}, False),
        ("schnell", NEGATIVE["flux"], True),  # which is guided by true_cfg_scale
        *((family, {}, False) for family in ("flux", "chroma", "klein", "dev2", "cogview4", "sd3")),
        ("lcm", {}, False), ("sd1", {}, False), ("sprint", {}, False),
    ],
)  # fmt: skip
def test_guidance_that_changes_nothing_gives_a_warning(load, family, given, is_idle):
    pipe, given = load(family), {"guidance": 3.0, "size": (64, 64), "steps": 2, "seed": 1} | given
    if "negative_prompt" in given:
        given["negative_prompt"] = "at night"
    if family in NAMES:
        given["max_sequence_length"] = ROOM[family]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", hm.HeedmapWarning)
        run = hm.generate(pipe, "a red house", **given)
    said = [one for one in caught if issubclass(one.category, hm.HeedmapWarning)]
    assert any("guidance" in str(one.message) for one in said) == is_idle
    assert run.image.size == (64, 64)


# --- runs ---------------------------------------------------------------------------------------


@SAVED
def test_models_load_with_and_without_their_weights(folder, family):
    pipe, outline = hm.load(folder(family)), loading.outline(folder(family))
    assert type(pipe) is type(outline) and outline.transformer.device.type == "meta"
    tables = [prompt_table(one, "a red house", asked(family)) for one in (pipe, outline)]
    assert tables[0] == tables[1] and unit(outline) == 16
    assert list(cross_attention_layers(outline)) == list(cross_attention_layers(pipe))
    words = loading.token_table("a red house", folder(family)).words  # of the tokenizers alone
    assert words == prompt_table(pipe, "a red house").words


@pytest.mark.parametrize("family", [one for one in NAMES if one not in ("sd3", "schnell")])
def test_runs_are_saved_and_repeat(load, family, tmp_path):
    pipe, more = load(family), asked(family)
    if family == "sd35":
        more |= {"negative": "at sea", "guidance_scale": 4.0}
    assert unit(pipe) == 16 and usual_size(pipe) == (64, 64)
    run = hm.generate(pipe, "a red house", seed=1, steps=2, keep="all", **more)
    assert run.image.size == (64, 64)
    run.save(tmp_path / "run")
    groups = [group for group, count in GROUPS[family].items() for _ in range(count)]
    for maps in (run.maps, hm.Run.load(tmp_path / "run").maps):
        layers = maps.recording.layers
        assert [layer.group for layer in layers] == groups
        last = maps.select(layers=groups[-1])["house"].values
        names = [layer.short for layer in layers if layer.group == groups[-1]]
        assert np.array_equal(maps.select(layers=names)["house"].values, last)
        for part in ({"layers": groups[0]}, {"layers": groups[-1], "steps": slice(1, 2)}):
            values = maps.select(**part)["house"].values
            assert values.max() > 0 and not np.array_equal(values, last)
        assert maps.select(steps=1, heads=[0, 2])["house"].values.max() > 0
        with pytest.raises(SelectionError, match=groups[0]):
            maps.select(layers="up")
    page = (tmp_path / "run" / "index.html").read_text()
    assert page.count(f'"group":"{groups[-1]}"') == groups.count(groups[-1])
    assert hm.repeat(pipe, tmp_path / "run").same
    found = hm.ablate(pipe, run, "house")
    assert not found.without["attention"].maps["house"].values.any()
    assert found.without["prompt"].maps.keys() == ("a", "red")


@pytest.mark.parametrize("family", ["flux", "chroma", "klein", "dev2", "qwen", "cogview4"])
def test_each_step_has_a_small_image_of_its_latents(load, family):
    """Latents are unpacked for it: packed ones have no rows and columns."""
    pipe, seen = load(family), []
    run = hm.generate(
        pipe, "at", seed=1, steps=2, size=(64, 48), keep=["step"], preview=seen.append,
        **asked(family),
    )  # fmt: skip
    assert [tuple(latents.shape) for latents in seen] == [(1, 4, 6, 8)] * 2
    opened = unscaled(pipe.vae, seen[-1])
    if family == "flux":
        torch.testing.assert_close(opened, seen[-1] / 0.3611 + 0.1159)
    shown = torch.from_numpy(np.array(run.image)).movedim(-1, 0) / 255
    torch.testing.assert_close(
        pictures_of(pipe.vae, opened)[0].clamp(0, 1), shown, atol=3e-3, rtol=0
    )
    torch.testing.assert_close(rescaled(pipe.vae, opened), seen[-1], atol=1e-5, rtol=1e-5)
    assert latents_of(pipe.vae, shown[None]).shape == (1, 4, 6, 8)
    assert len(run.step_pictures.frames) == 2


@pytest.mark.parametrize("family", ["flux", "chroma", "klein", "dev2", "qwen"])
def test_packing_is_undone(load, family):
    pipe, latents = load(family), torch.randn(2, 4, 6, 10)
    packed = family_of(pipe).pack(latents)
    assert packed.shape == (2, 15, 16)
    assert torch.equal(packed[1, 7].view(4, 2, 2), latents[1, :, 2:4, 4:6])  # row 1, column 2
    assert torch.equal(family_of(pipe).unpack(packed, (6, 10)), latents)


@pytest.mark.parametrize("family", ["flux", "klein"])
def test_latents_of_the_users_own(load, family):
    """Flux.2 takes them unpacked; in a trace, packed as its scheduler has them, too."""
    pipe, latents = load(family), torch.randn(1, 4, 6, 8)
    packed = family_of(pipe).pack(latents)
    own = packed if family == "flux" else pipe._patchify_latents(latents)
    more = asked(family, width=64, height=48, prompt="at")
    bare = paint(pipe, latents=own, **more)
    for given in (own, packed):
        with trace(pipe):
            assert np.array_equal(paint(pipe, latents=given, **more), bare)
    for seed in (1, 2):
        run = hm.generate(pipe, seed=seed, steps=2, latents=packed, **more)
        np.testing.assert_allclose(np.asarray(run.image) / 255, bare[0], atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize(
    ("family", "kind", "layout"),
    [
        ("sd3", "StableDiffusion3Img2ImgPipeline", GUIDED),
        ("flux", "FluxImg2ImgPipeline", ALONE),
        ("qwen", "QwenImageImg2ImgPipeline", ALONE),
    ],
)
def test_image_to_image(load, family, kind, layout):
    pipe = load(family, getattr(diffusers, kind))
    more = {"image": models.picture(64, 64), "strength": 0.7, "steps": 4, **SMALL}
    more = asked(family, **more) | ({"guidance_scale": 5.0} if layout == GUIDED else {})
    check(pipe, lambda: paint(pipe, prompt=PROMPTS[0], **more), PROMPTS[:1], layout)


@pytest.mark.parametrize(
    ("family", "name"),
    [("sd35", "transformer_blocks.2.attn"), ("flux", "single_transformer_blocks.1.attn")],
)
def test_the_pipeline_is_restored_after_an_error(load, family, name):
    pipe = load(family)
    layer = pipe.transformer.get_submodule(name)

    def fail(self, *args, **kwargs):
        raise RuntimeError("out of order")

    layer.set_processor(type("Failing", (type(layer.processor),), {"__call__": fail})())
    with pytest.raises(RuntimeError):  # a call leaves attributes and hooks of its own
        paint(pipe, prompt=PROMPTS[0], **asked(family))
    before = state_of(pipe)
    with pytest.raises(RuntimeError, match="out of order"), trace(pipe):
        paint(pipe, prompt=PROMPTS[0], **asked(family))
    assert_restored(pipe, before)


# --- refused before sampling --------------------------------------------------------------------


@pytest.mark.parametrize(("family", "prompt"), [("flux", "at"), ("klein", ""), ("qwen", "at")])
def test_a_prompt_that_is_the_negative_prompt_is_refused(load, family, prompt):
    """The two passes of a step then read the same states, in no order that is known."""
    more = {**NEGATIVE[family], "negative_prompt": prompt} if prompt else {}
    more |= {"max_sequence_length": ROOM[family], "width": 32, "height": 32}
    with pytest.raises(TraceError), trace(pipe := load(family)):
        paint(pipe, prompt=prompt, **more)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("sd3", "StableDiffusion3PAGPipeline"),  # it perturbs the attention of a part
        ("flux", "FluxKontextPipeline"),  # these have positions of another image
        ("klein", "Flux2KleinInpaintPipeline"),
        ("qwen", "QwenImageEditPipeline"),
    ],
)
def test_pipelines_that_have_no_map_of_their_image_are_refused(load, family, kind):
    pipe = load(family)
    pipe.__class__ = getattr(diffusers, kind)
    with pytest.raises(ModelError, match=r"perturbs|beside"):
        check_served(pipe)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("sd3", "StableDiffusion3InpaintPipeline"),
        ("flux", "FluxInpaintPipeline"),
        ("qwen", "QwenImageInpaintPipeline"),
    ],
)
def test_an_enlarged_crop_is_refused(load, family, kind):
    pipe = load(family, getattr(diffusers, kind))
    pictures = {"image": models.picture(64, 64), "mask_image": models.picture(64, 64)}
    more = {"max_sequence_length": 12, "padding_mask_crop": 4, **SMALL}
    with pytest.raises(HeedmapError, match="crop"), trace(pipe):
        pipe(prompt="a red house", num_inference_steps=2, strength=1.0, **pictures, **more)
