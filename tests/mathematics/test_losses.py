"""Derivatives of log-sums against float64; losses of maps against numbers worked out by hand."""

import pytest
import torch
from scipy.spatial.distance import jensenshannon

from heedmap.mathematics import probabilities
from heedmap.mathematics.losses import absence, divergence, outside
from heedmap.mathematics.probabilities import log_sums


@pytest.mark.parametrize("masked", [False, True])
def test_log_sums_by_parts_have_the_derivatives_of_their_definition(monkeypatch, masked):
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(3, n, 8, generator=generator) for n in (50, 70))
    weights = torch.randn(3, 50, generator=generator)
    mask = torch.randn(3, 50, 70, generator=generator) if masked else None
    parts = [slice(0, 20), slice(20, 50)]
    monkeypatch.setattr(probabilities, "query_parts", lambda *_: parts)
    inputs = [query.requires_grad_(), key.requires_grad_()]
    found = torch.autograd.grad((log_sums(*inputs, 0.7, mask) * weights).sum(), inputs)
    exact = [one.detach().double().requires_grad_() for one in inputs]
    scores = exact[0] @ exact[1].mT * 0.7
    if mask is not None:
        scores = scores + mask
    expected = torch.autograd.grad((scores.logsumexp(-1) * weights).sum(), exact)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


def test_log_sums_hold_no_probabilities_for_their_derivatives():
    query, key = torch.randn(2, 1, 2048, 8)
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: held.append(x.numel()), lambda x: x):
        log_sums(query.requires_grad_(), key.requires_grad_(), 1.0)
    assert 0 < max(held) <= query.numel()


def test_absence_is_of_the_place_where_the_share_is_largest():
    part, whole = torch.zeros(5, 5), torch.ones(5, 5)
    assert absence(part, whole) == 1
    part[0, 0] = 0.8  # of the 4 positions in the corner
    assert absence(part, whole) == pytest.approx(1 - 0.2)
    part[2:, 2:] = 0.5
    assert absence(part, whole) == pytest.approx(0.5)


def test_outside_is_the_share_that_is_not_in_the_region():
    part, region = torch.ones(4, 4), torch.zeros(8, 8)
    region[:, :4] = 1
    assert outside(part, region) == pytest.approx(0.5)
    part[:, 2:] = 0
    assert outside(part, region) == pytest.approx(0)
    region[:, :2] = 0
    assert outside(part, region) == pytest.approx(0.5)


def test_divergence_is_that_of_jensen_and_shannon():
    first, second = torch.rand(2, 6, 5, generator=torch.Generator().manual_seed(0))
    expected = jensenshannon(first.flatten(), second.flatten(), base=2) ** 2
    assert divergence(first, 3 * second) == pytest.approx(expected, rel=1e-5)
    assert divergence(first, 2 * first) == pytest.approx(0, abs=1e-6)
    left, right = torch.zeros(2, 2, 2)
    left[:, 0] = right[:, 1] = 1
    assert divergence(left, right) == pytest.approx(1)
    for one in (left, torch.zeros(2, 2)):  # nothing is NaN where a map is 0
        one = one.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(divergence(one, right), one)
        assert bool(gradient.isfinite().all())
