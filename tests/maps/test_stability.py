"""How stable maps are: beside ranks that are counted here, and maps that are resized by torch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from making import recording
from torch.nn.functional import interpolate

from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.selections import least_stability, stability_of, stability_said

GRIDS = ((16, 16), (8, 8))


def halves_of(made: Any, seed: int = 0, count: int = 2) -> list[dict[tuple[int, int], np.ndarray]]:
    """Sums by chance, which have something in common."""
    random = np.random.default_rng(seed)
    shapes = {grid: (grid[0] * grid[1], len(made.positions)) for grid in GRIDS}
    common = {grid: random.random(shape) for grid, shape in shapes.items()}
    return [
        {g: (common[g] + random.random(s)).astype(np.float32) for g, s in shapes.items()}
        for _ in range(count)
    ]


def correlated(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation of the places that values have in their order."""
    places = [np.argsort(np.argsort(each, axis=None)) for each in (one, other)]
    return float(np.corrcoef(*places)[0, 1])


def map_of(half: dict[tuple[int, int], np.ndarray], columns: list[int]) -> np.ndarray:
    total = torch.zeros(1, 1, 64, 64, dtype=torch.float64)
    for grid, sums in half.items():
        plane = torch.from_numpy(sums[:, columns].sum(axis=1)).double().reshape(1, 1, *grid)
        total += interpolate(plane, size=(64, 64), mode="bilinear", antialias=True)
    return total[0, 0].numpy()


def test_it_is_the_rank_correlation_of_each_words_own_two_maps():
    made = recording("at house, a sea", keep=("layer",))
    one, other = halves_of(made)
    found = stability_of(made, [one, other])
    assert found is not None and [*found] == [0, 1, 2, 3]
    for word in made.table.words:
        columns = [made.columns[token] for token in word.tokens]
        expected = correlated(map_of(one, columns), map_of(other, columns))
        assert found[word.number] == pytest.approx(expected, abs=1e-3)
        assert found[word.number] == round(found[word.number], 4)
    assert len({*found.values()}) == 4
    assert any(round(one, 3) != one for one in found.values())


def test_there_is_none_of_one_half_or_of_words_without_an_order():
    made = recording("at house", keep=("layer",))
    assert stability_of(made, []) is None
    assert stability_of(made, halves_of(made, count=1)) is None
    one, other = halves_of(made)
    (token,) = made.table.words[0].tokens
    for sums in other.values():
        sums[:, made.columns[token]] = 0.25
    found = stability_of(made, [one, other])
    assert found is not None and [*found] == [1]
    for sums in other.values():
        sums[:] = 0
    assert stability_of(made, [one, other]) is None


def test_a_map_has_that_of_the_word_that_it_is_of():
    made = recording("at house, at sea")
    refined = np.random.default_rng(0).random((4, 4, len(made.positions)), dtype=np.float32)
    known = {0: 0.9, 1: -0.5, 3: 0.25}
    maps = HeatMaps(replace(made, refined=refined), stability=known)
    assert [heat.stability for heat in maps] == [0.9, -0.5, None, 0.25]
    assert maps["house"].stability == maps.without_shared_scale()["house"].stability == -0.5
    assert maps["sea"].stability == 0.25 and maps.without_shared_scale().at(0).stability == 0.9
    # What stands twice, a phrase, a share, a part and refined maps are other maps.
    assert maps["at"].stability is maps["at sea"].stability is maps.share("house").stability is None
    assert maps.select(steps=0).at(1).stability is None and maps.refined.at(1).stability is None
    assert maps.select(steps=0).stability is maps.refined.stability is None
    assert HeatMaps(made)["house"].stability is None


def test_a_phrase_is_no_steadier_than_its_least_stable_word():
    words = recording("at house, at sea").table.words
    known = {0: 0.9, 1: -0.5, 3: 0.25}
    for numbers, least in (([0, 1], -0.5), ([3], 0.25), ([2, 3], 0.25), ([2], None), ([], None)):
        tokens = [token for number in numbers for token in words[number].tokens]
        assert least_stability(known, words, tokens) == least
        assert least_stability(None, words, tokens) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.984, "stability 0.98"),
        (1.0, "stability 1.00"),
        (0.8, "stability 0.80"),
        (0.79, "stability 0.79, unsteady"),
        (-0.25, "stability −0.25, unsteady"),
        (-0.004, "stability 0.00, unsteady"),
    ],
)
def test_it_is_told_in_a_word_and_a_number(value: float, said: str):
    assert stability_said(value) == said
