"""Language models as text encoders (Qwen-Image, Flux.2, CogView 4): templates and padding."""

import pytest
import torch
from diffusers import (
    CogView4ControlPipeline,
    CogView4Transformer2DModel,
    QwenImageControlNetInpaintPipeline,
    QwenImageControlNetModel,
    QwenImageControlNetPipeline,
)

import heedmap as hm
from families import models
from families.checking import ALONE, WHOLE, check, paint
from families.joint import PROMPTS, asked
from heedmap.backends import loading
from heedmap.backends.prompts import Reading, prompt_table, read_concepts
from heedmap.errors import ArgumentError, HeedmapError, TraceError
from heedmap.recording.tracing import trace

# --- padding ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("prompts", [["at", "a red house at sea"], ["a red house at sea", "at"]])
@pytest.mark.parametrize("family", ["qwen", "cogview4"])
def test_concepts_of_prompts_of_unlike_length_are_their_own_tokens(load, family, prompts):
    """Also where the padding of the batch moves those of the shorter one."""
    pipe, read = load(family), []
    encoder = pipe.text_encoder
    encoder.register_forward_hook(
        lambda _, args, kwargs, __: read.append(args[0] if args else kwargs["input_ids"]),
        with_kwargs=True,
    )
    given = {"prompt": prompts, "max_sequence_length": 64}
    if family == "cogview4":
        given["do_classifier_free_guidance"] = False
    found = read_concepts(Reading(pipe, given), pipe.encode_prompt, ("tree",), prompts)
    (rows,) = read
    dropped = pipe.prompt_template_encode_start_idx if family == "qwen" else 0
    for concept, row in zip(found, rows, strict=True):
        (places,) = concept.places
        assert pipe.tokenizer.decode(row[dropped:][list(places)]).strip() == "tree"


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
def test_a_prompt_with_words_of_the_template_is_found_in_its_place(load, family):
    pipe, more = load(family), asked(family, width=32, height=32, steps=1)
    more["max_sequence_length"] += 20
    for prompt in ("user", "the image user", "{} a", "\n\na", "", "Grüße 🏠"):
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


# --- other pipelines, and what is refused --------------------------------------------------------


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


@pytest.mark.parametrize("inpaints", [False, True])
def test_a_controlnet_beside_qwen_image(load, inpaints):
    """Its pipelines give the model the shapes of images in a flat list."""
    parts = load("qwen").components
    kind = QwenImageControlNetInpaintPipeline if inpaints else QwenImageControlNetPipeline
    own = {"num_layers": 1, "out_channels": 4, "joint_attention_dim": 16, "in_channels": 16}
    config = {"attention_head_dim": 16, "num_attention_heads": 3, "axes_dims_rope": (4, 4, 8)}
    torch.manual_seed(4)
    net = QwenImageControlNetModel(**own, **config, extra_condition_channels=4 * inpaints)
    for block in net.controlnet_blocks:  # which start at zero
        torch.nn.init.normal_(block.weight, std=0.1)
    pipe = kind(**parts, controlnet=net.eval())
    pipe.set_progress_bar_config(disable=True)
    more = asked("qwen", width=48, height=80, control_image=models.picture(48, 80))
    if inpaints:
        more["control_mask"] = models.mask(48, 80)
    check(pipe, lambda: paint(pipe, prompt=PROMPTS[0], **more), PROMPTS[:1], ALONE)


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
    more = asked("klein", size=size, image=models.picture(20, 20))  # too small for the pipeline
    with pytest.raises(ArgumentError, match="image"):
        hm.generate(pipe, "a red house", seed=1, steps=1, **more)
    assert not ran
