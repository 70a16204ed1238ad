"""Published ways to make maps, worked out by hand on two or three places."""

import math

import pytest
import torch

from evaluation import published

S = torch.tensor([[0.8, 0.2], [0.4, 0.6]])


def near(*values: float):
    return pytest.approx(list(values), abs=1e-6)


# --- GoCA -------------------------------------------------------------------------------------


def test_heads_weigh_what_they_have_of_the_whole():
    # At the first place the heads bring (2, 0) and (1, 1), in all (3, 1): 6 and 4 of 10. At the
    # second (0, 3) and (0, -1), in all (0, 2): 6 and -2 of 4.
    brought = torch.tensor([[[2.0, 0.0], [0.0, 3.0]], [[1.0, 1.0], [0.0, -1.0]]])
    weights = published.head_weights(brought)
    assert weights[0].tolist() == near(0.6, 1.5) and weights[1].tolist() == near(0.4, -0.5)


def test_places_are_alike_by_their_features():
    # F Fᵀ/√4 = [[2, 0], [0, 0]] of the features (2, 0, 0, 0) and 0.
    alike = published.affinity(torch.tensor([[2.0, 0, 0, 0], [0.0, 0, 0, 0]]))
    e = math.exp(2)
    assert alike[0].tolist() == near(e / (e + 1), 1 / (e + 1))


def test_a_word_is_rescaled_by_what_shares_a_place():
    maps = torch.tensor([[0.6, 0.1, 0.2, 0.1], [0.2, 0.4, 0.2, 0.2]])
    assert published.rescaled(maps, [1, 3], [1, 2, 3]).tolist() == near(0.5, 0.75)


# --- iSeg -------------------------------------------------------------------------------------


def test_entropy_is_reduced_by_a_step():
    # By the greatest of each column: [[1, 1/3], [1/2, 1]]. Of a half: 1/2 + 0.3 (1 - ln 2) =
    # 0.592; of a third: 1/3 + 0.3 (1 - ln 3) = 0.3037; of 1: 1.3.
    rows = published.entropy_reduced(S, 0.3)
    third, half = 1 / 3 + 0.3 * (1 - math.log(3)), 0.5 + 0.3 * (1 - math.log(2))
    assert rows[0].tolist() == near(1.3 / (1.3 + third), third / (1.3 + third))
    assert rows[1].tolist() == near(half / (1.3 + half), 1.3 / (1.3 + half))


def test_a_map_is_repeated_from_its_least():
    three = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    # (4, 2, 0)/6, then (3, 1, 0)/6 by its sum: (3/4, 1/4, 0).
    values = published.repeated(three, torch.tensor([5.0, 3.0, 1.0]), 1)
    assert values.tolist() == near(0.75, 0.25, 0.0)
    assert published.repeated(S, torch.ones(2), 2).tolist() == [0.0, 0.0]


# --- gated graphs -----------------------------------------------------------------------------


def test_edges_are_likeness_where_attention_lets_it_through():
    outputs = torch.tensor([[2.0, 0.0], [3.0, 4.0], [-1.0, 0.0]])  # cosines 0.6, -1 and -0.6
    own = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    free = published.gated(own, outputs, 0.0, 2.0)
    assert free[0].tolist() == near(1 / 1.36, 0.36 / 1.36, 0)
    assert free[2].tolist() == near(0, 0, 1)
    # 0.25 of 0.5 is just let in by a gate of 0.5, 0.1 of 0.8 is not.
    shut = published.gated(own, outputs, 0.5, 1.0)
    assert shut[0].tolist() == near(1 / 1.6, 0.6 / 1.6, 0) and shut[1].tolist() == near(0, 1, 0)


def test_a_walk_begins_anew_now_and_then():
    seed = published.anchor(torch.tensor([0.7, 0.1]))
    assert seed.tolist() == [1.0, 0.0]
    # 0.25 · (1, 0) + 0.75 · (0.8, 0.4), then 0.25 · (1, 0) + 0.75 · (0.74, 0.52).
    assert published.walked(S, seed, 1, 0.25).tolist() == near(0.85, 0.3)
    assert published.walked(S, seed, 2, 0.25).tolist() == near(0.805, 0.39)
