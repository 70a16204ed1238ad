"""Stable Diffusion 3 and 3.5: words of CLIP and T5, guidance in one batch, exact sums."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import JointAttnProcessor2_0
from oracle import assert_probabilities

import heedmap as hm
from families.checking import GUIDED, WHOLE, check, paint, reference
from families.joint import SHORT
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import self_attention_layers
from heedmap.errors import TraceError, TruncatedWordError, WordError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "at sea"]
CLIP = 77


# --- the probabilities --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["sd3", "sd35"])
def test_guided_shares_agree_with_float64_in_a_single_row_of_positions(load, family):
    pipe, branches = load(family), ("conditional", "negative")
    more = {"width": 80, "height": 16, "num_images_per_prompt": 2, "guidance_scale": 5.0, **SHORT}
    prompts = [text for text in PROMPTS for _ in range(2)]

    def call():
        return paint(pipe, PROMPTS, seeds=(1, 2, 3, 4), **more)

    recorder = check(pipe, call, prompts, GUIDED, branches=branches)
    assert recorder.recordings[0].latent == (2, 10)


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
        assert_probabilities(array[0], scores[layer.name][0][0], scores.near[layer.name])


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


def test_a_map_is_the_sum_over_both_encoders_and_each_is_selected_alone(load):
    run = hm.generate(load("sd3"), "a red house", seed=1, steps=2, tokens="all", **SHORT)
    assert run.maps.recording.positions == tuple(range(CLIP + 12))
    parts = [run.maps.token(position).values for position in (5, 82)]
    np.testing.assert_allclose(run.maps["house"].values, sum(parts), atol=1e-6)
    for encoder, values in enumerate(parts):
        maps = run.maps.select(encoder=encoder)
        assert np.array_equal(maps["house"].values, values) and values.max() > 0
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


# --- layers and geometry ------------------------------------------------------------------------


def test_the_second_attention_is_of_the_image_alone(load):
    layers = [list(self_attention_layers(load(family))) for family in ("sd3", "sd35")]
    assert layers == [[], [f"transformer_blocks.{n}.attn2" for n in range(2)]]


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
    assert_probabilities(recording.arrays[0], expected, next(iter(scores.near.values())))


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
