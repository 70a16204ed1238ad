"""Numbers taken apart, in every family: the model's own, as the run kept them, and by definition.

Beside each run that is drawn again a hook computes Q, K, V, P and the output of the layer in
float64 by the layer's own weights; nothing of heedmap is in it.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from diffusers import (
    HeunDiscreteScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionPAGPipeline,
)
from diffusers.models.attention_processor import (
    AttnProcessor,
    CustomDiffusionAttnProcessor,
    CustomDiffusionAttnProcessor2_0,
)
from making import generate_batch, noting
from numpy.testing import assert_allclose
from oracle import assert_probabilities, tolerance
from torch.nn.functional import linear

import heedmap as hm
from families import models
from families.checking import allowed, query_and_key
from families.models import BETAS, picture
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import HeedmapWarning, SelectionError, TraceError

PROMPT, WORD, AT = "a red house", "house", (20, 41)
ALL = ("layer", "step", "head")


@dataclass
class Defined:
    """What a layer's last pass was by definition, all rows of the batch, float64."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    p: torch.Tensor
    output: torch.Tensor
    near: float  # what float32 allows of P, relative to it
    passes: int = 0


@contextmanager
def defined(pipe, name):
    """What the layer of that name computes while the block is open: the last pass of it."""
    found: list[Defined] = []

    @torch.no_grad()
    def after(layer, args, kwargs, output):
        x, text = args[0], kwargs["encoder_hidden_states"]
        bias = None if layer.to_v.bias is None else layer.to_v.bias.double()
        value = linear(text.double(), layer.to_v.weight.double(), bias)
        value = value.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        rotary = kwargs.get("image_rotary_emb")
        query, key = query_and_key(layer, layer.to_q(x), layer.to_k(text), rotary)
        query, key = query.double(), key.double()
        scores = query @ key.mT / query.shape[-1] ** 0.5
        mask = kwargs.get("attention_mask")
        if mask is not None:
            scores = scores + mask.double().reshape(len(x), 1, 1, -1)
        passes = found[-1].passes + 1 if found else 1
        near = allowed(layer, query, key)
        p = scores.softmax(-1)
        found[:] = [Defined(query, key, value, p, output.double(), near, passes)]

    handle = cross_attention_layers(pipe)[name].register_forward_hook(after, with_kwargs=True)
    try:
        yield found
    finally:
        handle.remove()


def layer_of(pipe) -> str:
    """One in the midst of the model."""
    names = list(cross_attention_layers(pipe))
    return names[len(names) // 2]


def held(found, one: Defined, row: int):
    """Each number against its definition, at the place, in one row of the batch."""
    h, place = found.report.head, position_of(found)
    whole = float(one.output[row].abs().max())
    for got, expected in (
        (found.inputs.query, one.query[row, :, place]),
        (found.inputs.key, one.key[row]),
        (found.inputs.value, one.value[row]),
    ):
        assert_allclose(got, expected.numpy(), rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert_probabilities(unedited(found), one.p[row, :, place], one.near)
    assert_probabilities(found.attention.probabilities, one.p[row, h, place], one.near)
    assert_allclose(found.inputs.output, one.output[row, place].numpy(), rtol=1e-6, atol=1e-7)
    assert found.difference < 1e-5 * max(whole, 1)
    assert_allclose(found.contributions.sum(axis=(0, 1)) + unbiased(found), found.output, atol=1e-9)


def position_of(found) -> int:
    """The number of the position in its grid."""
    row, column = found.report.place
    return row * found.report.layer.grid[1] + column


def unedited(found) -> np.ndarray:
    """P of all heads without the edits, (H, K), in float64."""
    one = found.inputs
    mask = None if one.mask is None else one.mask[:, None]
    rows = hm.attention(one.query[:, None], one.key, one.value, mask, scale=one.scale)
    return rows.probabilities[:, 0]


def unbiased(found):
    """The bias, or 0."""
    return 0 if found.inputs.bias is None else found.inputs.bias


def near(found) -> float:
    """What float32 allows of the run's probabilities at the position, relative to them."""
    query, key = torch.tensor(found.inputs.query)[:, None], torch.tensor(found.inputs.key)
    return tolerance(query, key, found.inputs.scale)


def assert_kept(run, found, maps=None) -> None:
    """Hold the row of P that the run kept at the same site against the explained one."""
    p, positions = kept(run, found, maps)
    assert_probabilities(p, found.probabilities[:, positions], near(found))


def kept(run, found, maps=None):
    """The row of P that the run kept at the same site, (H, K')."""
    side = (maps or run.maps).recording
    number = [layer.name for layer in side.layers].index(found.report.layer.name)
    return side.arrays[number][found.report.step, :, position_of(found)], list(side.positions)


@pytest.mark.parametrize(
    "family", ["sd1", "sd2", "sdxl", "sigma", "alpha", "sana15", "sprint", "hunyuan"]
)
def test_an_explanation_equals_the_recording_and_the_definition(family):
    pipe = models.FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    size = (64, 96) if family.startswith(("alpha", "sana", "sprint")) else None
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL, tokens="all", size=size)
    name = layer_of(pipe)
    with defined(pipe, name) as seen:
        found = hm.explain(pipe, run, WORD, AT, layer=name, head=1, step=1)
    assert (found.report.layer.name, found.report.head, found.report.step) == (name, 1, 1)
    assert seen[0].passes == 2  # it went no further than it had to
    held(found, seen[0], len(seen[0].p) - 1)
    assert_kept(run, found)
    assert found.report.maps_difference < near(found) and found.inputs.edited is None
    assert_allclose(found.attention.probabilities.sum(), 1, rtol=1e-12)
    masked = family in ("sigma", "alpha", "sana15", "sprint")
    assert (found.inputs.mask is not None) == masked
    if masked:
        pads = [one.position for one in found.tokens if one.kind == "pad"]
        assert pads and (found.probabilities[:, pads] == 0).all()


def teaching(sites):
    """By definition: most of what is up to half, else least; each with what it draws in front."""
    upto = [one for one in sites if one[0] <= 0.5]
    return max(upto) if upto else min(sites)


def test_the_default_layer_and_head_have_the_most_attention_below_a_half():
    """At a step that was asked for, and at the middle one."""
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    whole = hm.generate(pipe, PROMPT, seed=3, steps=3, keep=ALL)
    found = hm.explain(pipe, whole, WORD, AT, step=0)
    side = whole.maps.recording
    columns = [side.columns[token] for token in found.report.tokens]
    most = []
    for layer, array in zip(side.layers, side.arrays, strict=True):
        (h, w), (x, y), (width, height) = layer.grid, AT, whole.image.size
        place = int(y / height * h) * w + int(x / width * w)
        drawn = array[:, :, place][..., columns].sum(-1)
        most += [(float(drawn[s, n]), layer.name, s, n) for s, n in np.ndindex(*drawn.shape)]
    assert teaching([one for one in most if one[2] == 0])[1:] == (
        found.report.layer.name, found.report.step, found.report.head,
    )  # fmt: skip
    assert found.report.automatic_axes == ("layer", "head")
    less = hm.generate(pipe, PROMPT, seed=3, steps=3, keep=())
    found = hm.explain(pipe, less, WORD, AT)
    assert teaching([one for one in most if one[2] == 1])[1:] == (
        found.report.layer.name, found.report.step, found.report.head,
    )  # fmt: skip
    assert found.report.automatic_axes == ("layer", "head", "step")
    assert found.report.maps_difference is None
    found = hm.explain(pipe, less, WORD, AT, head=0, step=-1)
    mine = [one for one in most if one[2:] == (2, 0)]
    assert (found.report.layer.name, found.report.head, found.report.step) == (
        teaching(mine)[1],
        0,
        2,
    )


def test_of_several_layers_the_one_with_the_highest_score_is_explained():
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL)
    found = hm.explain(pipe, run, WORD, AT, layer="up", step=0)
    names = [name for name in cross_attention_layers(pipe) if name.startswith("up_blocks")]
    each = [hm.explain(pipe, run, WORD, AT, layer=name, step=0) for name in names]
    most = [
        (one.numbers["word_probabilities"][one.report.head], 0, one.report.layer) for one in each
    ]
    (chosen,) = {one[2] for one in most if one[0] == teaching(most)[0]}
    assert len(names) > 1 and found.report.layer == chosen
    assert found.report.automatic_axes == ("layer", "head")
    assert each[0].report.automatic_axes == ("head",)


def test_the_negative_branch_is_explained():
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    asked = {"seed": 3, "steps": 2, "negative": "a big tree", "keep": ALL, "tokens": "all"}
    both = hm.generate(pipe, PROMPT, branches=("conditional", "negative"), **asked)
    alone = hm.generate(pipe, PROMPT, **asked)
    name = layer_of(pipe)
    for run in (both, alone):
        with defined(pipe, name) as seen:
            found = hm.explain(pipe, run, "tree", AT, layer=name, step=1, branch="negative")
        held(found, seen[0], 0)
        assert found.report.prompt == "a big tree" and found.report.branch == "negative"
        assert_kept(both, found, both.negative_maps)
    none = noting(hm.generate(pipe, PROMPT, seed=3, steps=2, guidance=0), negative="a tree")
    with pytest.raises(TraceError, match="the negative branch was asked for, but this call has no"):
        hm.explain(pipe, none, "tree", AT, branch="negative")


def test_one_image_of_a_batch_is_explained():
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    runs = generate_batch(
        pipe, ["a cat", PROMPT, "house at sea"], seeds=[1, 2, 3], steps=2, keep=ALL, tokens="all"
    )
    name = layer_of(pipe)
    with defined(pipe, name) as seen:
        found = hm.explain(pipe, runs[1], WORD, AT, layer=name, step=1)
    held(found, seen[0], len(seen[0].p) // 2 + 1)
    assert_kept(runs[1], found)


def test_a_scheduler_with_two_passes_a_step_is_explained():
    """A run keeps the mean of a step's passes; each of them can be taken apart."""
    pipe = models.sd1(scheduler=HeunDiscreteScheduler(**BETAS, steps_offset=1))
    pipe.set_progress_bar_config(disable=True)
    run = hm.generate(pipe, PROMPT, seed=3, steps=3, keep=ALL, tokens="all")
    name = layer_of(pipe)
    rows = []
    for number in (0, 1):
        with defined(pipe, name) as seen:
            found = hm.explain(pipe, run, WORD, AT, layer=name, step=1, pass_=number)
        assert seen[0].passes == 3 + number
        held(found, seen[0], len(seen[0].p) - 1)
        assert found.report.passes == (number, 2) and found.report.maps_difference is None
        rows.append(found.probabilities)
    last = hm.explain(pipe, run, WORD, AT, layer=name, step=1, pass_=-1)
    assert last.report.passes == (1, 2)  # as layers, heads and steps are counted
    assert_allclose(last.probabilities, rows[1], atol=0)
    p, positions = kept(run, found)
    assert_probabilities(p, np.mean(rows, axis=0)[:, positions], near(found))
    assert np.abs(rows[0] - rows[1]).max() > 1e-4  # they are two
    with pytest.raises(SelectionError):
        hm.explain(pipe, run, WORD, AT, layer=name, step=2, pass_=1)


def test_a_model_in_half_precision_is_explained():
    """What the model had, as it had it; what is made of it by arithmetic is as near as rounding."""
    pipe, kind = models.sd1().to(torch.bfloat16), torch.bfloat16
    pipe.set_progress_bar_config(disable=True)
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL, tokens="all")
    found = hm.explain(pipe, run, WORD, AT, layer=layer_of(pipe), step=1)
    for name in ("query", "key", "value", "weight", "output"):
        array = getattr(found.inputs, name)
        exact = torch.tensor(array).to(kind).double()
        assert torch.equal(exact, torch.tensor(array))  # no digit that the model had not
    p, positions = kept(run, found)
    assert_allclose(found.probabilities[:, positions], p, rtol=1e-4)
    eps = torch.finfo(kind).eps
    assert found.difference < 4 * eps * max(1, float(np.abs(found.inputs.output).max()))


# --- edits ---


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_an_edit_is_explained(family, tmp_path):
    """What prompt-to-prompt made of P, and the output that came of it, against the definition."""
    pipe = models.FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    asked = {"seed": 3, "steps": 2, "keep": ALL, "cross_replace": 0.5, "self_replace": 0}
    pair = hm.edit(pipe, "a red house", "a red tiger", **asked)
    name = layer_of(pipe)
    for step in (0, 1):
        with defined(pipe, name) as seen:
            found = hm.explain(pipe, pair, "tiger", AT, layer=name, step=step)
        row = len(seen[0].p) - 1
        place = position_of(found)
        assert_probabilities(unedited(found), seen[0].p[row, :, place], seen[0].near)
        assert_kept(pair.edited, found)
        assert (found.inputs.edited is not None) == (step == 0)
        whole = float(seen[0].output[row].abs().max())
        assert found.difference < 1e-5 * max(whole, 1)
    # The source of it, drawn with a copy beside it.
    found = hm.explain(pipe, pair.source, "house", AT, layer=name, step=1)
    assert_kept(pair.source, found)


class Sharpen:
    """A rule of one's own."""

    def __call__(self, p, site):
        raised = p**2
        return raised / raised.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("way", ["weight", "reweight", "confine", "own", "classic"])
def test_reweighted_and_confined_words_are_explained(way):
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    if way == "classic":
        pipe.unet.set_attn_processor(AttnProcessor())
    edits = {
        "reweight": [hm.Reweight("house", 2.5)],
        "confine": [hm.Confine("house", (0, 0, 40, 64), end=1.0)],
        "own": [Sharpen()],
        "classic": [Sharpen()],
    }.get(way, [])
    prompt = "a red (house:2.5)" if way == "weight" else PROMPT
    size = (64, 64)
    run = hm.generate(pipe, prompt, seed=3, steps=2, keep=ALL, tokens="all", edits=edits, size=size)
    name = layer_of(pipe)
    given = {"edits": edits} if way in ("own", "classic") else {}
    with defined(pipe, name) as seen:
        found = hm.explain(pipe, run, WORD, AT, layer=name, step=1, **given)
    row = len(seen[0].p) - 1
    place = position_of(found)
    plain = seen[0].p[row, :, place].numpy()
    assert_probabilities(unedited(found), plain, seen[0].near)
    if way in ("weight", "reweight"):
        expected = plain.copy()
        expected[:, list(found.report.tokens)] *= 2.5
        assert_probabilities(found.probabilities, expected, seen[0].near)
    elif way in ("own", "classic"):
        expected = plain**2 / (plain**2).sum(-1, keepdims=True)
        assert_probabilities(found.probabilities, expected, 4 * seen[0].near)
    assert found.inputs.edited is not None and np.abs(found.probabilities - plain).max() > 1e-4
    assert_kept(run, found)
    assert found.difference < 1e-5 * max(float(seen[0].output[row].abs().max()), 1)


# --- other ways of computing ---


def test_other_processors_give_the_same_explanation():
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    plain = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL, tokens="all")
    name = layer_of(pipe)
    expected = hm.explain(pipe, plain, WORD, AT, layer=name, step=1)
    for replace in (
        lambda: pipe.unet.set_attn_processor(AttnProcessor()),
        lambda: pipe.enable_attention_slicing(1),
        pipe.unet.fuse_qkv_projections,
    ):
        replace()
        run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL, tokens="all")
        found = hm.explain(pipe, run, WORD, AT, layer=name, step=1)
        for one in ("query", "key", "value", "output"):
            assert_allclose(getattr(found.inputs, one), getattr(expected.inputs, one), atol=1e-4)
        for one in ("probabilities", "output"):
            assert_allclose(getattr(found, one), getattr(expected, one), atol=1e-4)


@pytest.mark.filterwarnings("ignore:torch.*quantiz")
def test_a_quantised_model_is_explained_up_to_its_rounding():
    pipe = models.short()
    pipe.set_progress_bar_config(disable=True)
    pipe.unet = torch.ao.quantization.quantize_dynamic(pipe.unet, {torch.nn.Linear}, torch.qint8)
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL)
    found = hm.explain(pipe, run, WORD, AT)
    assert found.report.maps_difference < near(found)
    assert found.difference < 0.05 * np.abs(found.inputs.output).max()


@pytest.mark.parametrize(
    ("kind", "query_and_output"),
    [(CustomDiffusionAttnProcessor, False), (CustomDiffusionAttnProcessor2_0, True)],
)
def test_a_processor_with_its_own_weights_is_refused(kind, query_and_output):
    pipe = models.short()
    pipe.set_progress_bar_config(disable=True)
    for layer in cross_attention_layers(pipe).values():
        width, text = layer.query_dim, layer.cross_attention_dim
        layer.set_processor(kind(True, query_and_output, width, text).eval())
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL)
    with pytest.raises(TraceError):
        hm.explain(pipe, run, WORD, AT)
    assert len(hm.layer_shapes(pipe, PROMPT)) == len(cross_attention_layers(pipe))


def test_the_weights_of_an_explanation_include_a_lora():
    from peft import LoraConfig

    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    torch.manual_seed(0)
    targets = ["to_q", "to_k", "to_v", "to_out.0"]
    pipe.unet.add_adapter(LoraConfig(r=2, target_modules=targets, init_lora_weights=False))
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL, tokens="all")
    found = hm.explain(pipe, run, WORD, AT, layer=layer_of(pipe), step=1)
    module = cross_attention_layers(pipe)[found.report.layer.name].to_out[0]
    assert np.abs(found.inputs.weight - module.base_layer.weight.detach().numpy()).max() > 1e-3
    assert found.difference < 1e-5 and found.inputs.added is None
    assert_kept(run, found)


def test_an_image_prompt_is_named_as_an_added_part(tmp_path):
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    models.save_ip_adapter(tmp_path, pipe.unet)
    pipe.load_ip_adapter(
        str(tmp_path), subfolder="models", weight_name="ip-adapter_sd15.safetensors",
        image_encoder_folder="image_encoder",
    )  # fmt: skip
    pipe.feature_extractor = None
    states = [torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(0))]
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL, ip_adapter_image_embeds=states)
    found = hm.explain(
        pipe, run, WORD, AT, layer=layer_of(pipe), step=1, ip_adapter_image_embeds=states
    )
    assert found.inputs.added is not None
    assert found.difference < 1e-5
    bare = found.inputs.weight @ np.einsum(
        "hk,hkd->hd", found.probabilities, found.inputs.value
    ).reshape(-1)
    assert np.abs(bare + unbiased(found) - found.inputs.output).max() > 1e-3


def test_img2img_is_explained():
    pipe = models.sd1(StableDiffusionImg2ImgPipeline)
    pipe.set_progress_bar_config(disable=True)
    start = picture(64, 48)
    asked = {"seed": 3, "steps": 4, "image": start, "strength": 0.5}
    run = hm.generate(pipe, PROMPT, keep=ALL, **asked)
    found = hm.explain(pipe, run, WORD, (63, 47), layer="mid", step=1, image=start)
    h, w = found.report.layer.grid
    assert found.report.steps == 2 and found.report.place == (h - 1, w - 1)
    assert_kept(run, found)


# --- the pipeline ---


def test_the_pipeline_is_left_as_it_was():
    """Also by what puts processors of its own in place for a call."""
    pipe = models.sd1(StableDiffusionPAGPipeline)
    pipe.set_progress_bar_config(disable=True)
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL)

    def state():
        modules = dict(pipe.unet.named_modules())
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules.values()]
        processors = {n: id(m.processor) for n, m in modules.items() if hasattr(m, "processor")}
        return processors, hooks, "encode_prompt" in vars(pipe), "step" in vars(pipe.scheduler)

    before, scheduler = state(), pipe.scheduler
    found = hm.explain(pipe, run, WORD, AT, step=0)
    assert state() == before and pipe.scheduler is scheduler
    assert found.report.maps_difference < near(found)
    again = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL)
    assert again.image.tobytes() == run.image.tobytes()


def test_another_model_than_the_runs_gives_a_warning():
    pipe = models.sd1()
    pipe.set_progress_bar_config(disable=True)
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, keep=ALL)
    with torch.no_grad():
        for layer in cross_attention_layers(pipe).values():
            layer.to_k.weight.mul_(-1)
    with pytest.warns(HeedmapWarning):
        found = hm.explain(pipe, run, WORD, AT)
    assert found.report.maps_difference > 1e-3
