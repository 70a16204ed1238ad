"""Edits of attention where text and image share a softmax, against float64."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import Attention, JointAttnProcessor2_0
from diffusers.models.transformers.transformer_flux import FluxAttention
from torch.nn.functional import linear

import heedmap as hm
from families.checking import assert_restored, denoiser, joint_attention, state_of
from heedmap.backends.prompts import prompt_table
from heedmap.errors import HeedmapWarning, ModelError, TraceError
from heedmap.mathematics.rules import steps_within

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


def test_edits_of_a_source_are_refused_before_sampling(load):
    for family in ("sd3", "flux"):
        pipe, ran = load(family), []
        pipe.transformer.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        with pytest.raises(ModelError, match="one softmax"):
            hm.edit(pipe, "a red house", "a blue house", seed=1)
        assert not ran
