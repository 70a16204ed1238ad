"""Modular pipelines: their blocks draw the same images, and their maps are exact."""

from copy import copy
from types import SimpleNamespace

import diffusers
import numpy as np
import pytest
import torch
from diffusers import ClassifierFreeGuidance, Flux3Transformer2DModel, LayerSkipConfig
from diffusers.modular_pipelines.krea2 import encoders
from making import letter_qwen
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

import heedmap as hm
from families.checking import check
from families.models import ALONE, TABLE, Processor, flux2_parts, language, mask, picture, sharpened
from heedmap.errors import ArgumentError, HeedmapWarning, ModelError

BLOCKS = {
    "sdxl": "StableDiffusionXLAutoBlocks",
    "sd3": "StableDiffusion3AutoBlocks",
    "schnell": "FluxAutoBlocks",
    "kontext": "FluxKontextAutoBlocks",
    "dev2": "Flux2AutoBlocks",
    "klein_images": "Flux2KleinBaseAutoBlocks",
    "qwen": "QwenImageAutoBlocks",
    "qwen_edit": "QwenImageEditAutoBlocks",
    "zimage": "ZImageAutoBlocks",
    "krea": "Krea2AutoBlocks",
    "ernie": "ErnieImageAutoBlocks",
}


def modular(classic, blocks: str, **parts):
    """A modular pipeline of these blocks, with the parts of a classic one and others."""
    whole = getattr(diffusers, blocks)()
    whole.sub_blocks.pop("prompt_upsampler", None)  # of Flux.3: a large language model
    pipe = whole.init_pipeline()
    parts = {name: part for name, part in classic.components.items() if part is not None} | parts
    pipe.update_components(**{name: parts[name] for name in parts.keys() & pipe._component_specs})
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe, seed: int = 0, **call) -> np.ndarray:
    """The pictures of a modular pipeline, of the arguments that it takes."""
    names = call.keys() & {*pipe.blocks.input_names}
    known = {name: copy(call[name]) for name in names}  # Z-Image writes into lists
    noise = torch.Generator().manual_seed(seed)
    return np.asarray(pipe(**known, generator=noise, output="images", output_type="np"))


def arguments(family: str, prompts: list[str] | str) -> dict[str, object]:
    """The arguments of a call for two steps, beside the guidance."""
    count = None if isinstance(prompts, str) else len(prompts)
    negative = "at night" if count is None else ["at night"] * count
    call = TABLE[family].arguments(count) | {"negative_prompt": negative}
    return call | {"prompt": prompts, "num_inference_steps": 2}


@pytest.mark.parametrize("family", BLOCKS)
def test_a_modular_pipeline_gives_exact_maps(load, family, monkeypatch):
    """Of prompts of unlike length, in each branch; a guider runs a pass for each."""
    monkeypatch.setattr(encoders, "KREA2_TEXT_ENCODER_SELECT_LAYERS", (1, 2, 3))  # of 36
    pipe = modular(load(family), BLOCKS[family], guider=ClassifierFreeGuidance(3.0))
    guided = getattr(pipe, "guider", None) is not None
    prompts = ["a red dog", "the cat"]
    call = arguments(family, prompts)
    layout = [ALONE, ("negative",)] * 2 if guided else ALONE
    recorder = check(
        pipe,
        lambda: draw(pipe, **call),
        prompts,
        layout,
        [[0, 1], [2, 3]] if guided else None,
        ("conditional", "negative") if guided else ("conditional",),
    )
    assert recorder.recordings[0].table.find("red") == TABLE[family].red
    if guided and "negative_prompt" in pipe.blocks.input_names:
        assert recorder.negative_maps[0].recording.table.find("night")


@pytest.mark.parametrize(
    ("family", "path", "name"),
    [
        ("sdxl", "mid_block.attentions", "PerturbedAttentionGuidance"),
        ("qwen", "transformer_blocks", "PerturbedAttentionGuidance"),
        ("zimage", "layers", "SkipLayerGuidance"),
        ("zimage", "layers", "AutoGuidance"),
    ],
)
def test_a_guider_perturbs_a_pass_and_not_the_maps(load, family, path, name):
    """The image to the bit; the maps of the first step are those without the perturbation."""
    skipped = name != "PerturbedAttentionGuidance"
    layers = LayerSkipConfig(
        [0], fqn=path, skip_attention=skipped, skip_attention_scores=not skipped, skip_ff=False
    )
    options = {
        "PerturbedAttentionGuidance": {
            "perturbed_guidance_config": layers, "perturbed_guidance_start": 0.0,
            "perturbed_guidance_stop": 1.0,
        },
        "SkipLayerGuidance": {
            "skip_layer_config": layers, "skip_layer_guidance_start": 0.0,
            "skip_layer_guidance_stop": 1.0,
        },
        "AutoGuidance": {"auto_guidance_config": layers},
    }[name]  # fmt: skip
    call = arguments(family, "a red dog") | {"num_inference_steps": 3}
    drawn = []
    maps = []
    for guider in (getattr(diffusers, name)(**options), ClassifierFreeGuidance()):
        pipe = modular(load(family), BLOCKS[family], guider=guider)
        drawn.append(draw(pipe, **call))
        with hm.trace(pipe, {"step"}) as trace:
            assert np.array_equal(draw(pipe, **call), drawn[-1])
        maps.append(trace.maps[0].select(steps=[0])["red"].values)
    assert not np.array_equal(*drawn)
    assert np.array_equal(*maps)


def test_a_modular_pipeline_gives_the_maps_of_the_classic_one():
    """To the bit, of the embedded Stable Diffusion 3."""
    classic = hm.load("joint")
    pipe = modular(classic, BLOCKS["sd3"], guider=ClassifierFreeGuidance(1.0))
    call = {"prompt": "a red house", "num_inference_steps": 4}
    with hm.trace(classic, "all", tokens="all") as first:
        noise = torch.Generator().manual_seed(0)
        expected = classic(**call, guidance_scale=1.0, generator=noise, output_type="np").images
    with hm.trace(pipe, "all", tokens="all") as second:
        assert np.array_equal(draw(pipe, **call), expected)
    pairs = zip(first.recordings[0].arrays, second.recordings[0].arrays, strict=True)
    for one, other in pairs:
        assert np.array_equal(one, other)


def test_a_modular_folder_is_used_as_any_other(load, tmp_path):
    """It is loaded, generates, locates and edits; a run keeps the settings of its guider."""
    made = modular(load("sd3"), BLOCKS["sd3"], guider=ClassifierFreeGuidance(3.0))
    made.save_pretrained(str(tmp_path / "model"), overwrite_modular_index=True)
    with pytest.raises(ModelError, match="load_components"):
        hm.trace(diffusers.ModularPipeline.from_pretrained(tmp_path / "model"))
    pipe = hm.load(tmp_path / "model")
    call = {"seed": 1, "steps": 2, "size": (48, 80), "max_sequence_length": 12}
    images = [hm.generate(pipe, "a red dog", **call).image]
    pipe.update_components(guider=pipe.guider.new(guidance_scale=5.0))
    images.append(hm.generate(pipe, "a red dog", **call).image)
    assert images[0] != images[1]
    run = hm.generate(pipe, "a red dog", negative="at", **call)
    run.save(tmp_path / "run")
    pipe.update_components(guider=pipe.guider.new(guidance_scale=9.0))
    assert hm.repeat(pipe, tmp_path / "run").same
    located = hm.locate(pipe, run.image, "a red dog", **(call | {"size": None}))
    assert located.maps["red"].values.any()
    pair = hm.edit(pipe, "a red dog", "a red cat", **call)
    assert pair.edited.image.tobytes() != pair.source.image.tobytes()
    with pytest.warns(HeedmapWarning):  # that random weights change all of it
        pair = hm.edit(pipe, "a red dog", "a red cat", image=run.image, **(call | {"size": None}))
    assert pair.source.input_image is not None
    with pytest.raises(ArgumentError, match="guidance"):
        hm.generate(pipe, "a red dog", guidance=2.0, **call)


def test_an_image_of_the_users_is_given_to_the_language_model(load):
    """And a crop of inpainting is refused."""
    pipe = modular(load("qwen_edit"), BLOCKS["qwen_edit"], guider=ClassifierFreeGuidance(3.0))
    call = {"image": picture(160, 96), "seed": 1, "steps": 1}
    assert hm.generate(pipe, "a red dog", **call).maps["red"].values.any()
    assert hm.edit(pipe, "a red dog", "a red cat", **call).edited.maps["cat"].values.any()
    pipe = modular(load("qwen"), BLOCKS["qwen"], guider=ClassifierFreeGuidance(3.0))
    call = {"image": picture(96, 160), "mask_image": mask(96, 160), "padding_mask_crop": 8}
    with pytest.raises(ArgumentError, match="padding_mask_crop"), hm.trace(pipe):
        draw(pipe, prompt="a red dog", num_inference_steps=2, **call)


def test_text_that_other_blocks_encoded_is_labelled_by_its_positions(load):
    classic = load("sd3")
    blocks = diffusers.StableDiffusion3AutoBlocks()
    encoder = blocks.sub_blocks.pop("text_encoder").init_pipeline()
    rest = blocks.init_pipeline()
    for pipe in (encoder, rest):
        names = classic.components.keys() & pipe._component_specs
        pipe.update_components(**{name: classic.components[name] for name in names})
    call = arguments("sd3", "a red dog")
    names = call.keys() & {*encoder.blocks.input_names}
    states = encoder(**{name: call[name] for name in names}).values
    with hm.trace(rest) as trace:
        draw(rest, **(call | states))
    assert [word.text for word in trace.maps[0].words][:3] == ["0", "1", "2"]


def flux3(**config):
    """black-forest-labs/FLUX.3: text, image and references each have blocks of their own."""
    parts = flux2_parts(8, guidance_embeds=False)
    torch.manual_seed(20)
    transformer = Flux3Transformer2DModel(
        in_channels=16, cond_in_channels=16, num_layers=1, num_single_layers=2,  # 128, 128, 5, 28
        attention_head_dim=16, num_attention_heads=3, joint_attention_dim=16,  # 128, 24, 20480
        axes_dims_rope=(4, 4, 4, 4), timestep_channels=16, **config,  # 32 each, 256
    )  # fmt: skip
    rope = {"mrope_section": [1, 1, 0], "rope_type": "default", "rope_theta": 1e6}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    shape = {"text_config": language(8, 2, rope_parameters=rope), "vision_config": vision}
    encoder = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**shape)).eval()
    parts |= {"transformer": sharpened(transformer), "text_encoder": encoder, "scheduler": None}
    parts["tokenizer"] = Processor(letter_qwen(), letter_qwen().chat_template)
    kind = "Flux3DistilledAutoBlocks" if config else "Flux3AutoBlocks"
    return modular(SimpleNamespace(components=parts), kind)


FLUX3 = {
    "prompt": "a red dog", "text_encoder_out_layers": (1, 2), "width": 48, "height": 80,
    "num_inference_steps": 2,
}  # fmt: skip


@pytest.mark.parametrize("distilled", [False, True])
@pytest.mark.parametrize("image", [None, picture(64, 96), [picture(64, 96), picture(80, 64)]])
def test_flux3_gives_exact_maps(distilled, image):
    """Distilled without guidance, and otherwise with it; beside reference images."""
    pipe = flux3(**({"flow_map": True} if distilled else {}))
    call = FLUX3 | {"image": image, "num_images_per_prompt": 2, "negative_prompt": "at"}
    recorder = check(
        pipe,
        lambda: draw(pipe, **call),
        ["a red dog"] * 2,
        ALONE if distilled else [ALONE, ("negative",)] * 2,
        None if distilled else [[0, 1], [2, 3]],
        ALONE if distilled else ("conditional", "negative"),
    )
    grids = [[maps.recording.layers[0].grid for maps in one] for one in recorder.reference_maps]
    expected = {type(None): [], list: [(6, 4), (4, 5)]}.get(type(image), [(6, 4)])
    assert grids == [expected] * 2
