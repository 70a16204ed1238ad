"""Edits of attention in every family: each layer's output is P' V, and the maps are P'."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers import (
    ControlNetModel,
    HeunDiscreteScheduler,
    PNDMScheduler,
    StableDiffusionControlNetPipeline,
    StableDiffusionImg2ImgPipeline,
)
from oracle import acts, assert_probabilities, denoiser, watch
from torch import Tensor

import heedmap as hm
from families import models
from families.checking import assert_restored, count_passes, paint, state_of
from families.models import ALONE, DISTINCT, KINDS, TABLE, fuse, picture
from heedmap.errors import ArgumentError, HeedmapError, HeedmapWarning

SOURCE, TARGET = "a red dog", "a red cup"  # of as many tokens for every tokenizer
Rule = Callable[[Tensor, int, int], Tensor]
"""Of P (B, H, Q, K + N) of the images, the number of the pass and that of the text's tokens."""


@contextmanager
def beside_edits(
    pipe, row, rule: Rule, steps: int = 2, near: float = 2e-5
) -> Iterator[dict[str, list]]:
    """Hold each layer's output against P' V; yields P and P' of the images, by layer."""
    layouts, found = row.layouts(4 * steps), {}

    def hold(run):
        p, layout = run.attention(), layouts[run.number]
        changed = p.clone()
        if "conditional" in layout:
            rows = torch.arange(len(p)).chunk(len(layout))[layout.index("conditional")]
            changed[rows] = rule(p[rows], run.number, run.count(rows[0]))
            found.setdefault(run.name, []).append((p[rows], changed[rows], run.near))
        run.assert_output(changed, near)
        if run.output[1] is not None:  # the text's own attention is diffusers'
            assert torch.equal(run.output[1], run.plain[1])

    with watch(pipe, hold):
        yield found


def assert_maps(recordings, found, share: bool = True) -> None:
    """The recorded maps are P'."""
    for image, recording in enumerate(recordings):
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            for step, (_, changed, near) in enumerate(found[layer.name]):
                wanted = changed[image][..., list(recording.positions)]
                assert_probabilities(array[step], wanted, 2 * near, layer.name)


def largest_change(found) -> float:
    return max(float((new - old).abs().max()) for runs in found.values() for old, new, _ in runs)


def weigh(tokens, weight) -> Rule:
    def rule(p, number, count):
        p = p.clone()
        p[..., list(tokens)] *= weight
        return p

    return rule


def take_source(p, number, count):
    """The source's text and its share of the image, which the image's keys divide as before."""
    image = p[..., count:]
    share = image.sum(-1, keepdim=True)
    image = image * share[:1] / share
    return torch.cat([p[:1, ..., :count].expand(len(p), -1, -1, -1), image], dim=-1)


def check_edits(pipe, row, passes=2, near=2e-5, **arguments):
    """Both ways of editing; the pipeline must come back as it was."""
    options = row.options(keep="all", **arguments)
    plain = hm.generate(pipe, SOURCE, **options)
    before = state_of(pipe)  # of a pipeline that has run
    with beside_edits(pipe, row, weigh(row.red, -1.5), passes, near) as found:
        run = hm.generate(pipe, SOURCE, edits=[hm.Reweight("red", -1.5)], **options)
    assert_restored(pipe, before)
    assert largest_change(found) > 1e-2 and not np.array_equal(run.image, plain.image)
    is_exact = near == 2e-5 and passes == len(run.maps.recording.timesteps)
    if is_exact:
        assert_maps([run.maps.recording], found)
    with beside_edits(pipe, row, take_source, passes, near) as found:
        pair = hm.edit(pipe, SOURCE, TARGET, cross_replace=1.0, self_replace=0, **options)
    assert_restored(pipe, before)
    assert largest_change(found) > 1e-3
    if is_exact:
        assert_maps([pair.source.maps.recording, pair.edited.maps.recording], found)
        assert_report(pair.report, found)


def assert_report(report, found) -> None:
    moved = [
        float((new - old)[1].abs().sum(-1).mean()) / 2
        for runs in found.values()
        for old, new, _ in runs
    ]
    assert report.moved == pytest.approx(np.mean(moved), abs=1e-4)
    assert report.sites == sum(share > 1e-6 for share in moved)


@pytest.mark.filterwarnings("ignore:the edit .* did not visibly")
@pytest.mark.parametrize("family", DISTINCT)
def test_weights_and_edits_equal_the_definition(load, family):
    check_edits(load(family), TABLE[family])


@pytest.mark.parametrize("family", KINDS)
def test_a_rule_that_changes_nothing_gives_the_plain_image(load, family):
    row, pipe, prompts = TABLE[family], load(family), ["a red dog at", "at"]
    more = row.arguments(2, output_type="latent", seeds=(1, 2))
    more = models.lengthened(more, 4)
    plain = paint(pipe, prompt=prompts, **more)
    with pytest.warns(HeedmapWarning), hm.trace(pipe, edits=[lambda p, site: p.clone()]):
        same = paint(pipe, prompt=prompts, **more)
    np.testing.assert_allclose(same, plain, rtol=0, atol=1e-4 * np.ptp(plain))


# --- in other circumstances ---


def add_lora(pipe):
    denoiser(pipe).add_adapter(models.lora())


def replace_scheduler(kind, **config):
    def prepare(pipe):
        pipe.scheduler = kind.from_config(pipe.scheduler.config, **config)

    return prepare


def nothing(pipe):
    pass


HALF = {torch.bfloat16: 3e-2, torch.float16: 4e-3}
CIRCUMSTANCES = {
    "LoRA": ("short", add_lora, {}),
    "an odd size": ("short", nothing, {"size": (72, 136)}),
    "no guidance": ("short", nothing, {"guidance": 1.0, "negative": None}),
    "a scheduler of two passes a step": ("short", replace_scheduler(HeunDiscreteScheduler), {}),
    "two passes before the first step": (
        "sigma",
        replace_scheduler(PNDMScheduler, skip_prk_steps=True),
        {},
    ),
    "fused projections": ("short", fuse, {}),
    "fused projections of HunyuanDiT": ("hunyuan", fuse, {}),
    "bfloat16": ("short", torch.bfloat16, {}),
    "float16": ("sigma", torch.float16, {}),
    "bfloat16 of Sana": ("sana15", torch.bfloat16, {}),
}


@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_edits_in_other_circumstances_equal_the_definition(load, name):
    family, prepare, more = CIRCUMSTANCES[name]
    row = TABLE["sd1" if family == "short" else family]
    pipe, near = load(family), 2e-5
    if isinstance(prepare, torch.dtype):
        pipe.to(prepare)
        near = HALF[prepare]
    else:
        prepare(pipe)
    if name == "no guidance":
        row = replace(row, layout=ALONE)
    passes = 3 if "two passes" in name else 2
    check_edits(pipe, row, passes, near, **more)


def test_an_edit_keeps_the_image_of_an_ip_adapter(adapted):
    check_edits(adapted, TABLE["sd1"], ip_adapter_image=picture(32, 32))


# --- rules where text and image share a softmax: they act on whole rows, or on the text ---

# Two streams, two and one, two images, a mask, registers, padding in front, and one sequence.
LAYOUTS = ["sd3", "flux", "klein_images", "qwen", "aura", "cogview4", "zimage", "lumina2", "qwen21"]
BOX = (0, 0, 32, 48)  # 16 pixels a cell


def confine(p, tokens, strength, grid):
    """Hide tokens outside of the box, and raise their scores inside."""
    inside = torch.zeros(grid, dtype=torch.bool)
    inside[:3, :2] = True
    column = torch.where(inside.flatten(), strength, -torch.inf).double()
    bias = torch.zeros(p.shape[-2:]).double()
    bias[:, list(tokens)] = column[:, None]
    return (p.log() + bias).softmax(-1)


@pytest.mark.parametrize("family", LAYOUTS)
def test_rules_of_a_joint_softmax_equal_the_definition(load, family):
    """A bias acts first, then weights; a rule of one's own is given the text alone."""
    row, pipe = TABLE[family], load(family)
    options = row.options(keep="all", tokens="all")
    table = hm.generate(pipe, SOURCE, **options).maps.tokens
    tail = table.positions("end", "pad")
    edits = [
        hm.Reweight("red", 4, renormalize=True),
        lambda p, site: p.flip(-1),
        hm.Confine("red", BOX, strength=1.5, end=0.5, along=[]),
    ]

    def rule(p, number, count):
        step = number // 2 if row.layout == models.APART else number
        if step == 0:
            p = confine(confine(p, row.red, 1.5, *row.grids), tail, 0.0, *row.grids)
        p = weigh(row.red, 4)(p, number, count)
        p = p / p.abs().sum(-1, keepdim=True)
        return torch.cat([p[..., :count].flip(-1), p[..., count:]], dim=-1)

    with beside_edits(pipe, row, rule) as found:
        run = hm.generate(pipe, SOURCE, edits=edits, **options)
    assert_maps([run.maps.recording], found)
    assert largest_change(found) > 1e-2


# --- edits of a source where text and image share a softmax ---


@pytest.mark.parametrize(
    "family", ["sd35", "flux", "kontext", "krea", "zimage", "lumina2", "ernie"]
)
def test_the_self_window_takes_the_images_queries_and_keys(load, family):
    """Also in layers of the image alone, such as the second attention of SD 3.5."""
    row, pipe, sites = TABLE[family], load(family), []
    layouts = row.layouts(4)

    def hold(run):
        layout = layouts[run.number]
        step = run.number // 2 if row.layout == models.APART else run.number
        sources = torch.arange(len(run.query))
        if "conditional" in layout and acts((0.25, 0.75), step, 4):
            rows = sources.chunk(len(layout))[layout.index("conditional")]
            rows[:] = rows[0].clone()
            sites.append(run.name)
        run.assert_output(run.attention(sources.tolist()), 1e-5)

    options = row.options(steps=4, cross_replace=0.0)
    with watch(pipe, hold, alone=True):
        pair = hm.edit(pipe, SOURCE, f"{TARGET} at", self_replace=(0.25, 0.75), **options)
    layers = {"sd35": 6, "krea": 3, "ernie": 3}.get(family, 4)
    assert pair.report.self_sites == len(sites) == 2 * layers
    assert pair.report.sites == 0


@pytest.mark.parametrize("family", ["sd35", "flux", "zimage"])
def test_edits_of_a_joint_softmax_act_at_selected_sites(load, family):
    """In one head of the first layer, and in the layers of its block, at the second step."""
    row, pipe, changes = TABLE[family], load(family), []
    layouts = row.layouts(6)
    layer = hm.layer_shapes(pipe)[0].name
    target = f"{TARGET} at"

    def hold(run):
        p, layout = run.attention(), layouts[run.number]
        step = run.number // 2 if row.layout == models.APART else run.number
        inside = run.name.rpartition(".")[0] == layer.rpartition(".")[0] and step == 1
        if inside and "conditional" in layout:
            rows = torch.arange(len(p)).chunk(len(layout))[layout.index("conditional")].tolist()
            taken = run.attention([rows[0] if n in rows else n for n in range(len(p))])
            if run.name == layer:
                taken[rows[1:]] = weigh(row.red, 3)(taken[rows[1:]], run.number, 0)
            p[:, 1] = taken[:, 1]
            changes.append(run.name)
        run.assert_output(p, 1e-5)

    options = row.options(steps=3, cross_replace=0.0, layers=layer, heads=1, at_steps=1)
    with watch(pipe, hold, alone=True):
        pair = hm.edit(pipe, SOURCE, target.replace("red", "(red:3)"), self_replace=1.0, **options)
    assert pair.report.self_sites == len(changes) == (2 if family == "sd35" else 1)
    assert pair.report.sites == 1


@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_only_restricts_an_edit_of_packed_latents(load, family):
    pipe, latents = load(family), []
    options = {"seed": 1, "steps": 3, "size": (64, 64), "max_sequence_length": 12}
    target = "a red house at sea"
    pair = hm.edit(
        pipe,
        "a red house",
        target,
        only="house->sea",
        threshold=0.6,
        protect=["red"],
        blend_from=0.5,
        preview=latents.append,
        **options,
    )
    source, edited = latents[-1]
    mask = pair.blend[4::8, 4::8]  # (h, w) of the latent
    assert 0 < mask.mean() < 1 and pair.report.masked_by == "red house→sea"
    assert torch.equal(source[:, ~mask], edited[:, ~mask])
    assert not torch.equal(source[:, mask], edited[:, mask])


@pytest.mark.filterwarnings("ignore:the edit:heedmap.errors.HeedmapWarning")
@pytest.mark.parametrize("family", LAYOUTS)
def test_words_that_stay_take_the_sources_columns(load, family):
    """Also where the target has more tokens, and where the text is padded in front."""
    row, pipe = TABLE[family], load(family)
    options = row.options(keep="all", cross_replace=1.0, self_replace=0.0)
    options = models.lengthened(options, 4)
    pair = hm.edit(pipe, "a red dog", "at a red dog", **options)
    source, edited = (run.maps.recording for run in (pair.source, pair.edited))
    for word in ("red", "dog"):
        places = [
            [one.positions.index(n) for n in one.table.find(word)] for one in (source, edited)
        ]
        for mine, theirs in zip(source.arrays, edited.arrays, strict=True):
            found = theirs[..., places[1]]
            np.testing.assert_allclose(found, mine[..., places[0]], atol=1e-5)
            assert found.max() > 1e-3


def test_edits_that_move_the_tokens_of_a_source_are_refused(load):
    """CogView 4 pads in front of the shorter prompt."""
    pipe = load("cogview4")
    passes = count_passes(pipe)
    options = TABLE["cogview4"].options(max_sequence_length=40)
    with pytest.raises(HeedmapError, match="pads"):
        hm.edit(pipe, "a red house", "a red house at night at sea", **options)
    assert not passes


# --- a text that is not the prompt ---


def test_rules_act_on_the_text_that_is_read_or_are_refused(load):
    """Positions of the prompt's words are those of other words there."""
    pipe, read = load("flux"), "a big red house"
    more = {"seed": 1, "steps": 1, "size": (64, 64), "max_sequence_length": 12, "prompt_2": read}
    run = hm.generate(pipe, "a red house", edits=[hm.Reweight("red", 0)], **more)
    assert run.maps.tokens.prompt == read
    assert run.maps["red"].values.max() == 0 < run.maps["big"].values.max()
    passes = count_passes(pipe)
    for refused in (
        lambda: hm.generate(pipe, "a (red:0) house", **more),
        lambda: hm.edit(pipe, "a red house", "a blue house", **more),
        lambda: hm.ablate(pipe, run, "big"),
    ):
        with pytest.raises(ArgumentError, match="a big red house"):
            refused()
    assert not passes


# --- beside a model that reads the text, and where images have a size of their own ---


@pytest.mark.parametrize("reads", [True, False])
def test_a_controlnet_that_reads_the_text_gives_a_warning(load, reads):
    net = models.controlnet(load("sd1").unet)
    if not reads:
        plain = {
            "down_block_types": ["DownBlock2D"] * len(net.config.down_block_types),
            "mid_block_type": "UNetMidBlock2D",
        }
        net = ControlNetModel.from_config({**net.config, **plain})
    pipe = load("sd1", StableDiffusionControlNetPipeline, controlnet=net)
    given = {"seed": 1, "steps": 2, "image": picture(64, 64)}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", HeedmapWarning)
        hm.edit(pipe, SOURCE, TARGET, **given)
    assert any("ControlNet" in str(one.message) for one in warned) == reads


def test_a_box_is_given_in_pixels_of_the_image(load):
    """Of the image that is drawn, whose sides are multiples of 8."""
    pipe = load("short", StableDiffusionImg2ImgPipeline)
    more = {"seed": 1, "steps": 2, "image": picture(68, 96), "strength": 1.0}
    hm.generate(pipe, SOURCE, edits=[hm.Confine("dog", (0, 0, 64, 96))], **more)
    with pytest.raises(ArgumentError, match="64×96 pixels"):
        hm.generate(pipe, SOURCE, edits=[hm.Confine("dog", (0, 0, 65, 96))], **more)
