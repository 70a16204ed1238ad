"""What a call takes of layers that have run; whole runs: test_tracing and test_refining."""

from dataclasses import replace

import pytest
import torch
from making import run

from heedmap.recording import hearing
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
    usual = hearing.carry
    monkeypatch.setattr(hearing, "carry", lambda c, name, scores: usual(c, name, made(scores)))
    with trace(pipe) as recorder:
        run(pipe, ["a red house", "at the cat"], (1, 2), guidance_scale=1.0)
    assert tuple(one.refined is not None for one in recorder.recordings) == refined
