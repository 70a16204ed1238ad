"""Text and image in one softmax: shares against float64, on models of the real classes."""

import numpy as np
import pytest
import torch
from diffusers import StableDiffusion3Img2ImgPipeline, StableDiffusion3PAGPipeline
from diffusers.models.attention_processor import JointAttnProcessor2_0
from torch.nn.functional import scaled_dot_product_attention

import heedmap as hm
from families import models
from families.checking import (
    ALONE,
    GUIDED,
    WHOLE,
    assert_restored,
    check,
    paint,
    reference,
    state_of,
)
from heedmap.backends import loading
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import (
    cross_attention_layers,
    family_of,
    self_attention_layers,
    unit,
    usual_size,
)
from heedmap.errors import (
    HeedmapError,
    HeedmapWarning,
    ModelError,
    SelectionError,
    TraceError,
    TruncatedWordError,
    WordError,
)
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "at sea"]
SHORT = {"max_sequence_length": 12}
EACH = pytest.mark.parametrize("family", ["sd3", "sd35"])
CLIP = 77


# --- the probabilities --------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_shares_agree_with_float64_at_every_layer_head_and_step(load, family, guidance):
    pipe = load(family)
    layout = GUIDED if guidance > 1 else ALONE
    branches = ("conditional", "negative") if guidance > 1 else ("conditional",)

    def call():
        return paint(pipe, PROMPTS, seeds=(1, 2), guidance_scale=guidance, **SHORT)

    recorder = check(pipe, call, PROMPTS, layout, branches=branches)
    for recording in recorder.recordings:
        assert [layer.name for layer in recording.layers] == [
            f"transformer_blocks.{n}.attn" for n in range(4)
        ]
        for array in recording.arrays:
            # The image's keys have the rest: true shares of text alone never reach 1.
            assert array.sum(-1).max() <= 1 + 1e-6 and array.sum(-1).min() < 0.95


@EACH
@pytest.mark.parametrize(("width", "height"), [(48, 80), (80, 16)])
def test_odd_sizes_and_several_images_of_a_prompt(load, family, width, height):
    pipe = load(family)
    more = dict(width=width, height=height, num_images_per_prompt=2, **SHORT)
    prompts = [text for text in PROMPTS for _ in range(2)]
    recorder = check(
        pipe, lambda: paint(pipe, PROMPTS, seeds=(1, 2, 3, 4), **more), prompts, GUIDED
    )
    assert recorder.recordings[0].latent == (height // 8, width // 8)


def test_half_types_are_summed_in_float32(load):
    """A kernel's log-sum in bfloat16 is good to 1e-4 only: the recording does not use it."""
    pipe = load("sd35", dtype=torch.bfloat16)
    seen = []

    def keep(query, key, value, *args, **kwargs):
        seen.append((query, key))
        return scaled_dot_product_attention(query, key, value, *args, **kwargs)

    class Keeping(JointAttnProcessor2_0):
        """Diffusers' processor, whose queries and keys are kept."""

        def __call__(self, attn, hidden_states, *args, **kwargs):
            before = torch.nn.functional.scaled_dot_product_attention
            torch.nn.functional.scaled_dot_product_attention = keep
            try:
                return super().__call__(attn, hidden_states, *args, **kwargs)
            finally:
                torch.nn.functional.scaled_dot_product_attention = before

    call = dict(guidance_scale=1.0, steps=1, **SHORT)
    bare = paint(pipe, PROMPTS[0], **call)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPTS[0], **call), bare)
    pipe.transformer.transformer_blocks[1].attn.set_processor(Keeping())
    paint(pipe, PROMPTS[0], **call)
    ((query, key),) = seen
    image = query.shape[2] - CLIP - SHORT["max_sequence_length"]
    scores = query[:, :, :image].double() @ key.double().mT / query.shape[-1] ** 0.5
    found = recorder.recordings[0].arrays[1][0]
    np.testing.assert_allclose(found, scores.softmax(-1)[0, :, :, image:], atol=1e-6)


def test_large_scores_keep_their_digits(load):
    """Scores of some hundreds: the log-sum of a kernel would lose what they have in common."""
    pipe = load("sd3")
    for block in pipe.transformer.transformer_blocks:
        block.attn.to_q.weight.data.mul_(30)
    with reference(pipe) as scores, trace(pipe, WHOLE, tokens="all") as recorder:
        paint(pipe, PROMPTS[0], guidance_scale=1.0, steps=1, **SHORT)
    assert max(passes[0].max() for passes in scores.values()) > 0.999
    for layer, array in zip(
        recorder.recordings[0].layers, recorder.recordings[0].arrays, strict=True
    ):
        # Float32 rounds a score of 300 at its seventh digit, in any order of the computation.
        np.testing.assert_allclose(array[0], scores[layer.name][0][0], atol=2e-4)


def test_fused_projections(load):
    """Diffusers cannot fuse those of SD 3.5, whose second attention reads no text."""
    pipe = load("sd3")
    pipe.transformer.fuse_qkv_projections()
    call = dict(guidance_scale=1.0, **SHORT)
    with reference(pipe) as scores:
        bare = paint(pipe, PROMPTS[0], **call)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPTS[0], **call), bare)
    for layer, array in zip(
        recorder.recordings[0].layers, recorder.recordings[0].arrays, strict=True
    ):
        np.testing.assert_allclose(array, np.concatenate(scores[layer.name]), atol=1e-5)


# --- words --------------------------------------------------------------------------------------


def test_a_word_has_its_tokens_of_clip_and_of_t5(load):
    pipe = load("sd3")
    table = prompt_table(pipe, "a red house, at sea", SHORT)
    length = CLIP + SHORT["max_sequence_length"]
    assert table.parts == (CLIP, 12) and table.limit == len(table.tokens) == length
    assert [token.position for token in table.tokens] == list(range(length))
    # T5 reads "a" as two tokens, and has no start token.
    assert [(word.text, word.tokens) for word in table.words[:3]] == [
        ("a", (1, 77, 78)),
        ("red", (2, 3, 4, 79, 80, 81)),
        ("house", (5, 82)),
    ]
    ids = [
        *pipe.tokenizer(table.prompt, padding="max_length", max_length=CLIP).input_ids,
        *pipe.tokenizer_3(
            table.prompt, padding="max_length", max_length=12, truncation=True
        ).input_ids,
    ]
    assert [token.id for token in table.tokens] == ids


def test_a_map_is_the_sum_over_all_positions_of_a_word(load):
    run = hm.generate(load("sd3"), "a red house", seed=1, steps=2, tokens="all", **SHORT)
    recording = run.maps.recording
    assert recording.positions == tuple(range(CLIP + 12))
    parts = sum(run.maps.token(position).values for position in (5, 82))
    np.testing.assert_allclose(run.maps["house"].values, parts, atol=1e-6)
    assert run.maps.token(5).values.max() > 0 and run.maps.token(82).values.max() > 0


def test_one_encoder_alone_is_selected(load):
    run = hm.generate(load("sd3"), "a red house", seed=1, steps=2, **SHORT)
    for encoder, position in enumerate((5, 82)):
        maps = run.maps.select(encoder=encoder)
        assert np.array_equal(maps["house"].values, run.maps.token(position).values)
        assert maps.words == run.maps.tokens.of_encoder(encoder).words
    with pytest.raises(WordError):
        run.maps.select(encoder=2)


def test_a_word_past_clip_is_read_by_t5(load):
    pipe = load("sd3")
    prompt = "r " * 74 + "house at"
    table = prompt_table(pipe, prompt, {"max_sequence_length": 100})
    house, at = table.words[-2:]
    assert len(house.tokens) == 2 and house.missing == 0  # the last that CLIP reads
    assert len(at.tokens) == 1 and at.tokens[0] >= CLIP and at.missing == 0
    assert not table.unread and table.loads == ((75, 75), (76, 99)) and table.room == 99
    clip = table.of_encoder(0)
    assert clip.find("house") == house.tokens[:1]
    with pytest.raises(TruncatedWordError):
        clip.find("at")
    cut = prompt_table(pipe, prompt, {"max_sequence_length": 76})
    assert cut.words[-1].tokens == () and cut.words[-1].missing == 1
    assert "'at'" in cut.unread and cut.room == 75


def test_without_t5_its_positions_are_padding(load):
    """The pipeline then passes zeros: no word may be labelled with them, even with a tokenizer."""
    for parts in ({"text_encoder_3": None}, {"text_encoder_3": None, "tokenizer_3": None}):
        pipe = load("sd3", **parts)
        recorder = check(pipe, lambda pipe=pipe: paint(pipe, PROMPTS[0], **SHORT), PROMPTS[:1])
        table = recorder.recordings[0].table
        assert {token.kind for token in table.tokens[CLIP:]} == {"pad"}
        assert table.room == 75
        assert [word.tokens for word in table.words] == [(1,), (2, 3, 4), (5,)]


def test_words_without_weights(folder):
    """`heedmap words` loads the tokenizers alone."""
    table = loading.token_table("a red house", folder("sd3"))
    assert table.parts == (CLIP, 256)
    assert table.find("house") == (5, 82)


def test_labels_are_those_that_every_encoder_read(load):
    pipe = load("sd3")
    for name in ("prompt_2", "prompt_3", "negative_prompt_3"):
        branches = ("conditional", "negative")
        with pytest.raises(TraceError), trace(pipe, branches=branches):
            paint(pipe, "a red house", **{name: "a blue house"}, **SHORT)
    read = type(pipe)._get_t5_prompt_embeds
    pipe._get_t5_prompt_embeds = lambda prompt, **more: read(pipe, ["at sea"], **more)
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, "a red house", **SHORT)


@pytest.mark.parametrize("labels", [None, ["a red house"]])
def test_prompt_embeds(load, labels):
    pipe = load("sd3")
    names = ("prompt_embeds", None, "pooled_prompt_embeds", None)
    made = pipe.encode_prompt("a red house", None, None, do_classifier_free_guidance=False, **SHORT)
    embeds = {name: one for name, one in zip(names, made, strict=True) if name}
    with trace(pipe, prompts=labels) as recorder:
        pipe(**embeds, guidance_scale=1.0, num_inference_steps=2, output_type="latent", **SHORT)
    words = recorder.maps[0].words
    assert len(words) == (CLIP + 12 if labels is None else 3)
    with pytest.raises(TraceError), trace(pipe, prompts=["at sea"]):
        pipe(**embeds, guidance_scale=1.0, num_inference_steps=2, output_type="latent", **SHORT)


# --- layers and geometry ------------------------------------------------------------------------


@EACH
def test_the_second_attention_of_the_image_alone_is_not_recorded(load, family):
    pipe = load(family)
    own = [0, 1] if family == "sd35" else []
    assert list(cross_attention_layers(pipe)) == [f"transformer_blocks.{n}.attn" for n in range(4)]
    assert list(self_attention_layers(pipe)) == [f"transformer_blocks.{n}.attn2" for n in own]
    run = hm.generate(pipe, "a red house", seed=1, steps=2, **SHORT)
    assert len(run.maps.recording.layers) == 4


def test_sizes_are_multiples_of_a_patch(load):
    pipe = load("sd3")
    assert unit(pipe) == 16 and usual_size(pipe) == (64, 64)
    assert family_of(pipe).grid("transformer_blocks.0.attn", (10, 6)) == (5, 3)
    with pytest.raises(HeedmapError):
        hm.generate(pipe, "a red house", seed=1, size=(72, 64))


def test_groups_are_thirds_of_the_depth(load, tmp_path):
    pipe = load("sd3")
    run = hm.generate(pipe, "a red house", seed=1, steps=2, keep="all", **SHORT)
    run.save(tmp_path / "run")
    for maps in (run.maps, hm.Run.load(tmp_path / "run").maps):
        layers = maps.recording.layers
        assert [layer.group for layer in layers] == ["early", "early", "middle", "late"]
        assert [layer.short for layer in layers] == [f"transformer {n}" for n in range(4)]
        late = maps.select(layers="late")["house"].values
        assert np.array_equal(late, maps.select(layers="transformer 3")["house"].values)
        assert not np.array_equal(late, maps.select(layers="early")["house"].values)
        assert maps.select(steps=1, heads=[0, 2])["house"].values.max() > 0
        with pytest.raises(SelectionError, match="early"):
            maps.select(layers="up")
    assert (tmp_path / "run" / "index.html").read_text().count('"group":"late"') == 1


# --- passes -------------------------------------------------------------------------------------


def test_skip_layer_guidance_records_the_usual_pass_alone(load):
    """It runs the model again in some steps, without some layers, on the prompt alone."""
    pipe = load("sd3")
    more = {"skip_guidance_layers": [1], "skip_layer_guidance_stop": 0.9}
    calls = []

    def call():
        return paint(pipe, PROMPTS[0], steps=3, **more, **SHORT)

    hook = pipe.transformer.register_forward_pre_hook(lambda *_: calls.append(1))
    bare = call()
    hook.remove()
    assert len(calls) == 5  # in the second and third step
    with reference(pipe) as scores:
        call()
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(call(), bare)
    (recording,) = recorder.recordings
    passes = [found for found in scores["transformer_blocks.0.attn"] if len(found) == 2]
    expected = np.stack([found[1] for found in passes])
    np.testing.assert_allclose(recording.arrays[0], expected, atol=1e-5)


def test_image_to_image(load):
    pipe = load("sd3", StableDiffusion3Img2ImgPipeline)
    more = {"image": models.picture(64, 64), "strength": 0.7, "steps": 4, **SHORT}
    check(pipe, lambda: paint(pipe, PROMPTS[0], **more), PROMPTS[:1])


class Failing(JointAttnProcessor2_0):
    def __call__(self, *args, **kwargs):
        raise RuntimeError("out of order")


def test_the_pipeline_is_restored_after_an_error(load):
    pipe = load("sd35")
    pipe.transformer.transformer_blocks[2].attn.set_processor(Failing())
    with pytest.raises(RuntimeError):  # a call leaves attributes and hooks of its own
        paint(pipe, PROMPTS[0], **SHORT)
    before = state_of(pipe)
    with pytest.raises(RuntimeError, match="out of order"), trace(pipe):
        paint(pipe, PROMPTS[0], **SHORT)
    assert_restored(pipe, before)


class Widened(JointAttnProcessor2_0):
    """Adds keys of its own to those of text and image."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        wide = torch.cat([encoder_hidden_states, encoder_hidden_states[:, :3]], dim=1)
        output, text = super().__call__(attn, hidden_states, wide, *args, **kwargs)
        return output, text[:, : encoder_hidden_states.shape[1]]


def test_other_keys_than_text_and_image_are_refused(load):
    pipe = load("sd3")
    pipe.transformer.transformer_blocks[0].attn.set_processor(Widened())
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, PROMPTS[0], **SHORT)


# --- refused before sampling --------------------------------------------------------------------


def test_perturbed_attention_guidance_is_refused(load):
    parts = load("sd3").components
    parts = {name: part for name, part in parts.items() if part is not None}
    pipe = StableDiffusion3PAGPipeline(**parts, pag_applied_layers=["0"])
    with pytest.raises(ModelError, match="perturbs"):
        trace(pipe)


# --- the commands -------------------------------------------------------------------------------


def test_repeat_gives_the_same_image(load, tmp_path):
    pipe = load("sd35")
    run = hm.generate(pipe, "a red house", seed=1, steps=2, negative="at sea", **SHORT)
    run.save(tmp_path / "run")
    result = hm.repeat(pipe, tmp_path / "run")
    assert result.same


def test_long_prompts_warn_of_words_that_no_encoder_reads(load):
    with pytest.warns(HeedmapWarning, match="'at'"):
        hm.generate(
            load("sd3"), "r " * 75 + "at", seed=1, steps=1, max_sequence_length=20, guidance=1
        )
