"""Soft masks: phrases against one another, by hand; edges; what a word stands for."""

from dataclasses import replace

import numpy as np
import pytest
from making import recording
from PIL import Image

from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.masks import suppress_rivals

PROMPT = "a red house, a blue house at sea"


def blob(x: float, y: float, wide: float, side: int = 16) -> np.ndarray:
    """A hill of height 1 around a place of a grid (0 to 1 across)."""
    at = (np.arange(side) + 0.5) / side
    return np.exp(-((at[None] - x) ** 2 + (at[:, None] - y) ** 2) / wide**2).astype(np.float32)


def place_hills(hills: dict[str, np.ndarray], prompt: str = PROMPT, carried=None, **more):
    """A recording in which words draw so, by their text (of the n-th time: "house#1"), 16×16."""
    result = recording(prompt, keep=(), latent=(16, 16), **more)
    arrays = [np.full_like(a, 0.001) for a in result.arrays]
    refined = np.full((16, 16, len(result.positions)), 0.001, np.float32)
    for name, hill in hills.items():
        text, _, number = name.partition("#")
        places = [word for word in result.table.words if word.text == text]
        for token in places[int(number or 0)].tokens:
            column = result.columns[token]
            for layer, array in zip(result.layers, arrays, strict=True):
                cell = 16 // layer.grid[0]
                small = hill.reshape(layer.grid[0], cell, layer.grid[1], cell).mean((1, 3))
                array[0, 0, :, column] += 0.1 * small.ravel()
            refined[..., column] += 0.1 * (carried or {}).get(name, hill)
    return replace(result, arrays=tuple(arrays), refined=refined)


LEFT = blob(0.25, 0.5, 0.15)
RIGHT = blob(0.75, 0.5, 0.15)
BOTH = np.maximum(LEFT, RIGHT)
# What self-attention does to two things of a kind: each word's map is on both.
MIXED = {"house": LEFT + 0.7 * RIGHT, "house#1": RIGHT + 0.7 * LEFT}
HOUSES = {"red": LEFT, "house": LEFT, "blue": RIGHT, "house#1": RIGHT}


def greatest_by_half(soft: np.ndarray) -> tuple[float, float]:
    """The most that a soft mask has on the left and on the right, the hills' feet left out."""
    part = 3 * soft.shape[1] // 8
    return float(soft[:, :part].max()), float(soft[:, -part:].max())


# --- the contest ------------------------------------------------------------------------------


def test_a_cell_goes_to_the_stronger_phrase_as_worked_out_by_hand():
    """Four places: heights above the mean, by the highest, are (1, 0, 0, 0) and (0, 1, .5, 0)."""
    plain = np.array([[[0.7, 0.1, 0.1, 0.1]], [[0.1, 0.5, 0.35, 0.05]]])
    refined = np.array([[[0.9, 0.5, 0.5, 0.1]], [[0.6, 0.6, 0.4, 0.2]]])
    result = suppress_rivals(refined, plain)
    # Refined, from 0 to 1: (1, .5, .5, 0) and (1, 1, .5, 0). The first loses places 1 and 2, where
    # it does not stand above its mean of 0.25; the second loses place 0.
    np.testing.assert_allclose(result[0], [[1, 0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(result[1], [[0, 1, 0.5, 0]], atol=1e-6)


def test_two_strong_phrases_share_a_cell_by_fourth_powers():
    """Heights of 1 and 1/2 of their own: 16/17 and 1/17 are left, of what is wholly refined."""
    plain = np.array([[[1.0, 0.0, 0.0, 0.0]], [[0.6, 0.9, 0.0, 0.0]]])
    # Means 0.25 and 0.375; heights 0.75 / 0.75 = 1, and (0.225, 0.525) / 0.525 = 3/7 and 1.
    result = suppress_rivals(np.ones((2, 1, 4)) * [1.0, 1.0, 0.0, 0.0], plain)
    rival = (0.225 / 0.525) ** 4
    np.testing.assert_allclose(result[0, 0], [1 / (1 + rival), 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(result[1, 0], [rival / (1 + rival), 1, 0, 0], atol=1e-6)


def test_a_single_phrase_and_an_even_map_change_nothing():
    hill = np.array([[[0.1, 0.2, 0.6]]])
    np.testing.assert_allclose(suppress_rivals(hill, hill), [[[0, 0.2, 1]]], atol=1e-6)
    even = np.full((1, 1, 3), 0.9)
    result = suppress_rivals(np.concatenate([hill, even]), np.concatenate([hill, even]))
    np.testing.assert_allclose(result, [[[0, 0.2, 1]], [[0, 0, 0]]], atol=1e-6)
    rounded = 0.3 + 1e-7 * np.random.default_rng(0).random((1, 1, 3), np.float32)
    assert not suppress_rivals(rounded, rounded).any()  # no rounding is stretched to a map


# --- of a run ---------------------------------------------------------------------------------


def test_two_phrases_of_one_noun_have_separate_masks():
    maps = HeatMaps(place_hills(HOUSES, carried=MIXED))
    left, right = greatest_by_half(maps.refined.at(2).soft_mask())
    assert (left, right) == (1.0, pytest.approx(0, abs=0.02))
    left, right = greatest_by_half(maps.at(5).soft_mask())
    assert (left, right) == (pytest.approx(0, abs=0.02), 1.0)


def test_plain_maps_separate_phrases_with_equal_refined_maps():
    """Where self-attention has mixed two of a noun wholly, nothing else can."""
    alike = dict.fromkeys(HOUSES, BOTH)
    maps = HeatMaps(place_hills(HOUSES, carried=alike))
    left, right = greatest_by_half(maps["red"].soft_mask())
    assert (left, right) == (1.0, pytest.approx(0, abs=0.1))


def test_a_word_has_its_phrases_mask_and_a_text_that_of_all_its_places():
    maps = HeatMaps(place_hills(HOUSES, carried=MIXED))
    red = maps["red"].soft_mask()
    for same in (maps["red house"], maps.at(1), maps.refined["red"]):
        np.testing.assert_array_equal(same.soft_mask(), red)
    both = maps["house"].soft_mask()
    assert greatest_by_half(both) == (1.0, 1.0)
    np.testing.assert_array_equal(both, np.maximum(red, maps["blue"].soft_mask()))


def test_a_word_that_names_no_object_suppresses_no_phrase():
    """Wherever "at" is drawn to."""
    maps = HeatMaps(place_hills({**HOUSES, "at": LEFT}))
    without = HeatMaps(place_hills(HOUSES))
    np.testing.assert_array_equal(maps["red"].soft_mask(), without["red"].soft_mask())
    assert greatest_by_half(maps["at"].soft_mask()) == (1.0, pytest.approx(0, abs=0.02))


def test_a_negative_weight_masks_where_the_map_is_lowest():
    """And does not take away from what the other words of its phrase draw."""
    below = 0.02  # twice of what all words draw everywhere: the maps are mirrored exactly
    against = {"red": -LEFT - below, "house": LEFT, "blue": RIGHT, "house#1": -RIGHT - below}
    plain = HeatMaps(place_hills(HOUSES))
    weighted = HeatMaps(place_hills(against))
    for word in ("red", "house", "blue", "red house"):
        np.testing.assert_allclose(weighted[word].soft_mask(), plain[word].soft_mask(), atol=1e-5)


def test_masks_have_the_edges_of_the_picture():
    """A thing of 40×40 pixels, whose map is a hill: its mask is the thing, but for a hundredth."""
    thing = np.zeros((128, 128), bool)
    thing[44:84, 12:52] = True
    picture = np.where(thing[..., None], (210, 40, 40), (225, 235, 245)).astype(np.uint8)
    result = place_hills(HOUSES)
    maps = HeatMaps(result, Image.fromarray(picture))
    mask = maps["red"].mask()
    rough = HeatMaps(result)["red"].mask()
    assert (mask & thing).sum() / (mask | thing).sum() > 0.99
    assert (rough & thing).sum() / (rough | thing).sum() < 0.9


def test_a_selections_mask_is_cut_without_rivals():
    result = place_hills(HOUSES, carried=MIXED)
    maps = HeatMaps(result)
    of_old = HeatMaps(replace(result, refined=None))
    token = result.table.find("red")[0]
    for own, values in (
        (of_old["red"], of_old["red"].values),
        (maps.token(token), maps.token(token).values),
    ):
        large = np.asarray(Image.fromarray(values).resize((128, 128), Image.Resampling.BILINEAR))
        expected = (large - values.min()) / np.ptp(values)
        np.testing.assert_allclose(own.soft_mask(), expected, atol=1e-6)


def test_words_of_a_phrase_do_not_cancel_one_another():
    """One takes away at each place what the other draws: both act there, and the phrase is seen."""
    result = place_hills(HOUSES)
    red, house = ([result.columns[t] for t in result.table.find(one)] for one in ("red", "house"))
    house = house[: len(house) // 2]  # the first of two
    refined = result.refined.copy()
    arrays = [array.copy() for array in result.arrays]
    for array in (refined, *arrays):
        array[..., red] = -array[..., house].sum(axis=-1, keepdims=True) / len(red)
    maps = HeatMaps(replace(result, refined=refined, arrays=tuple(arrays)))
    soft = maps["red"].soft_mask()
    np.testing.assert_allclose(soft, HeatMaps(result)["red"].soft_mask(), atol=1e-5)
    assert greatest_by_half(soft) == (1.0, pytest.approx(0, abs=0.02))
