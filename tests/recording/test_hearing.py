"""What a call takes of layers that have run; whole runs: test_tracing and test_refining."""

from dataclasses import replace

import torch
from making import run

from heedmap.mathematics.probabilities import Scores
from heedmap.recording import hearing
from heedmap.recording.tracing import trace


def test_merged_tokens_carry_nothing(pipe, monkeypatch):
    """Where a layer attends from other places than its grid has, nobody knows which is which."""
    usual = hearing.carry

    def merged(call, name, scores):
        half = scores.query[:, :, ::2]
        usual(call, name, Scores(half, scores.key[:, :, ::2], scores.scale))

    monkeypatch.setattr(hearing, "carry", merged)
    with trace(pipe) as recorder:
        run(pipe, "a red house")
    assert recorder.recordings[0].refined is None


def test_places_that_are_hidden_from_one_another_carry_nothing(pipe, monkeypatch):
    usual = hearing.carry

    def masked(call, name, scores):
        usual(call, name, replace(scores, mask=torch.zeros(1, 1, 1, 1)))

    monkeypatch.setattr(hearing, "carry", masked)
    with trace(pipe) as recorder:
        run(pipe, "a red house")
    assert recorder.recordings[0].refined is None


def test_rows_that_a_layer_does_not_attend_in_carry_nothing(pipe, monkeypatch):
    """Perturbed-attention guidance attends in the first rows of the batch alone."""
    usual = hearing.carry

    def fewer(call, name, scores):
        usual(call, name, Scores(scores.query[:1], scores.key[:1], scores.scale))

    monkeypatch.setattr(hearing, "carry", fewer)
    with trace(pipe) as recorder:
        run(pipe, ["a red house", "at the cat"], (1, 2), guidance_scale=1.0)
    first, second = recorder.recordings
    assert first.refined is not None
    assert second.refined is None
