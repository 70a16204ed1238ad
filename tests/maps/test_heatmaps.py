"""Heat maps: worked numbers, selections, geometry, refined maps, figures."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import read_figure, shows
from making import largest_difference, recording
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from PIL import Image

from heedmap.errors import (
    ArgumentError,
    NothingRecordedError,
    SelectionError,
)
from heedmap.figures import overlays, plots
from heedmap.maps.heatmaps import HeatMaps

PICTURE = Image.radial_gradient("L").resize((128, 128)).convert("RGB")


def maps_of_numbers(values: dict[str, float], latent=(16, 16)) -> HeatMaps:
    """Maps that have the same number everywhere: by word, as `maps.at` returns them."""
    blank = recording(" ".join(values), latent=latent)
    arrays = [np.zeros_like(array) for array in blank.arrays]
    for word, value in zip(blank.table.words, values.values(), strict=True):
        columns = [blank.columns[token] for token in word.tokens]
        for array in arrays:
            array[..., columns] = np.float32(value) / len(columns)
    return HeatMaps(replace(blank, arrays=tuple(arrays)))


# --- words ------------------------------------------------------------------------------------


def test_maps_are_looked_up_by_word():
    maps = HeatMaps(recording("at house, at sea"))
    assert tuple(maps.keys()) == tuple(maps) == ("at", "house", "sea")
    assert len(maps) == 3  # "at" stands twice
    assert [heat.label for heat in maps.values()] == [*maps]
    assert "house" in maps and "at sea" in maps and "House " in maps
    for other in ("cat", "", "sea at sea", 1, None):
        assert other not in maps


def test_a_map_is_an_array():
    heat = HeatMaps(recording())["house"]
    assert np.asarray(heat) is heat.values and heat.values.dtype == np.float32
    assert np.array_equal(np.asarray(heat, dtype=np.float64), heat.values)
    assert np.array(heat, copy=True) is not heat.values


# --- values -----------------------------------------------------------------------------------


def test_values_of_tokens_words_and_places_are_added_up():
    maps = maps_of_numbers({"at": 0.1, "house": 0.2, "sea": 0.3, "AT": 0.4}, latent=(12, 16))
    assert maps["house"].values.shape == (64, 85)
    assert np.ptp(maps["house"].values) == 0
    numbers = {"house": 0.2, "house sea": 0.5, "at": 0.5}
    for query, number in numbers.items():
        np.testing.assert_allclose(maps[query].values, number, rtol=1e-6)
    np.testing.assert_allclose(maps.at(-1).values, 0.4, rtol=1e-6)
    np.testing.assert_allclose(maps.token(maps.tokens.find("sea")[0]).values, 0.1, rtol=1e-6)
    assert maps["house"].shared == pytest.approx((0.1, 0.4))
    assert not maps["house"].mask().any()


def test_values_are_the_mean_over_layers_steps_and_heads():
    whole = recording(latent=(64, 64))  # the map's own cells, so that nothing is resized
    column = whole.columns[whole.table.find("house")[0]]
    last = HeatMaps(whole).select("up_blocks.1*")
    expected = whole.arrays[2][..., column]
    mean = expected.mean((0, 1)).reshape(64, 64)
    np.testing.assert_allclose(last["house"].values, mean, rtol=1e-5)
    single = last.select(steps=1, heads=[1])["house"].values
    np.testing.assert_allclose(single, expected[1, 1].reshape(64, 64), rtol=1e-6)
    # Layers weigh equally, whatever their numbers of heads.
    parts = [HeatMaps(whole).select(layer.name)["house"].values for layer in whole.layers]
    np.testing.assert_allclose(HeatMaps(whole)["house"].values, np.mean(parts, axis=0), rtol=1e-5)


def test_a_hot_cell_keeps_its_place_in_the_map():
    blank = recording(latent=(8, 16), steps=1)
    arrays = [np.zeros_like(array) for array in blank.arrays]
    column = blank.columns[blank.table.find("house")[0]]
    arrays[0][:, :, 3 * 16 + 13, column] = 1.0  # row 3, column 13 of the 8×16 grid
    hot = HeatMaps(replace(blank, arrays=tuple(arrays)))["house"]
    assert hot.values.shape == (64, 128)
    x, y = hot.peak
    assert 13 * 8 <= x < 14 * 8
    assert 3 * 8 <= y < 4 * 8


# --- selections -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        ({"layers": "up"}, [1, 2]),
        ({"layers": "*attentions.0*"}, [0, 1]),
        ({"layers": ["down", "*up_blocks.1*"]}, [0, 2]),
        ({"layers": ["down", lambda layer: layer.heads == 4]}, [0, 1]),
        ({"resolution": (16, 16)}, [0, 2]),
        ({"heads": [3]}, [1]),
        ({"steps": slice(0, 2), "heads": 1}, [0, 1, 2]),
    ],
)
def test_selections_have_the_chosen_layers(choice, numbers):
    maps = HeatMaps(recording())
    chosen = maps.select(**choice).layers
    assert chosen == tuple(maps.layers[number] for number in numbers)


@pytest.mark.parametrize("wanted", [-1, [2, -3, 2], slice(1, None), np.array([1, 2])])
def test_steps_are_chosen_as_by_indexing(wanted):
    expected = np.arange(3)[wanted]
    chosen = HeatMaps(recording()).select(steps=wanted).steps
    assert chosen == tuple(sorted({*np.atleast_1d(expected).tolist()}))


def test_selections_narrow_one_another():
    maps = HeatMaps(recording())
    assert maps.select("up").select("*", resolution=16).layers == maps.layers[2:]
    twice = maps.select(steps=slice(0, 2)).select(steps=[1, 2])
    assert twice.steps == (1,)
    np.testing.assert_array_equal(twice["house"].values, maps.select(steps=1)["house"].values)
    third = maps.select(heads=3)
    assert third.heads == (3,)
    for part, choice in ((twice, {"steps": 0}), (third, {"heads": 1})):
        with pytest.raises(SelectionError):
            part.select(**choice)


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        ({"layers": "mid"}, SelectionError),
        ({"layers": 3}, ArgumentError),
        ({"resolution": 99}, SelectionError),
        ({"heads": 4}, SelectionError),
    ],
)
def test_selections_of_nothing_are_refused(choice, error):
    with pytest.raises(error):
        HeatMaps(recording()).select(**choice)


@pytest.mark.parametrize(
    ("axis", "choice"),
    [("layer", {"layers": "up"}), ("step", {"steps": 0}), ("head", {"heads": 0})],
)
def test_averaged_axes_cannot_be_selected(axis, choice):
    maps = HeatMaps(recording(keep={"layer", "step", "head"} - {axis}))
    with pytest.raises(SelectionError):
        maps.select(**choice)


# --- refined maps and similarities ------------------------------------------------------------


def test_refined_maps_have_the_same_interface():
    """A grid of 1×1 has one value everywhere."""
    whole = recording("at house, at sea")
    numbers = np.random.default_rng(0).random(len(whole.positions), dtype=np.float32)
    maps = HeatMaps(replace(whole, refined=numbers.reshape(1, 1, -1)))
    refined = maps.refined
    assert refined.words == maps.words
    sea = [whole.columns[token] for token in whole.table.find("sea")]
    np.testing.assert_allclose(refined["sea"].values, numbers[sea].sum(), rtol=1e-6)
    assert refined["sea"].values.shape == maps["sea"].values.shape
    assert refined["sea"].shared == refined["house"].shared != maps["sea"].shared
    assert refined["sea"].refined and not maps["sea"].refined
    part = maps.select(steps=0)
    for ask in (
        lambda: refined.select("up"),
        lambda: part.refined,
        part.segment,
    ):
        with pytest.raises(SelectionError):
            ask()


def test_similarities_of_outputs_have_layers_and_steps():
    whole = recording("at house", keep={"layer", "step", "head"})
    outputs = tuple(array[:, :1] / 2 for array in whole.arrays)
    maps = HeatMaps(replace(whole, outputs=outputs))
    heat = maps.outputs.select(steps=1, layers="up")["house"]
    half = maps.select(steps=1, layers="up", heads=0)["house"].values / 2
    np.testing.assert_allclose(heat.values, half, rtol=1e-5)
    (name, _), *_ = read_figure(heat.figure(scale="raw")).scales
    assert "similarity of outputs" in name and "probability" not in name
    for ask in (
        lambda: maps.outputs.refined,
        lambda: maps.select(steps=1).outputs,
    ):
        with pytest.raises(SelectionError):
            ask()


# --- figures ----------------------------------------------------------------------------------


def test_a_maps_figure_has_its_scale():
    heat = HeatMaps(recording(), PICTURE)["house"]
    for scale, name in (("word", "the word's own"), ("raw", "raw probability")):
        content = read_figure(heat.figure(scale=scale))
        assert content.title == "house" and content.scales[0][0] == name
        assert shows(content.panels[0].picture, heat.overlay(scale=scale, short_side=384))
    assert heat._repr_png_() == plots.encode(heat.figure())
    bare = HeatMaps(recording())["house"]
    low, high = bare.value_range("word")
    alone = overlays.heat(bare.values, (384, 384), low=low, high=high)
    assert shows(read_figure(bare.figure()).panels[0].picture, alone)


@pytest.mark.parametrize("scale", ["word", "shared", "raw"])
def test_a_map_is_plotted_on_a_users_axes(scale):
    """On axes as large as the picture, the pixels are those of the overlay, a colour apart."""
    heat = HeatMaps(recording(), PICTURE)["house"]
    figure = Figure((128 / 72, 128 / 72), 72)
    plotted = heat.plot(figure.add_axes((0, 0, 1, 1)), scale=scale)
    renderer = RendererAgg(128, 128, 72)
    figure.draw(renderer)
    pixels = np.asarray(renderer.buffer_rgba())[..., :3]
    assert largest_difference(pixels, heat.overlay(short_side=128, scale=scale)) <= 4
    assert plotted.get_clim() == heat.value_range(scale)


def test_a_notebook_shows_the_sheet_of_all_maps():
    whole = recording()
    maps = HeatMaps(whole, PICTURE)
    assert maps._repr_png_() == plots.encode(maps.figure())
    others = [maps.figure(scale="word"), maps.figure([maps["house"]])]
    assert all(maps.sheet() != plots.render(figure) for figure in others)
    empty = replace(whole, layers=(), arrays=())
    assert HeatMaps(empty)._repr_png_() is None
    with pytest.raises(NothingRecordedError):
        _ = HeatMaps(empty)["house"]
