"""Edits of attention where text and image share a softmax, against float64."""

import math
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from diffusers import FlowMatchLCMScheduler
from diffusers.models.attention_processor import Attention, JointAttnProcessor2_0
from diffusers.models.transformers.transformer_flux import FluxAttention
from torch.nn.functional import linear

import heedmap as hm
from families import models
from families.checking import assert_restored, denoiser, joint_attention, paint, state_of
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import HeedmapWarning, ModelError, TraceError
from heedmap.mathematics.rules import Inject, steps_within
from heedmap.recording.edits import Steering
from heedmap.recording.tracing import Trace

SHORT = {"max_sequence_length": 12}
STEPS = 2
BOX = (0, 0, 32, 48)
EACH = pytest.mark.parametrize("family", ["sd3", "sd35", "flux"])


@pytest.fixture
def load(load):
    def of(family):
        pipe = load(family)
        pipe.default_sample_size = 8
        return pipe

    return of


def held(pipe, prompt, edits, rule, **arguments):
    """Generate with edits; hold each layer's output for the prompt's row against a rule.

    The rule makes P' (H, Q, K + N) of P, at a step and the number of its text tokens.
    """
    places, plain, passes = {}, {}, []

    def before(model, args, kwargs):
        passes.append(1)
        places.update({n: one for n, one in kwargs.items() if n in ("txt_ids", "img_ids")})

    def after(name, layer, args, kwargs, output):
        image, text = kwargs["hidden_states"], kwargs.get("encoder_hidden_states")
        if isinstance(layer, Attention) and layer.added_kv_proj_dim is None:
            return  # the second attention of SD 3.5
        each = [*places.values()]
        joined = text is None
        if joined:
            text, image = image.split([len(one) for one in each], dim=1)
        p, values = joint_attention(layer, image, text, each)
        edited = rule(p[-1], len(passes) - 1, text.shape[1])
        expected = (edited @ values[-1]).transpose(0, 1).flatten(1)
        found = output[:, text.shape[1] :] if joined else output[0]
        if not joined:
            out = layer.to_out[0]
            expected = linear(expected, out.weight.double(), out.bias.double())
        scale = float(expected.abs().max())
        torch.testing.assert_close(found[-1].double(), expected, rtol=0, atol=2e-5 * scale)
        plain[name, len(passes) - 1] = p[-1][..., : text.shape[1]], edited[..., : text.shape[1]]

    model = denoiser(pipe)
    handles = [model.register_forward_pre_hook(before, with_kwargs=True)]
    for name, layer in model.named_modules():
        if isinstance(layer, Attention | FluxAttention):
            handles.append(
                layer.register_forward_hook(
                    lambda layer, args, kwargs, output, name=name: after(
                        name, layer, args, kwargs, output
                    ),
                    with_kwargs=True,
                )
            )
    try:
        run = hm.generate(
            pipe, prompt, seed=1, steps=STEPS, edits=edits, keep="all", tokens="all",
            **SHORT, **arguments,
        )  # fmt: skip
    finally:
        for handle in handles:
            handle.remove()
    recording = run.maps.recording
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        for step, found in enumerate(array):
            np.testing.assert_allclose(found, plain[layer.name, step][1], atol=1e-5)
    moved = [float((after - before).abs().max()) for before, after in plain.values()]
    assert max(moved) > 1e-2
    return run


def weighted(p, tokens, weight):
    p = p.clone()
    p[..., list(tokens)] *= weight
    return p


@EACH
@pytest.mark.parametrize("guidance", [1.0, 4.0])
def test_weights_act_on_the_words_columns_alone(load, family, guidance):
    pipe = load(family)
    table = prompt_table(pipe, "a red house", SHORT)
    rule = lambda p, step, count: weighted(p, table.find("red"), -1.5)  # noqa: E731
    before = state_of(pipe)
    held(pipe, "a red house", [hm.Reweight("red", -1.5)], rule, guidance=guidance)
    after = state_of(pipe)
    assert after["processors"] == before["processors"]


def test_weights_in_the_prompt(load):
    pipe = load("sd3")
    house = prompt_table(pipe, "a red house", SHORT).find("house")
    held(pipe, "a red (house:3)", [], lambda p, step, count: weighted(p, house, 3))


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
    inside = torch.zeros(4, 4, dtype=torch.bool)
    inside[:3, :2] = True  # 16 pixels a cell

    def rule(p, step, count):
        if step not in steps_within(0.0, 0.5, STEPS):
            return p
        bias = torch.zeros(16, p.shape[-1], dtype=torch.float64)
        bias[:, list(tokens)] = torch.where(inside.flatten(), 1.5, -torch.inf)[:, None].double()
        bias[:, list(tail)] = torch.where(inside.flatten(), 0.0, -torch.inf)[:, None].double()
        return (p.log() + bias).softmax(-1)

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
        bias = torch.zeros(16, p.shape[-1], dtype=torch.float64)
        inside = torch.zeros(4, 4, dtype=torch.bool)
        inside[:3, :2] = True
        bias[:, list(house)] = torch.where(inside.flatten(), 2.0, -torch.inf)[:, None].double()
        p = weighted((p.log() + bias).softmax(-1), red, 2)
        p = p / p.sum(-1, keepdim=True)
        return torch.cat([p[..., :count] / 2, p[..., count:]], dim=-1)

    edits = [
        hm.Reweight("red", 2, renormalize=True),
        lambda p, site: p / 2,
        hm.Confine("house", BOX, strength=2.0, end=1.0, along=[], tail=False),
    ]
    held(pipe, "a red house", edits, expected, size=(64, 64))


def test_a_rule_that_changes_nothing_gives_the_plain_image(load):
    for family in ("sd3", "flux"):
        pipe = load(family)
        call = {"seed": 1, "steps": 2, **SHORT}
        plain = hm.generate(pipe, "a red house", **call)
        with pytest.warns(HeedmapWarning, match="changed nothing"):
            same = hm.generate(pipe, "a red house", edits=[lambda p, site: p], **call)
        difference = np.abs(np.asarray(plain.image, float) - np.asarray(same.image, float))
        assert difference.max() <= 1


def test_ablate(load):
    pipe = load("sd3")
    run = hm.generate(pipe, "a red house", seed=1, steps=2, **SHORT)
    found = hm.ablate(pipe, run, "house")
    assert not found.without["attention"].maps["house"].values.any()
    assert found.without["prompt"].maps.keys() == ("a", "red")


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
    the rows of all images, before and after.
    """
    found, passes, places = {}, [], {}

    def before(model, args, kwargs):
        passes.append(1)
        places.update({n: one for n, one in kwargs.items() if n in ("txt_ids", "img_ids")})

    @torch.no_grad()
    def after(name, layer, args, kwargs, output):
        image = kwargs.get("hidden_states", args[0] if args else None)
        text, each = kwargs.get("encoder_hidden_states"), [*places.values()]
        alone = layer.added_kv_proj_dim is None and isinstance(layer, Attention)
        single, step = text is None and not alone, len(passes) - 1
        if alone:  # the second attention of SD 3.5
            text = image[:, :0]
        elif single:
            text, image = image.split([len(one) for one in each], dim=1)
        sources, tokens = [*range(len(image))], text.shape[1]
        if acts(own, step, steps):
            sources[-count:] = [sources[-count]] * count
        p, values = (one[-count:] for one in joint_attention(layer, image, text, each, sources))
        if not alone:
            share = p[..., tokens:].sum(-1, keepdim=True)
            rows = torch.cat([p[..., :tokens], share], -1)
            made = torch.stack([rows[0], *(rule(rows[0], one, step) for one in rows[1:])])
            p = torch.cat([made[..., :-1], made[..., -1:] * p[..., tokens:] / share], -1)
            found[name, step] = rows, made
        expected = (p @ values).transpose(1, 2).flatten(2)
        if not single:
            out = layer.to_out[0]
            expected = linear(expected, out.weight.double(), out.bias.double())
        images = output if alone else output[:, tokens:] if single else output[0]
        scale = float(expected.abs().max())
        torch.testing.assert_close(images[-count:].double(), expected, rtol=0, atol=1e-5 * scale)
        if not alone and not acts(own, step, steps):  # the text's own attention is diffusers'
            plain = layer.processor.original(layer, *args, **kwargs)
            texts = (one[:, :tokens] if single else one[1] for one in (output, plain))
            assert torch.equal(*texts)

    handles = [denoiser(pipe).register_forward_pre_hook(before, with_kwargs=True)]
    for name, layer in denoiser(pipe).named_modules():
        if isinstance(layer, Attention | FluxAttention):
            hook = partial(after, name)
            handles.append(layer.register_forward_hook(hook, with_kwargs=True))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def held_edit(pipe, source, target, rule, steps=2, own=(0, 0), **arguments):
    """Edit, and hold outputs, maps and report against a rule (`beside_edits`)."""
    targets = [target] if isinstance(target, str) else target
    call = {"seed": 1, "self_replace": own, "keep": "all", "steps": steps, **SHORT, **arguments}
    before = state_of(pipe)
    with beside_edits(pipe, 1 + len(targets), rule, steps, own) as found:
        results = hm.edit(pipe, source, targets, **call)
    assert state_of(pipe)["processors"] == before["processors"]
    for number, run in enumerate([results[0].source, *(one.edited for one in results)]):
        recording = run.maps.recording
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            for step, maps in enumerate(array):
                wanted = found[layer.name, step][1][number][..., recording.positions]
                np.testing.assert_allclose(maps, wanted, atol=1e-5)
    for number, one in enumerate(results, 1):
        apart = [(made - rows)[number].abs().sum(-1).mean() / 2 for rows, made in found.values()]
        assert one.report.moved == pytest.approx(float(np.mean(apart)), abs=1e-4)
        assert one.report.sites == sum(float(one) > 1e-6 for one in apart)
    return results[0], found


@EACH
@pytest.mark.parametrize("guidance", [1.0, 4.0])
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


# --- edits of an image of one's own -------------------------------------------------------------


@torch.no_grad()
def flow_edit(pipe, image, prompts, seed, steps):
    """FlowEdit (arXiv 2412.08629) by its definition, in float64 but for the model.

    Z ← Z + (σ' − σ) · (V(Z + (1 − σ) x + σ ε − x) − V((1 − σ) x + σ ε)), from Z = x.
    """
    family, config = family_of(pipe), pipe.vae.config
    pixels = pipe.image_processor.preprocess(image)
    clean = pipe.vae.encode(pixels).latent_dist.mode().double()
    clean = (clean - config.shift_factor) * config.scaling_factor
    chance = torch.Generator().manual_seed(seed)
    noises = [torch.randn(clean.shape, generator=chance).double() for _ in range(steps)]
    sigmas = pipe.scheduler.sigmas.double()
    z = clean.repeat(len(prompts), 1, 1, 1)
    for at, following, noise in zip(sigmas[:-1], sigmas[1:], noises, strict=True):
        seen = z + at * (noise - clean)
        time = torch.full((len(prompts),), float(at))
        if "img_ids" in family.inputs:
            states, pooled, ids = pipe.encode_prompt(prompts, None, **SHORT)
            places = pipe._prepare_latent_image_ids(1, 4, 4, "cpu", torch.float32)
            more = dict(txt_ids=ids, img_ids=places, guidance=torch.ones(len(prompts)))
        else:
            states, _, pooled, _ = pipe.encode_prompt(
                prompts, None, None, do_classifier_free_guidance=False, **SHORT
            )
            time, more = time * 1000, {}
        velocity = pipe.transformer(
            hidden_states=family.pack(seen.float()), timestep=time, encoder_hidden_states=states,
            pooled_projections=pooled, return_dict=False, **more,
        )[0]  # fmt: skip
        velocity = family.unpack(velocity, (8, 8)).double()
        z = z + (following - at) * (velocity - velocity[:1])
    return z, clean


@pytest.mark.filterwarnings("ignore:the (model.s autoencoder|image also changed)")
@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_an_edit_of_an_image_is_flow_edit(load, family):
    pipe, seen, image = load(family), [], models.picture(64, 64)
    call = dict(image=image, seed=3, steps=4, guidance=1.0, preview=seen.append, **SHORT)
    targets = [TARGET, "a red sea"]
    first, _ = hm.edit(pipe, SOURCE, targets, cross_replace=0.0, self_replace=0.0, **call)
    wanted, clean = flow_edit(pipe, image, [SOURCE, *targets], 3, 4)
    torch.testing.assert_close(seen[-1][0].double(), clean[0], atol=2e-6, rtol=0)
    torch.testing.assert_close(seen[-1].double(), wanted, atol=1e-4, rtol=0)
    assert (wanted[1] - clean).abs().max() > 1e-2
    assert first.report.reconstruction is not None and first.source.input_image is not None
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
