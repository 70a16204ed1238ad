"""Every family: exact maps of the right rows, the picture untouched."""

import numpy as np
import pytest
import torch
from diffusers import PixArtSigmaPipeline, Transformer2DModel
from transformers import CLIPTokenizer

from families.checking import ALONE, GUIDED, PIX2PIX, check, paint
from families.models import mask, picture
from heedmap.backends.registry import cross_attention_layers, self_attention_layers
from heedmap.errors import ArgumentError, HeedmapWarning, TraceError
from heedmap.pipelines.editing import edit
from heedmap.pipelines.generation import generate
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "the cat sat at a big tree"]

ODD = {"width": 192, "height": 288, "use_resolution_binning": False, "max_sequence_length": 40}

SMALL = {"width": 64, "height": 96, "use_resolution_binning": False}
STARTED = {"image": [picture(128, 128)] * 2, "steps": 4, "strength": 0.5}
MASKED = {"image": picture(128, 96), "mask_image": mask(128, 96), "width": 128, "height": 96}

# Family, what its call needs beside guidance, the branches of its batch, the latent's (h, w).
CASES = [
    ("sd1", {}, GUIDED, (16, 16)),
    ("sd2", {}, GUIDED, (16, 16)),
    ("turbo", {"guidance_scale": 0.0, "steps": 1}, ALONE, (16, 16)),
    ("lcm", {"guidance_scale": 8.0}, ALONE, (16, 16)),
    ("pix2pix", {"image": [picture(96, 128)] * 2}, PIX2PIX, (16, 12)),
    ("inpainting", MASKED, GUIDED, (12, 16)),
    ("sdxl", {}, GUIDED, (16, 16)),
    ("refiner", STARTED, GUIDED, (16, 16)),
    ("upscaler", {"image": [picture(24, 16)] * 2}, GUIDED, (16, 24)),
    ("sigma", {}, GUIDED, (32, 32)),
    ("alpha", SMALL, GUIDED, (12, 8)),
    ("sigma", {"guidance_scale": 1.0}, ALONE, (32, 32)),
    ("sana", ODD, GUIDED, (9, 6)),
    ("sana15", ODD, GUIDED, (9, 6)),
    ("sprint", ODD, ALONE, (9, 6)),
    ("hunyuan", SMALL, GUIDED, (12, 8)),
]


@pytest.mark.parametrize(("family", "arguments", "layout", "latent"), CASES)
def test_each_family_gives_exact_maps(load, family, arguments, layout, latent):
    pipe, arguments = load(family), {"guidance_scale": 5.0, **arguments}
    recorder = check(pipe, lambda: paint(pipe, PROMPTS, seeds=(1, 2), **arguments), PROMPTS, layout)
    h, w = latent
    factor = pipe.vae_scale_factor
    for recording, maps in zip(recorder.recordings, recorder.maps, strict=True):
        assert recording.latent == latent
        assert recording.size == (w * factor, h * factor)
        assert maps[recording.table.words[-1].text].values.max() > 0


@pytest.mark.parametrize("family", ["sdxl", "pix2pix"])
def test_each_family_gives_exact_maps_of_the_negative_branch(load, family):
    pipe = load(family)
    arguments = {"image": picture(128, 128)} if family == "pix2pix" else {}
    layout = PIX2PIX if family == "pix2pix" else GUIDED

    def call():
        return paint(pipe, PROMPTS[0], guidance_scale=5.0, negative_prompt="ugly hat", **arguments)

    recorder = check(pipe, call, PROMPTS[:1], layout, branches=("conditional", "negative"))
    assert recorder.recordings[0].table.prompt == "a red house"
    assert recorder.negative_recordings[0].table.prompt == "ugly hat"
    assert recorder.negative_maps[0]["hat"].values.max() > 0


# --- SDXL: two text encoders, one label ---


def test_labels_of_both_encoders_agree(load):
    pipe = load("sdxl")
    prompt = "at a house!"
    with trace(pipe, tokens="all") as recorder:
        paint(pipe, prompt, guidance_scale=1.0, steps=1)
    table = recorder.recordings[0].table
    for tokenizer in (pipe.tokenizer, pipe.tokenizer_2):
        spans = tokenizer(prompt, return_offsets_mapping=True).offset_mapping[1:-1]
        texts = [prompt[start:end].strip() for start, end in spans]
        assert texts == [token.text for token in table.tokens if token.kind == "text"]
    # The second tokenizer pads with "!", which the user typed too: only that one is text.
    assert [token.text for token in table.tokens[1:6]] == ["at", "a", "house", "!", "<end>"]
    assert {token.kind for token in table.tokens[6:]} == {"pad"}


def test_encoders_that_read_a_text_differently_are_refused(load):
    """CLIP's vocabulary joins "!!", but a tokenizer that pads with "!" reads each apart."""
    pipe = load("sdxl")
    vocabulary = pipe.tokenizer.get_vocab() | {"!!</w>": len(pipe.tokenizer)}
    pipe.tokenizer = CLIPTokenizer(
        vocab=vocabulary, merges=[("!", "!</w>")], model_max_length=77, pad_token="<|endoftext|>"
    )
    assert len(pipe.tokenizer("hm!!").input_ids) < len(pipe.tokenizer_2("hm!!").input_ids)
    pipe.text_encoder.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    steps = []
    with pytest.raises(TraceError, match="house"), trace(pipe):
        paint(pipe, "hm!! house", callback_on_step_end=lambda *given: steps.append(1) or given[-1])
    assert not steps


def test_a_negative_prompt_of_zeros_has_even_maps(load):
    """Without a negative prompt SDXL's negative branch reads zeros, not a text."""
    pipe = load("sdxl")
    with trace(pipe, {"layer"}, tokens="all", branches=("negative",)) as recorder:
        paint(pipe, "a red house", guidance_scale=5.0)
    for array in recorder.negative_recordings[0].arrays:
        np.testing.assert_allclose(array, 1 / 77, atol=1e-6)


# --- PixArt: padding that a mask hides, and a text in small letters ---


@pytest.mark.parametrize("family", ["sigma", "alpha"])
def test_masked_padding_gets_no_attention(load, family):
    pipe = load(family)
    length = {"sigma": 300, "alpha": 120}[family]
    small = {"width": 32, "height": 32, "use_resolution_binning": False}
    with trace(pipe, {"layer"}, tokens="all", branches=("conditional", "negative")) as recorder:
        paint(pipe, PROMPTS, seeds=(1, 2), negative_prompt="no", **small)
    read = [len(pipe.tokenizer(text).input_ids) for text in (*PROMPTS, "no", "no")]
    for recording, seen in zip(
        (*recorder.recordings, *recorder.negative_recordings), read, strict=True
    ):
        kinds = [token.kind for token in recording.table.tokens]
        assert kinds == ["text"] * (seen - 1) + ["end"] + ["pad"] * (length - seen)
        for array in recording.arrays:
            assert not array[..., seen:].any()
            np.testing.assert_allclose(array.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("prompt", ["  A Red HOUSE ", "at İzmir, ΑΣ at sea"])
def test_a_text_that_is_lowercased_keeps_its_words(load, prompt):
    """A small letter may be two: the words are those that were written."""
    pipe = load("sigma")
    recorder = check(pipe, lambda: paint(pipe, prompt, max_sequence_length=40), [prompt])
    table = recorder.recordings[0].table
    read = pipe.tokenizer(prompt.lower().strip())
    assert [token.id for token in table.tokens if token.kind in ("text", "end")] == read.input_ids
    assert [word.text for word in table.words] == prompt.replace(",", "").split()
    for token in table.tokens:
        (piece,) = pipe.tokenizer.convert_ids_to_tokens([token.id])
        if token.kind == "text" and piece not in ("▁", "<unk>"):
            assert token.text.lower().startswith(piece.removeprefix("▁"))


@pytest.mark.parametrize("family", ["sigma", "alpha"])
def test_a_picture_that_is_scaled_after_it_was_drawn_is_refused(load, family):
    """Where the size is no size of the list, the nearest is drawn, scaled and cut."""
    pipe, steps = load(family), []
    told = {"callback": lambda *_: steps.append(1), "callback_steps": 1}
    for size in ({"width": 64, "height": 32}, {"width": 64, "height": 64}):
        with pytest.raises(ArgumentError, match="use_resolution_binning=False"), trace(pipe):
            paint(pipe, PROMPTS[0], **size, **told)
    small = torch.zeros(1, 4, 8, 8)
    with pytest.raises(ArgumentError, match="drawn at 64×64"), trace(pipe):
        paint(pipe, PROMPTS[0], latents=small, **told)
    assert len(steps) == 2  # of noise of another size it is told when the picture is made
    assert not {"classify_height_width_bin", "resize_and_crop_tensor"} & set(
        vars(pipe.image_processor)
    )
    # heedmap's own calls draw the size that they are asked for.
    run = generate(pipe, PROMPTS[0], seed=1, steps=2, size=(64, 32), max_sequence_length=20)
    assert run.image.size == run.maps.recording.size == (64, 32)
    with pytest.raises(ArgumentError):
        generate(pipe, PROMPTS[0], seed=1, steps=2, size=(64, 40))


def test_the_class_name_of_older_models_is_served(folder):
    """PixArt was published with its transformer as a `Transformer2DModel`."""
    at = folder("sigma")
    pipe = PixArtSigmaPipeline.from_pretrained(at)
    config = at / "transformer" / "config.json"
    text = config.read_text()
    try:
        config.write_text(text.replace("PixArtTransformer2DModel", "Transformer2DModel"))
        older = Transformer2DModel.from_pretrained(at / "transformer")
    finally:
        config.write_text(text)
    pipe.transformer = older
    assert list(cross_attention_layers(pipe)) == [f"transformer_blocks.{n}.attn2" for n in range(3)]


# --- Sana: an instruction before the prompt; HunyuanDiT: padding that is replaced ---


@pytest.mark.parametrize(
    ("prompt", "lines"),
    [
        ("  A Red HOUSE ", None),
        ("  A Red HOUSE ", ["draw."]),
        ("?at sea", ["Draw this:", "Prompt: "]),
        ("?at sea", ["draw."]),
    ],
)
def test_words_behind_an_instruction_are_the_prompts(load, prompt, lines):
    """Gemma reads both in one text, and the image reads the last tokens behind the first."""
    pipe = load("sana")
    more = {"max_sequence_length": 12, "complex_human_instruction": lines, **SMALL}
    recorder = check(pipe, lambda: paint(pipe, prompt, **more), [prompt])
    (recording,) = recorder.recordings
    table, text = recording.table, prompt.strip().lower()
    instruction = "\n".join(lines or ())
    pipe.tokenizer.padding_side = "right"
    extra = len(pipe.tokenizer(instruction).input_ids) - 2 if lines else 0
    read = pipe.tokenizer(instruction + text, padding="max_length", max_length=12 + extra)
    assert [token.id for token in table.tokens] == [
        read.input_ids[0], *read.input_ids[extra + 1 :],
    ]  # fmt: skip
    assert [word.text for word in table.words] == prompt.replace("?", "").split()
    for word in table.words:
        assert len(word.tokens) == len(pipe.tokenizer(f" {word.text.lower()}").input_ids) - 1
    for array in recording.arrays:  # a mask hides the padding
        kinds = np.array([token.kind for token in table.tokens])
        assert not array[..., kinds == "pad"].any() and (kinds == "pad").any()
        np.testing.assert_allclose(array.sum(-1), 1, atol=1e-6)


def test_a_long_prompt_behind_an_instruction_is_cut(load):
    pipe, more = load("sana"), {"max_sequence_length": 6, **SMALL}
    with pytest.warns(HeedmapWarning, match="'house'"):
        recorder = check(pipe, lambda: paint(pipe, "a red at house", **more), ["a red at house"])
    words = recorder.recordings[0].table.words
    assert [(word.tokens, word.missing) for word in words] == [
        ((1,), 0), ((2, 3, 4), 0), ((5,), 0), ((), 1),
    ]  # fmt: skip


def test_sana_has_no_refined_maps_and_no_self_attention_to_take(load):
    pipe = load("sana")
    assert self_attention_layers(pipe) == {}
    with pytest.warns(HeedmapWarning, match="linear"):
        pair = edit(pipe, "a red house", "a red tree", seed=1, steps=2, size=(64, 64))
    assert pair.source.maps.recording.refined is None
    assert pair.report.self_sites == 0 and pair.report.sites == 2 * 2


def test_the_default_size_of_sana_is_the_models(load):
    """The pipelines draw 1024 pixels unless they are told, whatever the model was trained on."""
    run = generate(load("sana"), "a red house", seed=1, steps=1)
    assert run.image.size == (512, 512)


def test_padding_of_hunyuan_is_read_by_the_image(load):
    pipe = load("hunyuan")
    recorder = check(pipe, lambda: paint(pipe, "a red house", **SMALL), ["a red house"])
    table = recorder.recordings[0].table
    assert table.parts == (77, 256)
    assert [word.tokens for word in table.words] == [
        (1, 77, 78), (2, 3, 4, 79, 80, 81), (5, 82),
    ]  # fmt: skip
    kinds = np.array([token.kind for token in table.tokens])
    assert ["start", *["text"] * 5, "end"] == list(kinds[:7]) and (kinds == "pad").sum() == 319
    shares = [array[..., kinds == "pad"].sum(-1).mean() for array in recorder.recordings[0].arrays]
    assert min(shares) > 0.05


@pytest.mark.parametrize("labels", [None, ["a red house"]])
def test_embeds_of_both_encoders_of_hunyuan(load, labels):
    pipe = load("hunyuan")
    given = {"guidance_scale": 1.0, **SMALL}
    for number, end in enumerate(("", "_2")):
        made = pipe.encode_prompt("a red house", "cpu", text_encoder_index=number)
        given |= {f"prompt_embeds{end}": made[0], f"prompt_attention_mask{end}": made[2]}
    with trace(pipe, prompts=labels, concepts=["cat"]) as recorder:
        paint(pipe, **given)
    assert len(recorder.maps[0].words) == (333 if labels is None else 3)
    with pytest.raises(TraceError), trace(pipe, prompts=["at sea"]):
        paint(pipe, **given)
