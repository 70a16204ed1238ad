"""Language models as text encoders (Qwen-Image, Flux.2, CogView 4), and the mask of Chroma."""

import numpy as np
import pytest
import torch
from diffusers import (
    CogView4ControlPipeline,
    CogView4Transformer2DModel,
    Flux2KleinInpaintPipeline,
    FluxInpaintPipeline,
    QwenImageEditPipeline,
    QwenImageImg2ImgPipeline,
    QwenImageInpaintPipeline,
    StableDiffusion3InpaintPipeline,
)

import heedmap as hm
from families import models
from families.checking import ALONE, WHOLE, assert_restored, check, paint, reference, state_of
from heedmap.backends import loading
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import check_served, cross_attention_layers, family_of, unit
from heedmap.errors import HeedmapError, ModelError, TraceError
from heedmap.recording.tracing import trace

pytestmark = pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning")
PROMPTS = ["a red house", "at"]
NAMES = ("cogview4", "qwen", "klein", "chroma", "dev2")
SAVED = pytest.mark.parametrize("family", NAMES[:4])
EACH = pytest.mark.parametrize("family", NAMES)
PACKED = pytest.mark.parametrize("family", NAMES[1:])
# What each is asked for: no guidance, and room for its template.
ROOM = {"cogview4": 16, "qwen": 12, "klein": 24, "chroma": 12, "dev2": 230}
UNGUIDED = {"guidance_scale": 1.0}
PLAIN = {"cogview4": UNGUIDED, "qwen": {}, "klein": UNGUIDED, "chroma": UNGUIDED, "dev2": {}}
GUIDED = {
    "cogview4": {"negative_prompt": ["at night", "a"], "guidance_scale": 3.0},
    "qwen": {"negative_prompt": ["at night", "a"], "true_cfg_scale": 3.0},
    "klein": {"guidance_scale": 3.0},
    "chroma": {"negative_prompt": ["at night", "a"], "guidance_scale": 3.0},
}


def asked(family, **more):
    return {"max_sequence_length": ROOM[family], **PLAIN[family], **more}


@pytest.fixture
def load(load):
    def of(family, *args, **arguments):
        pipe = models.dev2() if family == "dev2" else load(family, *args, **arguments)
        pipe.default_sample_size = 8  # it is no part of the configuration
        return pipe

    return of


# --- the probabilities --------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize(("width", "height"), [(64, 64), (48, 80)])
def test_shares_agree_with_float64_for_prompts_of_different_length(load, family, width, height):
    pipe = load(family)
    more = asked(family, width=width, height=height, num_images_per_prompt=2)
    prompts = [text for text in PROMPTS for _ in range(2)]
    call = lambda: paint(pipe, prompt=PROMPTS, seeds=(1, 2, 3, 4), **more)  # noqa: E731
    recorder = check(pipe, call, prompts, ALONE)
    names = list(cross_attention_layers(pipe))
    for recording in recorder.recordings:
        assert [layer.name for layer in recording.layers] == names
        assert recording.size == (width, height)
        for array in recording.arrays:
            assert array.sum(-1).max() <= 1 + 1e-6 and array.sum(-1).min() < 0.98


@SAVED
def test_the_negative_prompt_runs_in_a_pass_of_its_own(load, family):
    pipe = load(family)
    more = {"max_sequence_length": ROOM[family], "width": 64, "height": 64, **GUIDED[family]}

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
                np.testing.assert_allclose(array, expected, atol=1e-5)
    negative = more.get("negative_prompt", ["", ""])
    assert [maps.tokens.prompt for maps in recorder.negative_maps] == negative
    assert not np.allclose(recorder.recordings[0].arrays[0][1], recorder.recordings[0].arrays[0][0])


def test_padding_of_the_shorter_prompt_has_exactly_nothing(load):
    """Qwen-Image pads a batch to its longest prompt, and hides the padding."""
    pipe = load("qwen")
    more = asked("qwen", width=64, height=64)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        paint(pipe, prompt=PROMPTS, seeds=(1, 2), **more)
    long, short = recorder.recordings
    counts = [len(prompt_table(pipe, text, more).tokens) for text in PROMPTS]
    assert counts[0] > counts[1] and len(short.table.tokens) == len(long.table.tokens) == counts[0]
    padding = short.table.positions("pad")
    assert padding == tuple(range(counts[1], counts[0])) and not long.table.positions("pad")
    for array in short.arrays:
        assert (array[..., list(padding)] == 0).all()
        assert (array[..., : counts[1]] > 0).all()


def test_padding_of_cogview_stands_in_front_and_is_seen(load):
    """It pads to the longest prompt of a batch and to a multiple of 16, without a mask."""
    pipe = load("cogview4")
    more = asked("cogview4", width=64, height=64) | {"max_sequence_length": 40}
    prompts = ["a red house at night at sea", "at"]
    with trace(pipe, WHOLE, tokens="all") as recorder:
        paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    long, short = recorder.recordings
    assert len(prompt_table(pipe, "at", more).tokens) == 16
    assert len(short.table.tokens) == len(long.table.tokens) == 32
    assert short.table.positions("pad") == tuple(range(28)) and short.table.find("at") == (30, 31)
    assert all((array > 0).all() for array in short.arrays)


@EACH
def test_half_types_leave_the_image_as_it_is(load, family):
    pipe = load(family).to(torch.bfloat16)
    more = asked(family, width=64, height=64, steps=4, output_type="latent")
    bare = paint(pipe, prompt=PROMPTS[0], **more)
    with trace(pipe) as recorder:
        assert np.array_equal(paint(pipe, prompt=PROMPTS[0], **more), bare)
    assert recorder.maps[0]["house"].values.max() > 0


# --- words --------------------------------------------------------------------------------------


def test_words_stand_inside_of_the_template(load, folder):
    pipe = load("qwen")
    table = prompt_table(pipe, "a red house, at sea", {"max_sequence_length": 64})
    # 34 tokens of the template are dropped, and its last five are read.
    text = pipe.prompt_template_encode.format(table.prompt)
    assert [token.id for token in table.tokens] == pipe.tokenizer(text).input_ids[34:]
    assert [(word.text, word.tokens) for word in table.words] == [
        ("a", (0,)), ("red", (1, 2)), ("house", (3, 4)), ("at", (6, 7)), ("sea", (8, 9, 10)),
    ]  # fmt: skip
    assert table.positions("end") == tuple(range(11, 16)) and not table.positions("start")
    assert loading.token_table(table.prompt, folder("qwen")).words == table.words
    pipe = load("klein")
    table = prompt_table(pipe, "a red house", {"max_sequence_length": 24})
    assert table.find("house") == (6, 7) and table.positions("start") == (0, 1, 2)
    assert table.positions("end") == tuple(range(8, 17)) and table.room == 12
    assert loading.token_table("a red house", folder("klein")).find("house") == (6, 7)


@pytest.mark.parametrize("family", ["cogview4", "qwen", "klein", "dev2"])
@pytest.mark.parametrize("prompt", ["user", "the image user", "{} a", "\n\na", "", "Grüße 🏠"])
def test_a_prompt_with_words_of_the_template_is_found_in_its_place(load, family, prompt):
    pipe, more = load(family), asked(family, width=32, height=32, steps=1)
    more["max_sequence_length"] += 20
    with trace(pipe, tokens="all") as recorder:  # which compares with what the encoder read
        paint(pipe, prompt=prompt, **more)
    table = recorder.maps[0].tokens
    assert [word.text for word in table.words] == [w for w in prompt.split() if w != "{}"]
    texts = [token.text for token in table.tokens if token.kind == "text"]
    assert bool(texts) == bool(prompt) and all(text in prompt for text in texts)


def test_a_long_prompt_loses_its_last_words(load):
    pipe = load("qwen")
    prompt = "r " * 10 + "house at"
    more = asked("qwen", width=32, height=32, steps=1)
    with pytest.warns(hm.HeedmapWarning, match="'at'"), trace(pipe, tokens="all") as recorder:
        paint(pipe, prompt=prompt, **more)
    table = recorder.maps[0].tokens
    assert len(table.tokens) == 12 == table.room and not table.positions("end")
    assert table.words[-1].tokens == () and table.words[-1].missing == 2


def test_a_template_that_changes_the_prompt_is_refused(load):
    pipe = load("klein")
    pipe.tokenizer.chat_template = pipe.tokenizer.chat_template.replace(
        "message.content", "message.content | trim"
    )
    more = asked("klein", width=32, height=32, steps=1)
    hm.generate(pipe, "a red house", seed=1, **asked("klein"), size=(32, 32), steps=1)
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, prompt=" a red house", **more)


def test_labels_are_those_that_the_encoder_read(load):
    for family in ("qwen", "klein", "dev2"):
        pipe = load(family)
        name = {"qwen": "_get_qwen_prompt_embeds", "klein": "_get_qwen3_prompt_embeds"}
        name = name.get(family, "_get_mistral_3_small_prompt_embeds")
        read = getattr(pipe, name)

        def other(*args, read=read, **more):
            if "prompt" in more:
                return read(*args, **more | {"prompt": ["at sea"]})
            return read(["at sea"], *args[1:], **more)

        setattr(pipe, name, other)
        with pytest.raises(TraceError), trace(pipe):
            paint(pipe, prompt="a red house", **asked(family, width=32, height=32))


@SAVED
@pytest.mark.parametrize("labels", [None, PROMPTS])
def test_prompt_embeds(load, family, labels):
    pipe, more = load(family), asked(family, width=32, height=32)
    made = pipe.encode_prompt(PROMPTS, max_sequence_length=ROOM[family])
    embeds = {"prompt_embeds": made[0]}
    if family in ("qwen", "chroma"):
        name = "prompt_embeds_mask" if family == "qwen" else "prompt_attention_mask"
        embeds[name] = made[1 if family == "qwen" else 2]
    with trace(pipe, prompts=labels) as recorder:
        paint(pipe, seeds=(1, 2), **embeds, **more)
    words = [len(maps.words) for maps in recorder.maps]
    assert words == ([3, 1] if labels else [made[0].shape[1]] * 2)
    with pytest.raises(TraceError), trace(pipe, prompts=["a blue house", "at sea"]):
        paint(pipe, seeds=(1, 2), **embeds, **more)


# --- runs ---------------------------------------------------------------------------------------


@SAVED
def test_models_load_with_and_without_their_weights(folder, family):
    pipe, outline = hm.load(folder(family)), loading.outline(folder(family))
    assert type(pipe) is type(outline) and outline.transformer.device.type == "meta"
    tables = [prompt_table(one, "a red house", asked(family)) for one in (pipe, outline)]
    assert tables[0] == tables[1] and unit(outline) == 16
    assert list(cross_attention_layers(outline)) == list(cross_attention_layers(pipe))


@EACH
def test_runs_are_saved_and_repeat(load, family, tmp_path):
    pipe, more = load(family), asked(family)
    run = hm.generate(pipe, "a red house", seed=1, steps=3, keep="all", **more)
    assert run.image.size == (64, 64) and unit(pipe) == 16
    run.save(tmp_path / "run")
    thirds = family in ("qwen", "cogview4")
    groups = ["early", "middle", "late"] if thirds else ["double"] * 2 + ["single"] * 2
    for maps in (run.maps, hm.Run.load(tmp_path / "run").maps):
        layers = maps.recording.layers
        assert [layer.group for layer in layers] == groups
        last = maps.select(layers=groups[-1], steps=slice(1, 3))["red house"].values
        assert last.max() > 0 and not np.array_equal(last, maps["red house"].values)
    assert (tmp_path / "run" / "index.html").is_file()
    assert hm.repeat(pipe, tmp_path / "run").same
    found = hm.ablate(pipe, run, "house")
    assert not found.without["attention"].maps["house"].values.any()
    assert found.without["prompt"].maps.keys() == ("a", "red")


@EACH
def test_each_step_has_a_small_image_of_its_latents(load, family):
    pipe, seen = load(family), []
    run = hm.generate(
        pipe, "at", seed=1, steps=2, size=(64, 48), keep=["step"], preview=seen.append,
        **asked(family),
    )  # fmt: skip
    assert [tuple(latents.shape) for latents in seen] == [(1, 4, 6, 8)] * 2
    from heedmap.backends.latents import latents_of, pictures_of, rescaled, unscaled

    opened = unscaled(pipe.vae, seen[-1])
    shown = torch.from_numpy(np.array(run.image)).movedim(-1, 0) / 255
    torch.testing.assert_close(
        pictures_of(pipe.vae, opened)[0].clamp(0, 1), shown, atol=3e-3, rtol=0
    )
    torch.testing.assert_close(rescaled(pipe.vae, opened), seen[-1], atol=1e-5, rtol=1e-5)
    assert latents_of(pipe.vae, shown[None]).shape == (1, 4, 6, 8)
    assert len(run.step_pictures.frames) == 2


@PACKED
def test_packing_is_undone(load, family):
    pipe, latents = load(family), torch.randn(2, 4, 6, 10)
    packed = family_of(pipe).pack(latents)
    assert packed.shape == (2, 15, 16)
    assert torch.equal(packed[1, 7].view(4, 2, 2), latents[1, :, 2:4, 4:6])  # row 1, column 2
    assert torch.equal(family_of(pipe).unpack(packed, (6, 10)), latents)


def test_latents_of_the_users_own(load):
    """Flux.2 takes them unpacked; in a trace, packed as its scheduler has them, too."""
    pipe, latents = load("klein"), torch.randn(1, 4, 6, 8)
    more = asked("klein", width=64, height=48, prompt="at")
    bare = paint(pipe, latents=pipe._patchify_latents(latents), **more)
    for given in (pipe._patchify_latents(latents), family_of(pipe).pack(latents)):
        with trace(pipe):
            assert np.array_equal(paint(pipe, latents=given, **more), bare)


def test_image_to_image(load):
    pipe = load("qwen", QwenImageImg2ImgPipeline)
    more = asked("qwen", image=models.picture(64, 64), strength=0.7, steps=4, width=64, height=64)
    check(pipe, lambda: paint(pipe, prompt=PROMPTS[0], **more), PROMPTS[:1], ALONE)


def test_control_by_the_channels_of_an_image(load):
    parts = load("cogview4").components
    config = {**parts["transformer"].config, "in_channels": 8}
    torch.manual_seed(4)
    parts["transformer"] = models.sharpened(CogView4Transformer2DModel.from_config(config))
    pipe = CogView4ControlPipeline(**parts)
    more = asked("cogview4", width=64, height=64, control_image=models.picture(64, 64))

    def call():
        torch.manual_seed(5)  # the pipeline draws the control image's latents without a generator
        return paint(pipe, prompt=PROMPTS[0], **more)

    check(pipe, call, PROMPTS[:1], ALONE)


# --- edits --------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("kind", ["weight", "renormalized", "confined", "rule"])
def test_edits_of_prompts_of_different_length(load, family, kind):
    """P' of the first layer is as defined, and each image is that of its prompt alone."""
    pipe, prompts = load(family), ["a red house at", "at"]
    word = {
        "weight": hm.Reweight("at", -1.5),
        "renormalized": hm.Reweight("at", 4, renormalize=True),
        "confined": hm.Confine("at", (0, 0, 32, 32), strength=1.5, end=1.0, along=[]),
        "rule": lambda p, site: p.flip(1),
    }[kind]
    more = asked(family, width=64, height=64, output_type="latent")
    with reference(pipe) as scores:
        plain = paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    with trace(pipe, WHOLE, tokens="all", edits=[word]) as recorder:
        both = paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    inside = np.zeros((4, 4), bool)
    inside[:2, :2] = True
    for image, recording in enumerate(recorder.recordings):
        table = recording.table
        p = next(iter(scores.values()))[0][image].astype(np.float64)
        rest = 1 - p.sum(-1, keepdims=True)
        factor = np.ones_like(p[0])
        if kind == "confined":
            factor[:, list(table.find("at"))] = np.where(inside, np.exp(1.5), 0).reshape(-1, 1)
            factor[:, list(table.positions("end", "pad"))] = inside.reshape(-1, 1)
        elif kind != "rule":
            factor[:, list(table.find("at"))] = -1.5 if kind == "weight" else 4
        expected = p[:, ::-1] if kind == "rule" else p * factor
        if kind in ("confined", "renormalized"):
            expected = expected / (expected.sum(-1, keepdims=True) + rest)
        np.testing.assert_allclose(recording.arrays[0][0], expected, atol=1e-5)
        with trace(pipe, edits=[word]):
            alone = paint(pipe, prompt=prompts[image], seeds=(image + 1,), **more)
        near = 1e-4 * np.ptp(alone)
        np.testing.assert_allclose(both[image], alone[0], rtol=0, atol=near)
        assert np.abs(both[image] - plain[image]).max() > 3 * near


@EACH
def test_a_rule_that_changes_nothing_gives_the_plain_image(load, family):
    pipe, prompts = load(family), ["a red house at", "at"]
    more = asked(family, width=64, height=64, output_type="latent")
    plain = paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    with pytest.warns(hm.HeedmapWarning), trace(pipe, edits=[lambda p, site: p.clone()]):
        same = paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    np.testing.assert_allclose(same, plain, rtol=0, atol=1e-4 * np.ptp(plain))


@pytest.mark.filterwarnings("ignore:the edit:heedmap.errors.HeedmapWarning")
@EACH
def test_edits_of_a_source_with_more_tokens(load, family):
    """A word that stays takes the source's columns, wherever both prompts have its tokens."""
    pipe, more = load(family), asked(family, steps=2)
    plain = hm.generate(pipe, "a red house", seed=1, **more)
    result = hm.edit(
        pipe, "a red house", "at a red house", seed=1, cross_replace=1.0, self_replace=0.0,
        keep="all", **more,
    )  # fmt: skip
    near = np.abs(np.asarray(result.source.image, float) - np.asarray(plain.image, float)).max()
    assert near <= 1
    source, edited = (run.maps.recording for run in (result.source, result.edited))
    assert len(source.table.tokens) == len(edited.table.tokens)
    for word in ("red", "house"):
        before, after = (
            [one.positions.index(place) for place in one.table.find(word)]
            for one in (source, edited)
        )
        for array, other in zip(source.arrays, edited.arrays, strict=True):
            np.testing.assert_allclose(array[..., before], other[..., after], atol=1e-5)
            assert array[..., before].max() > 1e-3


def test_edits_that_move_the_tokens_of_a_source_are_refused(load):
    """CogView 4 pads in front of the shorter prompt."""
    pipe, ran = load("cogview4"), []
    pipe.transformer.register_forward_hook(lambda *_: ran.append(1))
    more = asked("cogview4") | {"max_sequence_length": 40}
    with pytest.raises(HeedmapError):
        hm.edit(pipe, "a red house", "a red house at night at sea", seed=1, steps=2, **more)
    assert not ran


# --- refused before sampling --------------------------------------------------------------------


def test_a_prompt_that_is_the_negative_prompt_is_refused(load):
    """The two passes of a step then read the same states, in no order that is known."""
    for family, prompt in (("qwen", "at"), ("klein", "")):
        negative = {"negative_prompt": "at"} if family == "qwen" else {}
        more = {"max_sequence_length": ROOM[family], "width": 32, "height": 32, **negative}
        with pytest.raises(TraceError), trace(pipe := load(family)):
            paint(pipe, prompt=prompt, **more)


def test_a_negative_prompt_is_refused_where_the_pipeline_takes_none(load):
    pipe, ran = load("klein"), []
    pipe.transformer.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(HeedmapError):
        hm.generate(pipe, "a red house", seed=1, steps=1, negative="at sea", **asked("klein"))
    assert not ran


@pytest.mark.parametrize("size", [(64, 64), (32, 128)])
def test_positions_of_another_image_are_refused(load, size):
    """Also where 2·8 and 4·4 positions are as many as those of 4·8."""
    pipe, ran = load("klein"), []
    pipe.transformer.register_forward_hook(lambda *_: ran.append(1))
    width, height = size
    more = asked("klein", width=width, height=height, image=models.picture(64, 64))
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, prompt="a red house", **more)
    assert not ran
    for family, kind in (("klein", Flux2KleinInpaintPipeline), ("qwen", QwenImageEditPipeline)):
        pipe = load(family)
        pipe.__class__ = kind
        with pytest.raises(ModelError, match="beside"):
            check_served(pipe)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("qwen", QwenImageInpaintPipeline),
        ("flux", FluxInpaintPipeline),
        ("sd3", StableDiffusion3InpaintPipeline),
    ],
)
def test_an_enlarged_crop_is_refused(load, family, kind):
    pipe = load(family, kind)
    pictures = {"image": models.picture(64, 64), "mask_image": models.picture(64, 64)}
    more = {"width": 64, "height": 64, "max_sequence_length": 12, "padding_mask_crop": 4}
    with pytest.raises(HeedmapError, match="crop"), trace(pipe):
        pipe(prompt="a red house", num_inference_steps=2, strength=1.0, **pictures, **more)
