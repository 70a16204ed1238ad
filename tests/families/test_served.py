"""Every family of Stable Diffusion: exact maps of the right rows, the picture untouched."""

import numpy as np
import pytest
from transformers import CLIPTokenizer

from families.checking import ALONE, GUIDED, PIX2PIX, check, paint
from families.models import mask, picture
from heedmap.errors import TraceError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "the cat sat at a big tree"]

# Family, what its call needs, the branches of its batch, the latent's (h, w).
CASES = [
    pytest.param("sd1", {"guidance_scale": 5.0}, GUIDED, (16, 16), id="SD 1"),
    pytest.param("sd2", {"guidance_scale": 5.0}, GUIDED, (16, 16), id="SD 2"),
    pytest.param("turbo", {"guidance_scale": 0.0, "steps": 1}, ALONE, (16, 16), id="turbo"),
    pytest.param("lcm", {"guidance_scale": 8.0}, ALONE, (16, 16), id="LCM"),
    pytest.param(
        "pix2pix",
        {"guidance_scale": 5.0, "image": [picture(96, 128)] * 2},
        PIX2PIX,
        (16, 12),
        id="InstructPix2Pix",
    ),
    pytest.param(
        "inpainting",
        {
            "guidance_scale": 5.0,
            "image": picture(128, 96),
            "mask_image": mask(128, 96),
            "width": 128,
            "height": 96,
        },
        GUIDED,
        (12, 16),
        id="inpainting UNet",
    ),
    pytest.param("sdxl", {"guidance_scale": 5.0}, GUIDED, (16, 16), id="SDXL"),
    pytest.param(
        "refiner",
        {"guidance_scale": 5.0, "image": [picture(128, 128)] * 2, "steps": 4, "strength": 0.5},
        GUIDED,
        (16, 16),
        id="SDXL refiner",
    ),
    pytest.param(
        "upscaler",
        {"guidance_scale": 5.0, "image": [picture(24, 16)] * 2},
        GUIDED,
        (16, 24),
        id="x4 upscaler",
    ),
]


@pytest.mark.parametrize(("family", "arguments", "layout", "latent"), CASES)
def test_family(load, family, arguments, layout, latent):
    pipe = load(family)
    recorder = check(pipe, lambda: paint(pipe, PROMPTS, seeds=(1, 2), **arguments), PROMPTS, layout)
    h, w = latent
    factor = pipe.vae_scale_factor
    for recording, maps in zip(recorder.recordings, recorder.maps, strict=True):
        assert recording.latent == latent
        assert recording.size == (w * factor, h * factor)
        assert maps[recording.table.words[-1].text].values.max() > 0


@pytest.mark.parametrize("family", ["sd1", "sd2", "sdxl", "pix2pix"])
def test_negative_branch(load, family):
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


@pytest.mark.parametrize("same", ["a red house", ["a red house"]])
def test_the_same_second_prompt_is_fine(load, same):
    pipe = load("sdxl")
    with trace(pipe) as recorder:
        paint(pipe, same, prompt_2=same, guidance_scale=1.0, steps=1)
    assert recorder.maps[0]["red"].values.max() > 0


def test_another_second_prompt_is_refused(load):
    pipe = load("sdxl")
    steps = []
    with pytest.raises(TraceError, match="prompt_2"), trace(pipe):
        paint(
            pipe,
            "a red house",
            prompt_2="a blue tree",
            callback_on_step_end=lambda *given: steps.append(1) or given[-1],
        )
    assert not steps


def test_encoders_that_read_a_text_differently_are_told(load):
    """CLIP's vocabulary joins "!!", but a tokenizer that pads with "!" reads each apart."""
    pipe = load("sdxl")
    vocabulary = pipe.tokenizer.get_vocab() | {"!!</w>": len(pipe.tokenizer)}
    pipe.tokenizer = CLIPTokenizer(
        vocab=vocabulary, merges=[("!", "!</w>")], model_max_length=77, pad_token="<|endoftext|>"
    )
    assert len(pipe.tokenizer("hm!!").input_ids) < len(pipe.tokenizer_2("hm!!").input_ids)
    pipe.text_encoder.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    steps = []
    with pytest.raises(TraceError, match="hm!!"), trace(pipe):
        paint(pipe, "hm!!", callback_on_step_end=lambda *given: steps.append(1) or given[-1])
    assert not steps


def test_negative_of_zeros_is_even(load):
    """Without a negative prompt SDXL's negative branch reads zeros, not a text."""
    pipe = load("sdxl")
    with trace(pipe, {"layer"}, tokens="all", branches=("negative",)) as recorder:
        paint(pipe, "a red house", guidance_scale=5.0)
    for array in recorder.negative_recordings[0].arrays:
        np.testing.assert_allclose(array, 1 / 77, atol=1e-6)
