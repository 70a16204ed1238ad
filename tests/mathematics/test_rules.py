"""The rules of edits: worked by hand, and in a row of attention against the definition."""

import pytest
import torch

from heedmap.errors import ArgumentError
from heedmap.mathematics.events import AttentionEvent, Layout, RowAttention, RowLayout
from heedmap.mathematics.rules import (
    Inject,
    Region,
    Renormalize,
    Site,
    Weights,
    apply,
    blend_mask,
)
from heedmap.recording.controller import edit_row
from heedmap.recording.edits import CountedRule

P = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]])  # (H=1, Q=2, K=3)
SOURCE = torch.tensor([[[0.2, 0.2, 0.6], [0.7, 0.2, 0.1]]])


def site(step=0, steps=10, grid=(1, 2), source=SOURCE):
    return Site("layer", step, steps, grid, source)


def inject(columns, start=0.0, end=0.8):
    k = columns.shape[1]
    return Inject(columns, torch.full((k,), start), torch.full((k,), end))


def test_replace_equals_the_values_worked_out_by_hand():
    # Source token 1 becomes the two target tokens 1 and 2, half of its attention each.
    columns = torch.tensor([[1, 0, 0], [0, 0.5, 0.5], [0, 0, 0.0]])
    edited = inject(columns)(P, site())
    torch.testing.assert_close(edited, torch.tensor([[[0.2, 0.1, 0.1], [0.7, 0.1, 0.1]]]))


@pytest.mark.parametrize(("step", "acts"), [(0, False), (2, True), (7, True), (8, False)])
def test_a_window_includes_its_start_and_excludes_its_end(step, acts):
    rule = inject(torch.eye(3), start=0.2, end=0.8)
    expected = SOURCE if acts else P
    torch.testing.assert_close(rule(P, site(step)), expected)
    assert rule.acts(site(step)) == acts


def test_reweight_equals_the_values_worked_out_by_hand():
    rule = Weights(torch.tensor([1, -1, 2.0]))
    edited = rule(P, site())
    torch.testing.assert_close(edited, torch.tensor([[[0.5, -0.3, 0.4], [0.1, -0.1, 1.6]]]))
    torch.testing.assert_close(
        Renormalize()(edited, site()),
        torch.tensor([[[0.5, -0.3, 0.4], [0.1, -0.1, 1.6]]]) / torch.tensor([[[1.2], [1.8]]]),
    )
    rows = torch.tensor([[[0.2, 0.2, 0.4], [-0.5, 0.3, 0.2], [0.0, 0.0, 0.0]]])
    whole = torch.tensor([[[0.25, 0.25, 0.5], [-0.5, 0.3, 0.2], [0.0, 0.0, 0.0]]])
    torch.testing.assert_close(Renormalize()(rows, site()), whole)


@pytest.mark.parametrize("strength", [-1000.0, -100.0, -3.0, 0.0, 3.0, 88.0, 100.0, 1000.0, 1e8])
@pytest.mark.parametrize("tokens", [(1,), (0, 2), (3,), (0, 1, 2)])
def test_no_strength_of_a_region_overflows(strength, tokens):
    """It is the softmax of biased scores in double precision, with -inf outside of the region."""
    region = torch.tensor([[1.0, 0], [1, 0]])
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        scores = 8 * torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
        bias = torch.zeros(4, 4, dtype=torch.float64)
        bias[::2, list(tokens)] = strength  # places in the region
        bias[1::2, list(tokens)] = -torch.inf
        expected = (scores + bias).softmax(-1)
        rule = Region(tokens, region, strength=strength, end=0.6)
        row = RowAttention(scores.float(), torch.eye(4).expand(2, 4, 4), 1.0)
        edited = edit_row([rule], row, None, site(grid=(2, 2))).after
        assert edited.dtype == torch.float32
        torch.testing.assert_close(edited.double(), expected, rtol=2e-5, atol=1e-7)
        assert rule.bias(site(step=6, grid=(2, 2))) is None


def test_a_users_rule_is_applied():
    def flatten(p, site):
        return p.mean(dim=1, keepdim=True).expand_as(p)

    rule = CountedRule(flatten)
    torch.testing.assert_close(apply([rule], P, site()), P.mean(1, keepdim=True).expand_as(P))
    for bad in (lambda p, site: p.sum(-1), lambda p, site: p.numpy()):
        with pytest.raises(ArgumentError, match="lambda"):
            apply([CountedRule(bad)], P, site())


def test_a_rule_without_its_source_is_refused():
    with pytest.raises(ArgumentError, match="source"):
        inject(torch.eye(3))(P, site(source=None))
    key = torch.randn(1, 3, 4)
    row = RowAttention(torch.randn(1, 2, 4), key, 0.5, values=key)
    with pytest.raises(ArgumentError, match="source"):
        edit_row([inject(torch.eye(3))], row, None, site()).output()


@pytest.mark.parametrize(("image", "own"), [((0.0, 0.1), 0.0), ((0.1, 0.8), 1.0)])
def test_the_images_share_is_one_more_column(image, own):
    """It is the source's in a window of its own, and weights leave it as it is."""
    p, source = (torch.rand(2, 5, 5).softmax(-1) for _ in range(2))
    columns, weights = torch.rand(4, 4), torch.randn(4)
    rules = [Inject(columns, torch.zeros(4), torch.ones(4), image), Weights(weights)]
    where = site(source=source)
    text, share = source[..., :4] @ columns * weights, torch.lerp(source, p, own)[..., 4:]
    wanted = torch.cat([text, share], dim=-1)
    torch.testing.assert_close(apply(rules, p, where, joint=True), wanted)


@pytest.mark.parametrize("source", [0, 2])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", ["inject", "reweight", "confine", "all"])
def test_edits_of_a_row_equal_the_rules_by_hand(kind, mask, source):
    generator = torch.Generator().manual_seed(1)
    b, h, q, k, d = 5, 2, 6, 5, 8
    query, value = (torch.randn(b, h, n, d, generator=generator) for n in (q, k))
    key = torch.randn(b, h, k, d, generator=generator)
    bias = torch.randn(b, 1, 1, k, generator=generator) if mask else None
    event = AttentionEvent(query, key, d**-0.5, bias, value=value)
    every = {
        "inject": inject(torch.rand(k, k, generator=generator)),
        "reweight": Weights(torch.randn(k, generator=generator)),
        "confine": Region((1, 2), torch.tensor([[1.0, 0, 1], [0, 1, 1]]), 3.0, end=0.6),
    }
    rules = list(every.values()) if kind == "all" else [every[kind]]
    where = Site("layer", 0, 10, (2, 3))
    edits = edit_row(rules, event.row(3), event.row(2 + source), where)
    plain = torch.nn.functional.scaled_dot_product_attention(query, key, value, bias)
    output = edits.output()
    p = edits.after
    torch.testing.assert_close(output, p @ value[3], atol=1e-5, rtol=1e-5)
    assert (output - plain[3]).abs().max() > 1e-3
    there = (query[2 + source] @ key[2 + source].mT * d**-0.5) + (bias[2 + source] if mask else 0)
    own = (query[3] @ key[3].mT * d**-0.5) + (bias[3] if mask else 0)
    _, again = apply_by_hand(rules, own, there.softmax(-1), where)
    torch.testing.assert_close(p, again, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("strength", [3.0, 1e6])
@pytest.mark.parametrize("hidden", [(0,), (0, 1, 2)])
def test_a_row_whose_attention_is_all_on_hidden_tokens(hidden, strength, joint):
    """The rest of the scores decides, though its probabilities were 0; of no rest it is 0."""
    generator = torch.Generator().manual_seed(3)
    query, every = (torch.randn(1, 2, n, 8, generator=generator) for n in (4, 7))
    value = torch.randn(1, 2, 7, 8, generator=generator)
    query[..., 0], every[..., 0, 0] = 20.0, 40.0  # a score of 283, which leaves others nothing
    keys = every if joint else every[:, :, :3]
    value = value[:, :, : keys.shape[2]]
    if joint:  # the image's queries behind those of the text
        query = torch.cat([torch.randn(1, 2, 3, 8, generator=generator), query], dim=2)
    layout = Layout((RowLayout(slice(0, 3), slice(3, 7)),), joint=True) if joint else Layout()
    event = AttentionEvent(query, keys, 8**-0.5, value=value, layout=layout)
    query = query[:, :, -4:]
    where = Site("layer", 0, 10, (2, 2))
    region = Region(hidden, torch.tensor([[1.0, 0], [0, 1]]), strength)
    edits = edit_row([region], event.row(0), None, where)
    bias = torch.zeros(4, keys.shape[2], dtype=torch.float64)
    inside = torch.tensor([[True], [False], [False], [True]])
    bias[:, list(hidden)] = torch.where(inside, strength, -torch.inf).double()
    plain = (query.double() @ keys.double().mT * 8**-0.5)[0]
    expected = (plain + bias).softmax(-1).nan_to_num(0.0)
    assert (plain.softmax(-1).float()[..., 0] == 1).all()
    p = edits.after
    whole = torch.cat([expected[..., :3], expected[..., 3:].sum(-1, keepdim=True)], dim=-1)
    # Scores of up to 300 are rounded by 2⁻¹⁵ in float32.
    torch.testing.assert_close(p.double(), whole if joint else expected, rtol=0, atol=1e-4)
    output = edits.output()
    torch.testing.assert_close(output.double(), expected @ value[0].double(), rtol=0, atol=1e-4)


def apply_by_hand(rules, scores, source, where):
    """Biases before the softmax, then the rest in order."""
    for rule in rules:
        if isinstance(rule, Region):
            bias = rule.bias(where)
            scores = scores + torch.nn.functional.pad(bias, (0, scores.shape[-1] - bias.shape[1]))
    p = edited = scores.softmax(-1)
    for rule in rules:
        if isinstance(rule, Inject):
            edited = source @ rule.columns  # its window holds all tokens
        elif isinstance(rule, Weights):
            edited = edited * rule.weights
    return p, edited


def test_the_blend_mask_is_resized_and_thresholded():
    maps = torch.zeros(4, 4)
    maps[1, 1] = 1.0
    mask = blend_mask(maps, (8, 12), 0.4)
    assert mask.shape == (8, 12)
    assert mask[2, 4] and not mask[7, 11]
    assert torch.equal(blend_mask(0.5 + maps, (8, 12), 0.4), mask)  # a floor says nothing
    for flat in (n / 60 for n in range(1, 61)):  # which enlarging leaves uneven, by rounding
        rounded = flat * (1 + 1e-6 * torch.arange(16).reshape(4, 4) / 16)
        assert not blend_mask(torch.full((2, 2), flat), (16, 24), 0.25).any()
        assert not blend_mask(rounded, (8, 12), 0.25).any()
    uneven = torch.tensor([[0.1, 0.9], [0.4, 0.2]])  # of which pooling leaves nothing
    assert not blend_mask(uneven, (16, 24), 0.25).any()
