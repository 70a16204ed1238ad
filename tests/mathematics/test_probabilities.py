"""The attention mathematics against its definition in float64, and torch's own kernels."""

import pytest
import torch
from oracle import assert_probabilities, softmax, tolerance
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from heedmap.mathematics.events import AttentionEvent
from heedmap.mathematics.probabilities import (
    KERNELS,
    KernelInputs,
    fused,
    log_sums,
    probabilities,
)

CUDA_CHOICES = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


def draw(seed=0, b=3, h=4, q=5, k=7, d=8):
    """Query, key and value."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(b, h, n, d, generator=generator) for n in (q, k, k)]


def mask_of(kind, rows=3, tokens=7):
    mask = torch.randn(rows, 1, 1, tokens, generator=torch.Generator().manual_seed(1))
    return {"none": None, "added": mask, "boolean": mask > 0, "of all": mask[:1]}[kind]


@pytest.mark.parametrize("mask", ["none", "added"])
@pytest.mark.parametrize("scale", [8**-0.5, 0.3])
def test_probabilities_equal_the_definition(scale, mask):
    (query, key, _), mask = draw(), mask_of(mask)
    found = probabilities(query, key, scale=scale, mask=mask)
    assert_probabilities(found, softmax(query, key, scale, mask), tolerance(query, key, scale))


# What the page of this folder says of each type: of the prompt's own tokens, and of all tokens.
BOUNDS = {torch.bfloat16: (1e-4, 5e-5), torch.float16: (1e-4, 5e-5), torch.float32: (5e-5, 5e-5)}
SHAPES = [(8, 64, 40), (2, 512, 80), (2, 256, 16), (8, 64, 160), (4, 35, 8)]
"""Heads, queries and channels of layers."""


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("size", [0.1, 3.0, 6.0])
@pytest.mark.parametrize("start", [False, True], ids=["plain", "start token"])
def test_probabilities_from_the_log_sum_keep_their_error_bound(dtype, size, start):
    """Beside double precision, relative to their size, over shapes of layers and prompts."""
    known = 0
    for seed, (heads, queries, d) in enumerate(SHAPES):
        for tokens in (2, 31, 77, 512):
            q, k, v = draw(1000 * seed + tokens, 1, heads, queries, tokens, d)
            q = size * q
            if start:  # one token draws most
                q = q + 12 * k[:, :, :1] / d**0.5
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
            _, log_sum = fused(q, k, v)
            if log_sum is None:  # the scores are so large that the sum is not used
                continue
            known += 1
            scores = AttentionEvent(q, k, d**-0.5, None, log_sum)
            exact = softmax(q, k, d**-0.5)[0]
            own = list(range(1, min(tokens, 9)))
            for some, bound in zip((own, list(range(tokens))), BOUNDS[dtype], strict=True):
                found = scores.row(0).probabilities(some).double()
                off = (found - exact[..., some]).abs() / exact[..., some].clamp_min(1e-30)
                assert off.max() <= bound
    assert known  # else nothing was compared


# --- the probabilities of a few tokens ----------------------------------------------------------


@pytest.mark.parametrize("tokens", [[0, 3], [6], [6, 2], list(range(7))])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_a_few_tokens_are_computed_from_the_log_sum(tokens, scale):
    query, key, value = draw()
    output, log_sum = fused(query, key, value, scale=scale)
    used = 8**-0.5 if scale is None else scale
    assert torch.equal(output, scaled_dot_product_attention(query, key, value, scale=scale))
    torch.testing.assert_close(log_sum, (query @ key.mT * used).logsumexp(-1))
    expected = softmax(query, key, used)[1, 1:3][..., tokens]
    heads = slice(1, 3)
    for known in (log_sum, None):
        event = AttentionEvent(query, key, used, None, known)
        for found in (
            event.row(1).probabilities(tokens, heads),
            event.probabilities(1, keys=torch.tensor(tokens), heads=heads),
        ):
            assert_probabilities(found, expected, tolerance(query, key, used))


@pytest.mark.parametrize("masked", [False, True])
def test_log_sums_in_parts_of_the_queries_are_those_of_float64(masked):
    (query, key, _), mask = draw(b=1, h=1, q=5000, k=5000), None
    scores = query[0].double() @ key[0].double().mT
    if masked:
        mask = torch.where(torch.rand(1, 5000, 5000) < 0.5, 0, -torch.inf)
        scores = scores + mask
    found = log_sums(query[0], key[0], 1.0, mask)
    torch.testing.assert_close(found.double(), scores.logsumexp(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["added", "boolean", "of all", "none"])
def test_a_few_tokens_respect_the_mask_of_their_row(kind):
    (query, key, _), mask = draw(), mask_of(kind)
    for row in range(3):
        found = AttentionEvent(query, key, 0.5, mask).row(row).probabilities([1, 4], slice(0, 2))
        expected = softmax(query, key, 0.5, mask)[row, :2][..., [1, 4]]
        assert_probabilities(found, expected, tolerance(query, key, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_rows_sum_to_one(dtype):
    """Also where the log-sum is off, which parts of rows are computed from."""
    query, key, value = (part.to(dtype) for part in draw())
    _, log_sum = fused(query, key, value)
    assert log_sum.dtype == torch.float32
    scores = AttentionEvent(query, key, 8**-0.5, None, log_sum + 1e-3)
    whole = scores.row(0).probabilities(range(7))
    assert whole.dtype == torch.float32
    torch.testing.assert_close(whole.sum(-1), torch.ones(4, 5), atol=1e-6, rtol=0)
    part = scores.row(0).probabilities(range(6))
    torch.testing.assert_close(part, whole[..., :6] * torch.e**-1e-3, atol=3e-6, rtol=0)


def test_large_scores_that_lie_close_are_exact():
    """Whole numbers, so the scores are exact; their log-sum has two digits behind the point."""
    query = torch.tensor([[[[300.0]], [[1.0]]]])
    key = torch.tensor([[[[300.0], [299.0]], [[2.0], [1.0]]]])
    _, log_sum = fused(query, key, torch.zeros(1, 2, 2, 1), scale=1 / 300)
    found = AttentionEvent(query, key, 1 / 300, None, log_sum).row(0).probabilities([0, 1])
    expected = softmax(query, key, 1 / 300)[0].float()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_without_a_log_sum_the_output_is_sdpas():
    query, key, value = draw(k=5)
    ways = [
        ({"is_causal": True}, query, key, value),
        ({"enable_gqa": True, "scale": 0.3}, query, key[:, :2], value[:, :2]),
        ({"scale": 0.3}, query[0], key[0], value[0]),
        ({}, query.clone().requires_grad_(), key, value),
        ({}, query, key.clone().requires_grad_(), value),
    ]
    for options, *tensors in ways:
        output, log_sum = fused(*tensors, **options)
        assert torch.equal(output, scaled_dot_product_attention(*tensors, **options))
        assert log_sum is None
        assert output.requires_grad == any(part.requires_grad for part in tensors)
    output, log_sum = fused(query, key, value, dropout_p=1.0)
    assert log_sum is None and not output.any()
    with torch.no_grad():
        assert fused(query.clone().requires_grad_(), key, value)[1] is not None


def masks(q: int, k: int) -> list[torch.Tensor]:
    """Masks of 3 rows, of keys, of all and of one axis less: numbers, and boolean."""
    seen = torch.rand(3, 1, 1, k) < 0.5
    seen[..., 0] = True
    return [seen, torch.randn(3, 4, q, k), torch.randn(3, 1, 1, k), torch.randn(q, k)]


@pytest.mark.parametrize("number", range(4))
def test_a_masked_kernel_gives_the_log_sum_of_what_may_be_seen(number):
    query, key, value = draw()
    mask = masks(query.shape[2], key.shape[2])[number]
    output, log_sum = fused(query, key, value, mask)
    assert torch.equal(output, scaled_dot_product_attention(query, key, value, mask))
    added = torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask
    exact = query.double() @ key.double().mT * query.shape[-1] ** -0.5 + added
    torch.testing.assert_close(log_sum.double(), exact.logsumexp(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("known", [True, False])
def test_autocast_changes_no_probability_but_the_type_of_the_output(dtype, known):
    query, key, value = (part.to(dtype) for part in draw())
    log_sum = fused(query, key, value)[1] if known else None
    scores = AttentionEvent(query, key, 8**-0.5, None, log_sum)
    expected = scores.row(0).probabilities([1, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scores.row(0).probabilities([1, 3])
        output = scaled_dot_product_attention(query, key, value)
        assert output.dtype == torch.bfloat16
        assert torch.equal(fused(query, key, value)[0], output)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


# --- the kernels of CUDA ---


@pytest.mark.parametrize("d", [8, 20])
@pytest.mark.parametrize("choice", [one.value for one in CUDA_CHOICES])
def test_kernels_of_cuda_give_an_output_and_a_log_sum_of_all_rows(choice, d):
    """Shapes and types alone: torch computes them on its "meta" device without a GPU."""
    query = torch.empty(2, 3, 70, d, device="meta", dtype=torch.float16)
    key = torch.empty(2, 3, 33, d, device="meta", dtype=torch.float16)
    output, log_sum = KERNELS["cuda", choice](KernelInputs(query, key, key, None, None))
    assert (output.shape, output.dtype) == (query.shape, torch.float16)
    assert (log_sum.shape, log_sum.dtype) == ((2, 3, 70), torch.float32)


def test_only_the_kernel_that_torch_chooses_gives_a_log_sum():
    query, key, value = draw()
    with sdpa_kernel(SDPBackend.MATH):
        output, log_sum = fused(query, key, value)
        assert log_sum is None
        assert torch.equal(output, scaled_dot_product_attention(query, key, value))
    assert fused(query.to("meta"), key.to("meta"), value.to("meta"))[1] is None


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU with CUDA")


@CUDA
@pytest.mark.parametrize("backend", CUDA_CHOICES)
@pytest.mark.parametrize(("q", "k", "d"), [(4608, 4608, 128), (4096, 77, 40), (70, 33, 20)])
@pytest.mark.parametrize("masked", [False, True])
def test_log_sums_of_cuda_leave_the_output_as_it_is(backend, q, k, d, masked):
    half = torch.float16 if backend == SDPBackend.FLASH_ATTENTION else torch.float32
    if masked and half == torch.float16:
        pytest.skip("flash attention takes no mask")
    query, key, value = (one.to("cuda", half) for one in draw(0, 1, 3, q, k, d))
    mask = masks(q, k)[0][:1].cuda() if masked else None
    with sdpa_kernel(backend):
        output, log_sum = fused(query, key, value, mask)
        assert torch.equal(output, scaled_dot_product_attention(query, key, value, mask))
    if log_sum is not None:
        exact = query.double() @ key.double().mT * d**-0.5
        exact = (exact if mask is None else exact.masked_fill(~mask, -torch.inf)).logsumexp(-1)
        torch.testing.assert_close(log_sum.double(), exact, atol=1e-5, rtol=0)


@CUDA
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_probabilities_on_cuda_are_exact(dtype):
    """The default path, whichever kernel torch chooses."""
    query, key, value = (one.to("cuda", dtype) for one in draw(0, 1, 3, 300, 77, 64))
    output, log_sum = fused(query, key, value)
    assert torch.equal(output, scaled_dot_product_attention(query, key, value))
    found = AttentionEvent(query, key, 0.125, None, log_sum).row(0).probabilities([1, 4])
    expected = softmax(query, key, 0.125)[0][..., [1, 4]]
    near = 1e-4 if log_sum is not None and dtype != torch.float32 else tolerance(query, key)
    assert_probabilities(found.cpu(), expected.cpu(), near)
