"""Edits of attention where text and image share a softmax, against float64."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from diffusers import FlowMatchLCMScheduler
from diffusers.models.attention_processor import JointAttnProcessor2_0
from oracle import assert_probabilities

import heedmap as hm
from families import models
from families.checking import WHOLE, assert_restored, paint, reference, state_of
from families.joint import ROOM, SHORT, asked, watched
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError, HeedmapError, HeedmapWarning, ModelError, TraceError
from heedmap.mathematics.rules import Inject, steps_within
from heedmap.recording.controller import Steering
from heedmap.recording.tracing import Trace, trace

STEPS = 2
BOX = (0, 0, 32, 48)
INSIDE = torch.zeros(4, 4, dtype=torch.bool)  # 16 pixels a cell
INSIDE[:3, :2] = True
EACH = pytest.mark.parametrize("family", ["sd35", "flux"])
GUIDANCES = pytest.mark.parametrize(
    ("family", "guidance"), [("sd3", 4.0), ("sd35", 1.0), ("flux", 4.0)]
)
OTHERS = pytest.mark.parametrize("family", ["chroma", "klein", "dev2", "qwen", "cogview4"])


def held(pipe, prompt, edits, rule, **arguments):
    """Generate with edits; hold each layer's output for the prompt's row against a rule.

    The rule makes P' (H, Q, K + N) of P, at a step and the number of its text tokens.
    """
    plain = {}

    def hold(ran):
        p, values, near = ran.attention()
        count = ran.text.shape[1]
        edited = rule(p[-1], ran.step, count)
        ran.assert_output((edited @ values[-1])[None], 2e-5)
        plain[ran.name, ran.step] = p[-1][..., :count], edited[..., :count], near

    with watched(pipe, hold):
        run = hm.generate(
            pipe, prompt, seed=1, steps=STEPS, edits=edits, keep="all", tokens="all",
            **SHORT, **arguments,
        )  # fmt: skip
    recording = run.maps.recording
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        for step, found in enumerate(array):
            _, wanted, near = plain[layer.name, step]
            assert_probabilities(found, wanted, 2 * near, layer.name)  # rows may be divided again
    moved = [float((after - before).abs().max()) for before, after, _ in plain.values()]
    assert max(moved) > 1e-2
    return run


def weighted(p, tokens, weight):
    p = p.clone()
    p[..., list(tokens)] *= weight
    return p


def confined(p, *strengths):
    """P' of tokens that are strengthened in the box, and hidden outside of it."""
    bias, inside = torch.zeros(16, p.shape[-1]).double(), INSIDE.flatten()[:, None]
    for tokens, strength in strengths:
        bias[:, list(tokens)] = torch.where(inside, strength, -torch.inf).double()
    return (p.log() + bias).softmax(-1)


@GUIDANCES
def test_weights_act_on_the_words_columns_alone(load, family, guidance):
    pipe = load(family)
    table = prompt_table(pipe, "a red house", SHORT)
    before = state_of(pipe)["processors"]
    for prompt, edits, weight in (
        ("a red house", [hm.Reweight("red", -1.5)], -1.5),
        ("a (red:3) house", [], 3),
    ):
        rule = lambda p, step, count, w=weight: weighted(p, table.find("red"), w)  # noqa: E731
        held(pipe, prompt, edits, rule, guidance=guidance)
    assert state_of(pipe)["processors"] == before


@EACH
def test_renormalized_rows_sum_to_1_with_the_image(load, family):
    pipe = load(family)
    red = prompt_table(pipe, "a red house", SHORT).find("red")

    def rule(p, step, count):
        p = weighted(p, red, 4)
        return p / p.sum(-1, keepdim=True)

    held(pipe, "a red house", [hm.Reweight("red", 4, renormalize=True)], rule)


@EACH
def test_a_confined_word_is_hidden_outside_and_the_image_gets_its_share(load, family):
    pipe = load(family)
    table = prompt_table(pipe, "a red house", SHORT)
    tokens, tail = table.find("red house"), table.positions("end", "pad")

    def rule(p, step, count):
        acts = step in steps_within(0.0, 0.5, STEPS)
        return confined(p, (tokens, 1.5), (tail, 0.0)) if acts else p

    word = hm.Confine("house", BOX, strength=1.5, end=0.5, along=["red"])
    held(pipe, "a red house", [word], rule, size=(64, 64))


@EACH
def test_a_rule_of_the_users_own_is_given_the_text(load, family):
    pipe, shapes = load(family), set()

    def rule(p, site):
        shapes.add(p.shape[-1])
        return p.flip(-1).mean(1, keepdim=True).expand_as(p)

    def expected(p, step, count):
        text = p[..., :count].flip(-1).mean(1, keepdim=True).expand(p.shape[0], p.shape[1], -1)
        return torch.cat([text, p[..., count:]], dim=-1)

    held(pipe, "a red house", [rule], expected)
    assert shapes == {len(prompt_table(pipe, "a red house", SHORT).tokens)}


def test_all_rules_in_one_run(load):
    """A bias acts first; then weights; a rule of one's own makes all of them take the long way."""
    pipe = load("sd35")
    table = prompt_table(pipe, "a red house", SHORT)
    house, red = table.find("house"), table.find("red")

    def expected(p, step, count):
        p = weighted(confined(p, (house, 2.0)), red, 2)
        p = p / p.sum(-1, keepdim=True)
        return torch.cat([p[..., :count] / 2, p[..., count:]], dim=-1)

    edits = [
        hm.Reweight("red", 2, renormalize=True),
        lambda p, site: p / 2,
        hm.Confine("house", BOX, strength=2.0, end=1.0, along=[], tail=False),
    ]
    held(pipe, "a red house", edits, expected, size=(64, 64))


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("chroma", "confined"),
        ("chroma", "renormalized"),
        ("klein", "weight"),
        ("klein", "confined"),
        ("dev2", "rule"),
        ("qwen", "confined"),
        ("qwen", "rule"),
        ("cogview4", "weight"),
        ("cogview4", "renormalized"),
    ],
)
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
        p = next(iter(scores.values()))[0][image]
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
        near = 2 * scores.near[recording.layers[0].name]
        assert_probabilities(recording.arrays[0][0], expected, near)
        with trace(pipe, edits=[word]):
            alone = paint(pipe, prompt=prompts[image], seeds=(image + 1,), **more)
        near = 1e-4 * np.ptp(alone)
        np.testing.assert_allclose(both[image], alone[0], rtol=0, atol=near)
        assert np.abs(both[image] - plain[image]).max() > 3 * near


@pytest.mark.parametrize("family", ["sd3", "flux", "chroma", "klein", "qwen", "cogview4"])
def test_a_rule_that_changes_nothing_gives_the_plain_image(load, family):
    pipe, prompts = load(family), ["a red house at", "at"]
    more = asked(family, width=64, height=64, output_type="latent")
    plain = paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    with pytest.warns(HeedmapWarning), trace(pipe, edits=[lambda p, site: p.clone()]):
        same = paint(pipe, prompt=prompts, seeds=(1, 2), **more)
    np.testing.assert_allclose(same, plain, rtol=0, atol=1e-4 * np.ptp(plain))


class Classic(JointAttnProcessor2_0):
    """Computes its probabilities by diffusers' older method."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        query, key = (
            attn.head_to_batch_dim(
                torch.cat([made(hidden_states), added(encoder_hidden_states)], dim=1)
            )
            for made, added in ((attn.to_q, attn.add_q_proj), (attn.to_k, attn.add_k_proj))
        )
        attn.get_attention_scores(query, key)
        return super().__call__(attn, hidden_states, encoder_hidden_states, *args, **kwargs)


def test_a_classic_processor_is_refused_with_edits(load):
    pipe = load("sd3")
    pipe.transformer.transformer_blocks[0].attn.set_processor(Classic())
    hm.generate(pipe, "a red house", seed=1, steps=1, **SHORT)
    before = state_of(pipe)
    with pytest.raises(TraceError):
        hm.generate(pipe, "a red house", seed=1, steps=1, edits=[hm.Reweight("red", 2)], **SHORT)
    assert_restored(pipe, before)


# --- edits of a source --------------------------------------------------------------------------

SOURCE, TARGET = "a red house", "a blue house"
CLIP = 77


def matrix(family, *pairs, added=False):
    """M with the image's column: of T5, or of CLIP and then of T5, each aligned by itself.

    The pairs (source tokens, target tokens) are CLIP's, whose start T5 lacks; it reads "a" as two
    tokens. So both have the same positions. Padding goes in order, and the surplus to the last; of
    `added` words a token without a source keeps its own.
    """
    blocks = []
    for length in (12,) if family == "flux" else (CLIP, 12):
        block = torch.zeros(length, length, dtype=torch.float64)
        here, there = (side[-1] + 1 for side in pairs[-1])  # behind the end
        rest = [([here + n], [there + n]) for n in range(length - max(here, there))]
        if not added:
            rest += [([w], [length - 1]) for w in range(here + len(rest), length)]
        for before, after in [*pairs, *rest]:
            for w in before:
                block[w, after] = 1 / len(after)
        blocks.append(block)
    return torch.block_diag(*blocks, torch.ones(1, 1).double())


SWAP = [([0], [0]), ([1], [1]), ([2, 3, 4], [2, 3, 4, 5]), ([5], [6]), ([6], [7])]
ADDITION = [([0], [0]), ([1], [1]), ([2], [5]), ([3], [6])]  # "a house" -> "a red house"


def acts(window, step, steps):
    return math.ceil(window[0] * steps) <= step < math.ceil(window[1] * steps)


def injected(columns, window, steps):
    """The rule that takes the source's columns, the image's share among them, in a window."""
    has_source = (columns.sum(0) > 0).double()

    def rule(source, own, step):
        alpha = has_source * acts(window, step, steps)
        return alpha * (source @ columns) + (1 - alpha) * own

    return rule


@contextmanager
def beside_edits(pipe, count, rule, steps, own=(0, 0)):
    """Beside a run of a source and its edits: hold each layer's output against a rule.

    The rule makes rows P' (H, Q, K + 1), with the share of the image in the last column, of those
    of the source and of an edit, at a step. In the window `own` the edits take the image's queries
    and keys of the source. The last rows of the batch read the prompts. Yields by layer and step
    the rows of all images, before and after, and what float32 allows.
    """
    found, allowed = {}, {}

    def hold(ran):
        sources, tokens = [*range(len(ran.image))], ran.text.shape[1]
        if acts(own, ran.step, steps):
            sources[-count:] = [sources[-count]] * count
        p, values, near = ran.attention(sources)
        p, values = p[-count:], values[-count:]
        if tokens:
            share = p[..., tokens:].sum(-1, keepdim=True)
            rows = torch.cat([p[..., :tokens], share], -1)
            made = torch.stack([rows[0], *(rule(rows[0], one, ran.step) for one in rows[1:])])
            p = torch.cat([made[..., :-1], made[..., -1:] * p[..., tokens:] / share], -1)
            found[ran.name, ran.step] = rows, made
            allowed[ran.name, ran.step] = near
        ran.assert_output(p @ values, 1e-5)
        if tokens and not acts(own, ran.step, steps):  # the text's own attention is diffusers'
            assert torch.equal(ran.output[1], ran.original()[1])

    with watched(pipe, hold, alone=True):
        yield found, allowed


def held_edit(pipe, source, target, rule, steps=2, own=(0, 0), **arguments):
    """Edit, and hold outputs, maps and report against a rule (`beside_edits`)."""
    targets = [target] if isinstance(target, str) else target
    call = {"seed": 1, "self_replace": own, "keep": "all", "steps": steps, **SHORT, **arguments}
    before = state_of(pipe)
    with beside_edits(pipe, 1 + len(targets), rule, steps, own) as (found, allowed):
        results = hm.edit(pipe, source, targets, **call)
    assert state_of(pipe)["processors"] == before["processors"]
    for number, run in enumerate([results[0].source, *(one.edited for one in results)]):
        recording = run.maps.recording
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            for step, maps in enumerate(array):
                wanted = found[layer.name, step][1][number][..., recording.positions]
                assert_probabilities(maps, wanted, allowed[layer.name, step], layer.name)
    for number, one in enumerate(results, 1):
        apart = [(made - rows)[number].abs().sum(-1).mean() / 2 for rows, made in found.values()]
        assert one.report.moved == pytest.approx(float(np.mean(apart)), abs=1e-4)
        assert one.report.sites == sum(float(one) > 1e-6 for one in apart)
    return results[0], found


@GUIDANCES
def test_a_swap_takes_the_sources_columns_and_its_share_of_the_image(load, family, guidance):
    pipe = load(family)
    columns = matrix(family, *SWAP)
    rule = injected(columns, (0, 1), 2)
    result, found = held_edit(
        pipe, SOURCE, TARGET, rule, cross_replace=1.0, guidance=guidance, size=(48, 80)
    )
    assert result.report.kind == "replace" and result.report.sites == 4 * 2
    for rows, made in found.values():
        torch.testing.assert_close(made.sum(-1), torch.ones(()).double().expand(made.shape[:-1]))
        assert float((made - rows)[1].abs().max()) > 1e-2


@EACH
def test_an_added_word_keeps_its_own_attention_and_a_window_ends(load, family):
    columns = matrix(family, *ADDITION, added=True)
    result, found = held_edit(
        load(family), "a house", SOURCE, injected(columns, (0, 0.5), 4), steps=4, cross_replace=0.5
    )
    assert result.report.kind == "refine" and result.report.sites == 4 * 2
    for (_, step), (rows, made) in found.items():
        assert torch.equal(made[1, ..., 2:5], rows[1, ..., 2:5])
        assert (step < 2) != torch.equal(made[1], rows[1])


@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_weights_windows_of_words_and_several_edits_in_a_batch(load, family):
    """The second target's weight acts on the source's column."""
    pipe, columns = load(family), matrix(family, *SWAP)
    blue, house = (prompt_table(pipe, TARGET, SHORT).find(word) for word in ("blue", "house"))
    window = torch.ones(len(columns)).double()
    window[list(blue)] = 0

    def rule(source, own, step):
        alpha = window if step else torch.ones_like(window)
        return alpha * (source @ columns) + (1 - alpha) * own

    def weighed(source, own, step):
        return weighted(rule(source, own, step), house, -2)

    each = iter([rule, weighed] * 2 * 4)
    held_edit(
        pipe, SOURCE, [TARGET, "a blue (house:-2)"], lambda *at: next(each)(*at), cross_replace=1.0,
        word_windows={"blue": 0.5},
    )  # fmt: skip


@EACH
def test_the_self_window_takes_the_images_queries_and_keys(load, family):
    """Also in the second attention of SD 3.5, which is of the image alone."""
    pipe, rule = load(family), lambda source, own, step: own
    call = {"cross_replace": 0.0, "steps": 4, "size": (64, 64)}
    result, _ = held_edit(pipe, SOURCE, TARGET, rule, own=(0.25, 0.75), guidance=3.0, **call)
    layers = 6 if family == "sd35" else 4
    assert result.report.self_sites == 2 * layers and result.report.sites == 0
    both = injected(matrix(family, *SWAP), (0, 0.5), 4)
    held_edit(pipe, SOURCE, TARGET, both, own=(0, 0.75), **{**call, "cross_replace": 0.5})
    with beside_edits(pipe, 2, rule, 4), pytest.warns(HeedmapWarning, match="fewer cells"):
        result = hm.edit(
            pipe, SOURCE, TARGET, seed=1, self_replace=1.0, max_self_cells=15, **call, **SHORT
        )
    assert result.report.self_sites == 0


@EACH
def test_a_prompt_replaced_by_itself_gives_the_plain_image(load, family):
    pipe = load(family)
    count = len(prompt_table(pipe, SOURCE, SHORT).tokens)
    itself = Inject(torch.eye(count), torch.zeros(count), torch.ones(count), (0.0, 1.0))
    call = dict(seeds=(3, 3), output_type="latent", steps=3, width=64, height=64, **SHORT)
    plain = paint(pipe, [SOURCE] * 2, **call)
    with Trace(pipe, steering=Steering({1: [itself]}, {1: 0}, {1: (0.0, 1.0)})) as trace:
        edited = paint(pipe, [SOURCE] * 2, **call)
    assert np.array_equal(edited[0], plain[0])
    assert np.abs(edited - plain).max() < 1e-4 * np.ptp(plain)
    assert len(trace.controller.acted[1]) == 3 * 4
    assert len(trace.controller.shared[1]) == 3 * (6 if family == "sd35" else 4)
    assert max(trace.controller.moved[1]) < 1e-5


def test_edits_have_maps_as_shares_of_the_text(load):
    pipe, call = load("sd3"), {"steps": 2, "size": (64, 64), **SHORT}
    plain = hm.edit(pipe, SOURCE, TARGET, seed=1, **call)
    pair = hm.edit(pipe, SOURCE, TARGET, seed=1, share_of="text", **call)
    run = hm.generate(pipe, SOURCE, seed=1, share_of="text", **call)
    (cell, _) = hm.grid(pipe, SOURCE, TARGET, seeds=[1, 2], share_of="text", **call).cells
    assert np.array_equal(pair.edited.image, plain.edited.image)
    for one in (pair, cell.result):
        for side in (one.source, one.edited):
            assert side.maps["house"].share_of == side.settings.share_of == "text"
        mine = one.source.maps["house"].values
        np.testing.assert_allclose(mine, run.maps["house"].values, atol=1e-5)
    assert not np.allclose(pair.edited.maps["house"].values, plain.edited.maps["house"].values)
    assert hm.repeat(pipe, pair.edited).same


@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_the_source_is_bit_identical_and_only_restricts_the_edit(load, family):
    pipe, latents = load(family), []
    call = dict(steps=3, size=(64, 64), **SHORT)
    prompts = [SOURCE, "a red house at sea"]
    plain = paint(
        pipe, prompts, seeds=(1, 1), steps=3, width=64, height=64, output_type="latent", **SHORT
    )
    result = hm.edit(
        pipe, *prompts, seed=1, only="house->sea", threshold=0.6, protect=["red"], blend_from=0.5,
        preview=lambda now: latents.append(family_of(pipe).pack(now)), **call,
    )  # fmt: skip
    source, edited = (one.numpy() for one in latents[-1])
    assert np.array_equal(source, plain[0])
    mask = result.blend[4::8, 4::8]  # (h, w) of the latent
    assert 0 < mask.mean() < 1 and result.report.masked_by == "red house→sea"
    unpacked = family_of(pipe).unpack(latents[-1], (8, 8))
    assert torch.equal(unpacked[0][:, ~mask], unpacked[1][:, ~mask])
    assert not np.array_equal(source, edited)


def test_cells_of_a_grid_are_edits(load, tmp_path):
    pipe = load("flux")
    call = dict(steps=2, cross_replace=0.5, self_replace=1.0, **SHORT)
    cells = hm.grid(pipe, SOURCE, TARGET, weights={"blue": [1, 3]}, seeds=1, **call)
    cells.save(tmp_path / "grid")
    result = hm.edit(pipe, SOURCE, "a (blue:3) house", seed=1, **call)
    found = np.asarray(cells.cells[1].result.edited.image, int)
    assert np.abs(found - np.asarray(result.edited.image)).max() <= 1
    result.save(tmp_path / "edit")
    assert hm.repeat(pipe, tmp_path / "edit").same


@pytest.mark.filterwarnings("ignore:the edit:heedmap.errors.HeedmapWarning")
@OTHERS
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


# --- a text that is not the prompt --------------------------------------------------------------


def rewritten(load, family):
    """A pipeline that reads "a big red house", and the arguments with which it does."""
    pipe, read = load(family), "a big red house"
    more = {**asked(family), "size": (64, 64), "steps": 1, "seed": 1}
    if family == "flux":
        return pipe, more | {"prompt_2": read}

    def upsample(prompt, **_):  # its own draws at random
        return [read] * (1 if isinstance(prompt, str) else len(prompt))

    pipe.upsample_prompt = upsample
    return pipe, more | {"caption_upsample_temperature": 0.15}


@pytest.mark.parametrize("family", ["dev2", "flux"])
def test_rules_act_on_the_text_that_is_read_or_are_refused(load, family, tmp_path):
    """Positions of the prompt's words are those of other words there."""
    pipe, more = rewritten(load, family)
    run = hm.generate(pipe, SOURCE, edits=[hm.Reweight("red", 0)], **more)
    read = run.maps.tokens
    assert read.prompt == "a big red house"
    assert run.maps["red"].values.max() == 0 < run.maps["big"].values.max()
    assert hm.Run.load(run.save(tmp_path / "run")).maps.tokens == read
    pipe.transformer.register_forward_hook(lambda *_: pytest.fail("the model ran"))
    for ask in (
        lambda: hm.generate(pipe, "a (red:0) house", **more),
        lambda: hm.edit(pipe, SOURCE, TARGET, **more),
        lambda: hm.grid(pipe, SOURCE, weights={"red": [0, 2]}, seeds=1, **more | {"seed": None}),
        lambda: hm.ablate(pipe, run, "big"),
        lambda: hm.ablate(pipe, run, "red"),
    ):
        with pytest.raises(ArgumentError):
            ask()


# --- edits of an image of one's own -------------------------------------------------------------


@torch.no_grad()
def flow_edit(pipe, image, prompts, seed, steps):
    """FlowEdit (arXiv 2412.08629) by its definition, in float64 but for the model.

    Z ← Z + (σ' − σ) · (V(Z + (1 − σ) x + σ ε − x) − V((1 − σ) x + σ ε)), from Z = x.
    """
    family, config = family_of(pipe), pipe.vae.config
    pixels, is_flux2 = pipe.image_processor.preprocess(image), hasattr(pipe, "_patchify_latents")
    if is_flux2:
        clean = pipe._unpatchify_latents(pipe._encode_vae_image(pixels, None)).double()
    else:
        clean = pipe.vae.encode(pixels).latent_dist.mode().double()
        clean = (clean - config.shift_factor) * config.scaling_factor
    chance = torch.Generator().manual_seed(seed)
    noises = [torch.randn(clean.shape, generator=chance).double() for _ in range(steps)]
    sigmas = pipe.scheduler.sigmas.double()
    z = clean.repeat(len(prompts), 1, 1, 1)
    for at, following, noise in zip(sigmas[:-1], sigmas[1:], noises, strict=True):
        seen = z + at * (noise - clean)
        time = torch.full((len(prompts),), float(at))
        if is_flux2:
            states, ids = pipe.encode_prompt(prompts, max_sequence_length=ROOM["klein"])
            places = pipe._prepare_latent_ids(pipe._patchify_latents(seen))
            more = dict(txt_ids=ids, img_ids=places, guidance=None)
        elif "img_ids" in family.inputs:
            states, pooled, ids = pipe.encode_prompt(prompts, None, **SHORT)
            places = pipe._prepare_latent_image_ids(1, 4, 4, "cpu", torch.float32)
            more = dict(txt_ids=ids, img_ids=places, guidance=torch.ones(len(prompts)))
            more["pooled_projections"] = pooled
        else:
            states, _, pooled, _ = pipe.encode_prompt(
                prompts, None, None, do_classifier_free_guidance=False, **SHORT
            )
            time, more = time * 1000, {"pooled_projections": pooled}
        velocity = pipe.transformer(
            hidden_states=family.pack(seen.float()), timestep=time, encoder_hidden_states=states,
            return_dict=False, **more,
        )[0]  # fmt: skip
        velocity = family.unpack(velocity, (8, 8)).double()
        z = z + (following - at) * (velocity - velocity[:1])
    return z, clean


@pytest.mark.filterwarnings("ignore:the (model.s autoencoder|image also changed)")
@pytest.mark.parametrize("family", ["sd3", "flux", "klein"])
def test_an_edit_of_an_image_is_flow_edit(load, family):
    """Also where the pipeline takes an image, which it reads beside the prompt."""
    pipe, seen, image = load(family), [], models.picture(64, 64)
    call = dict(image=image, seed=3, steps=4, guidance=1.0, preview=seen.append)
    call["max_sequence_length"] = ROOM[family]
    targets = [TARGET, "a red sea"]
    first, _ = hm.edit(pipe, SOURCE, targets, cross_replace=0.0, self_replace=0.0, **call)
    wanted, clean = flow_edit(pipe, image, [SOURCE, *targets], 3, 4)
    torch.testing.assert_close(seen[-1][0].double(), clean[0], atol=2e-6, rtol=0)
    torch.testing.assert_close(seen[-1].double(), wanted, atol=1e-4, rtol=0)
    assert (wanted[1] - clean).abs().max() > 1e-2
    assert first.report.reconstruction is not None and first.source.input_image is not None
    if family == "klein":
        return
    with beside_edits(pipe, 2, injected(matrix(family, *SWAP), (0, 0.5), 4), 4, (0, 0.5)):
        hm.edit(pipe, SOURCE, TARGET, cross_replace=0.5, self_replace=0.5, **call)


def test_a_scheduler_whose_noise_is_not_known_is_refused_before_sampling(load):
    for family, changes in (("flux", {}), ("sd3", {"stochastic_sampling": True})):
        pipe, ran = load(family), []
        kind = type(pipe.scheduler) if changes else FlowMatchLCMScheduler
        pipe.scheduler = kind.from_config(pipe.scheduler.config, **changes)
        pipe.transformer.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        with pytest.raises(ModelError):
            hm.edit(pipe, SOURCE, TARGET, image=models.picture(64, 64), seed=1, steps=2, **SHORT)
        assert not ran
