"""What is looked for beside a prompt, in each family: exact, and nothing drawn is changed."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import Attention
from oracle import assert_probabilities

from families.checking import WHOLE, allowed, denoiser, paint, query_and_key
from families.models import picture
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import ArgumentError, TraceError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "the cat sat at a big tree"]
CONCEPTS = ["sea wind", "house", "cat"]


def hidden_of(pipe) -> tuple[dict[str, list[tuple]], list]:
    """What each cross-attention layer is given of the picture, at each pass, and its rotation."""
    seen: dict[str, list[tuple]] = {name: [] for name in cross_attention_layers(pipe)}
    handles = [
        layer.register_forward_pre_hook(
            lambda _, args, kwargs, name=name: seen[name].append(
                (args[0].detach().clone(), kwargs.get("image_rotary_emb"))
            ),
            with_kwargs=True,
        )
        for name, layer in cross_attention_layers(pipe).items()
    ]
    return seen, handles


def encoded(pipe, text: str, instruction: str) -> tuple[torch.Tensor, list[tuple[int, int]]]:
    """The states (K, C) that layers are given of a text, by its encoders alone; tokens' spans."""
    model = denoiser(pipe)

    def read(tokenizer, text: str, length: int):
        return tokenizer(
            text, padding="max_length", max_length=length, truncation=True, return_tensors="pt",
            return_offsets_mapping=True,
        )  # fmt: skip

    if hasattr(model, "text_embedder"):  # HunyuanDiT: padding is replaced, not hidden
        parts, spans = [], []
        for name, length in (("", 77), ("_2", 256)):
            told = read(getattr(pipe, f"tokenizer{name}"), text, length)
            encoder = getattr(pipe, f"text_encoder{name}")
            states = encoder(told.input_ids, attention_mask=told.attention_mask)[0]
            states = model.text_embedder(states) if name else states
            parts.append(states[0].masked_fill(told.attention_mask[0, :, None] == 0, torch.nan))
            spans += told.offset_mapping[0].tolist()
        states = torch.cat(parts)
        return torch.where(states.isnan(), model.text_embedding_padding, states), spans
    if hasattr(pipe, "transformer"):
        extra = len(pipe.tokenizer(instruction).input_ids) - 2 if instruction else 0
        told = read(pipe.tokenizer, instruction + text.lower(), 300 + extra)
        states = pipe.text_encoder(told.input_ids, attention_mask=told.attention_mask)[0]
        states = model.caption_projection(states)
        states = model.caption_norm(states) if hasattr(model, "caption_norm") else states
        seen = told.attention_mask.bool()
        if instruction:
            seen[:, 1 : extra + 1] = False
        spans = told.offset_mapping[seen] - len(instruction)
        return states[seen], spans.tolist()
    pairs = [(pipe.tokenizer, pipe.text_encoder)]
    xl = getattr(pipe, "tokenizer_2", None)
    pairs += [(xl, pipe.text_encoder_2)] if xl else []
    parts = []
    for tokenizer, encoder in pairs:
        told = read(tokenizer, text, 77)
        made = encoder(told.input_ids, output_hidden_states=True)
        parts.append(made.hidden_states[-2] if xl else made.last_hidden_state)
    return torch.cat(parts, dim=-1)[0], told.offset_mapping[0].tolist()


@torch.no_grad()
def by_definition(
    pipe, layer: Attention, hidden: torch.Tensor, row: int, rotary, prompt: str, instruction=""
) -> tuple[np.ndarray, float]:
    """The probabilities (H, Q, concepts) in float64, and what float32 allows of them."""
    text = " and ".join([*CONCEPTS, prompt])
    states, spans = encoded(pipe, text, instruction)
    query, key = query_and_key(layer, layer.to_q(hidden)[[row]], layer.to_k(states[None]), rotary)
    query, key = query.double(), key.double()
    p = (query[0] @ key[0].mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    found = []
    for concept in CONCEPTS:
        places = [match.span() for match in re.finditer(rf"\b{concept}\b", text)]
        tokens = [
            number
            for number, (start, end) in enumerate(spans)
            if any(a < end and start < b and start < end for a, b in places)
        ]
        assert tokens
        found.append(p[..., tokens].sum(dim=-1))
    return torch.stack(found, dim=-1).numpy(), allowed(layer, query, key)


SMALL = {"use_resolution_binning": False, "width": 64, "height": 96}
CASES = [
    ("sd1", {"guidance_scale": 5.0}, 1),
    ("sd1", {"guidance_scale": 1.0}, 0),
    ("sdxl", {"guidance_scale": 5.0}, 1),
    ("sigma", {"guidance_scale": 5.0}, 1),
    ("alpha", {"guidance_scale": 5.0, **SMALL}, 1),
    ("sana", {**SMALL, "complex_human_instruction": ["Draw: ", "Prompt: "]}, 1),
    ("sana15", {**SMALL, "complex_human_instruction": None}, 1),
    ("hunyuan", SMALL, 1),
]


@pytest.mark.parametrize(("family", "arguments", "block"), CASES)
def test_the_picture_is_the_same_and_the_maps_are_exact(load, family, arguments, block):
    pipe = load(family)
    plain = paint(pipe, PROMPTS, seeds=(1, 2), **arguments)
    seen, handles = hidden_of(pipe)
    try:
        with trace(pipe, WHOLE, concepts=CONCEPTS) as recorder:
            traced = paint(pipe, PROMPTS, seeds=(1, 2), **arguments)
    finally:
        for handle in handles:
            handle.remove()
    assert np.array_equal(plain, traced)
    lines = arguments.get("complex_human_instruction")
    instruction = "\n".join(lines) if lines else ""
    for image, recording in enumerate(recorder.concept_recordings):
        assert [word.text for word in recording.table.words] == CONCEPTS
        assert (recording.refined is None) == family.startswith("sana")  # linear self-attention
        if recording.refined is not None:
            assert recording.refined.shape[-1] == len(CONCEPTS)
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            module = denoiser(pipe).get_submodule(layer.name)
            for step, (hidden, rotary) in enumerate(seen[layer.name]):
                row = block * len(PROMPTS) + image
                prompt = PROMPTS[image]
                expected, near = by_definition(
                    pipe, module, hidden, row, rotary, prompt, instruction
                )
                assert_probabilities(array[step], expected, near, layer.name)
    assert max(len(passes) for passes in seen.values()) == 2  # steps, each of which was compared


@pytest.mark.parametrize("family", ["sd1", "sigma"])  # SDXL is told the whole text elsewhere, too
def test_concepts_without_a_prompt_have_the_maps_of_their_own_prompt(load, family):
    """At the first step, where the queries of one noise are the same in the first layer."""
    pipe = load(family)
    with trace(pipe, {"layer", "step"}, concepts=["red house"]) as recorder:
        paint(pipe, "big tree", steps=2, guidance_scale=1.0)
    with trace(pipe, {"layer", "step"}) as other:
        paint(pipe, "red house and big tree", steps=2, guidance_scale=1.0)
    mine, theirs = recorder.concept_recordings[0], other.recordings[0]
    columns = [theirs.columns[p] for p in theirs.table.find("red house")]
    expected = theirs.arrays[0][0][..., columns].sum(axis=-1)
    assert np.abs(mine.arrays[0][0][..., 0] - expected).max() < 1e-6
    assert np.ptp(expected) > 1e-3  # as random as the weights, and not the same everywhere


def test_concepts_with_prompt_embeds_are_read_alone(load):
    """Where nobody knows the text of a picture, concepts are read alone."""
    pipe = load("sd1")
    states, _ = pipe.encode_prompt("a red house", "cpu", 1, False)
    with trace(pipe, {"layer", "step"}, concepts=["cat"]) as recorder:
        paint(pipe, prompt_embeds=states, steps=1, guidance_scale=1.0)
    with trace(pipe, {"layer", "step"}) as other:
        paint(pipe, "cat", steps=1, guidance_scale=1.0)
    theirs = other.recordings[0]
    columns = [theirs.columns[p] for p in theirs.table.find("cat")]
    expected = theirs.arrays[0][0][..., columns].sum(axis=-1)
    assert np.abs(recorder.concept_recordings[0].arrays[0][0][..., 0] - expected).max() < 1e-6
    with trace(pipe, {"layer", "step"}, concepts=["cat"], prompts=["a red house"]) as told:
        paint(pipe, prompt_embeds=states, steps=1, guidance_scale=1.0)
    with trace(pipe, {"layer", "step"}, concepts=["cat"]) as plain:
        paint(pipe, "a red house", steps=1, guidance_scale=1.0)
    for mine, theirs in zip(
        told.concept_recordings[0].arrays, plain.concept_recordings[0].arrays, strict=True
    ):
        assert np.allclose(mine, theirs, atol=1e-7)


@pytest.mark.parametrize("family", ["lcm", "refiner", "inpainting", "pix2pix"])
def test_concepts_change_no_image_of_other_uses(load, family):
    pipe = load(family)
    arguments: dict = {"guidance_scale": 5.0}
    if family in ("refiner", "pix2pix"):
        arguments |= {"image": picture(128, 128)}
    if family == "refiner":
        arguments |= {"steps": 4, "strength": 0.5}
    if family == "inpainting":
        arguments |= {"image": picture(128, 128), "mask_image": picture(128, 128)}
    plain = paint(pipe, "a red house", **arguments)
    with trace(pipe, concepts=["house", "sea"]) as recorder:
        traced = paint(pipe, "a red house", **arguments)
    assert np.array_equal(plain, traced)
    assert recorder.concept_maps[0]["sea"].values.max() > 0


# --- what cannot be looked for -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "missing"),
    [
        ("sd1", ["text_encoder"]),
        ("sd1", ["text_encoder", "tokenizer"]),
        ("sdxl", ["text_encoder_2"]),
        ("sigma", ["text_encoder"]),
    ],
)
def test_a_pipeline_without_encoders_refuses_concepts(load, family, missing):
    pipe = load(family)
    kept = {name: getattr(pipe, name) for name in missing}
    prompts: Sequence[str] = ["a red house"]
    encode = {"device": "cpu", "num_images_per_prompt": 1, "do_classifier_free_guidance": False}
    given = pipe.encode_prompt(prompts, **encode)
    embeds = {"prompt_embeds": given[0]}
    if family == "sdxl":
        embeds["pooled_prompt_embeds"] = given[2]
    if family == "sigma":
        embeds |= {"prompt_attention_mask": given[1], "negative_prompt": None}
    try:
        for name in missing:
            setattr(pipe, name, None)
        with pytest.raises(TraceError), trace(pipe, concepts=["sky"]):
            paint(pipe, **embeds, steps=1, guidance_scale=1.0)
    finally:
        for name, part in kept.items():
            setattr(pipe, name, part)


def test_concepts_longer_than_the_encoder_are_refused(load):
    pipe = load("sd1")
    concepts = [f"house {'abcdefghij'[n]}" for n in range(10)] + ["wind " * 12]
    with (
        pytest.raises(ArgumentError, match="is past the 75 tokens that the model reads of all co"),
        trace(pipe, concepts=concepts) as recorder,
    ):
        paint(pipe, "a red house", steps=1)
    with pytest.raises(ArgumentError), trace(pipe, concepts=["sky", "sky"]):
        pass
    assert recorder is not None


def test_a_processor_with_its_own_keys_refuses_concepts(load):
    """What it would make of a concept is not known."""
    pipe = load("sd1")
    layer = next(iter(cross_attention_layers(pipe).values()))
    usual = layer.processor

    class Odd:
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            return usual(attn, hidden_states, 1.1 * encoder_hidden_states, attention_mask)

    layer.set_processor(Odd())
    try:
        with pytest.raises(TraceError), trace(pipe, concepts=["sky"]):
            paint(pipe, "a red house", steps=1)
    finally:
        layer.set_processor(usual)
