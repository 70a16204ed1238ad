"""What a call takes of layers that have run; whole runs: test_tracing and test_refining."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from making import run

from heedmap.recording import concepts
from heedmap.recording.tracing import trace


def half(scores):
    return replace(scores, query=scores.query[:, :, ::2], key=scores.key[:, :, ::2])


def masked(scores):
    return replace(scores, mask=torch.zeros(1, 1, 1, 1))


def first_row(scores):
    return replace(scores, query=scores.query[:1], key=scores.key[:1])


@pytest.mark.parametrize(
    ("made", "refined"),
    [
        (lambda scores: scores, (True, True)),
        (half, (False, False)),  # merged tokens: nobody knows which place is which
        (masked, (False, False)),  # places that are hidden from one another
        (first_row, (True, False)),  # as perturbed-attention guidance attends
    ],
)
def test_only_what_is_known_place_by_place_carries(pipe, monkeypatch, made, refined):
    usual = concepts.carry
    monkeypatch.setattr(concepts, "carry", lambda c, name, scores: usual(c, name, made(scores)))
    with trace(pipe) as recorder:
        run(pipe, ["a red house", "at the cat"], (1, 2), guidance_scale=1.0)
    assert tuple(one.refined is not None for one in recorder.recordings) == refined


@pytest.mark.parametrize(
    ("own", "cross", "carries", "watched"),
    [
        ([(16, 24), (8, 12)], [(64, 96), (16, 24)], True, (16, 24)),
        ([(2, 2)], [(64, 64), (16, 24), (8, 12)], False, (16, 24)),  # in its middle alone
        ([], [(49, 64), (64, 96)], False, (64, 96)),
    ],
)
def test_what_is_watched_is_brought_to_the_middle_grid(own, cross, carries, watched):
    call: Any = SimpleNamespace(sides={}, watched=[(1,)], watch=None)
    call.grids = {f"attn2 {n}": grid for n, grid in enumerate(cross)}
    found = concepts.refine(call, {f"attn1 {n}": grid for n, grid in enumerate(own)})
    assert bool(found) == carries and call.carriers == found
    assert call.watch.grid == watched
    call.watched, call.watch = [()], None
    concepts.refine(call, {})
    assert call.watch is None
