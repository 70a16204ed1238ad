"""Heat maps: worked numbers, selections, geometry, files that are not trusted."""

import io
from dataclasses import replace

import numpy as np
import pytest
from figure_reading import read_figure, shows
from hypothesis import given
from hypothesis import strategies as st
from making import recording
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from PIL import Image

from heedmap.errors import ArgumentError, SelectionError, TruncatedWordError, UnknownWordError
from heedmap.figures import overlays, plots
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording, cells
from heedmap.maps.word_figures import mean_of, timeline

PROMPT = "at house, at sea"  # tokens: start, at, house, ",", at, s, e, a, end


def constant(value: float, latent=(12, 16)) -> HeatMaps:
    made = recording(latent=latent)
    arrays = tuple(np.full_like(a, value) for a in made.arrays)
    return HeatMaps(
        Recording(
            made.layers, arrays, made.keep, made.timesteps, made.positions, made.table, latent,
            made.size,
        )
    )  # fmt: skip


def test_maps_are_looked_up_by_word():
    maps = constant(0.125)
    assert maps.keys() == ("at", "house", "sea") == tuple(dict(maps)) == tuple(maps)
    assert len(maps) == len(maps.values()) == 3  # "at" stands twice
    for word, heat in maps.items():
        assert heat.label == word and np.array_equal(heat.values, maps[word].values)
    assert [heat.label for heat in maps.values()] == [*maps]
    assert "house" in maps and "at sea" in maps and "House " in maps
    for other in ("cat", "", "sea at sea", 1, None, maps["house"]):
        assert other not in maps


def test_a_map_is_an_array():
    heat = constant(0.125)["house"]
    assert np.asarray(heat).dtype == np.float32 and np.asarray(heat) is heat.values
    assert np.array_equal(np.asarray(heat, dtype=np.float64), heat.values)
    assert np.array(heat, copy=True) is not heat.values
    with pytest.raises(ValueError):
        np.array(heat, dtype=np.float64, copy=False)


def test_a_constant_map_stays_constant():
    maps = constant(0.125)
    assert maps["house"].values.shape == (64, 85)
    np.testing.assert_array_equal(maps["house"].values, 0.125)
    # "sea" is three tokens, "at" stands twice: shares add up.
    np.testing.assert_allclose(maps["sea"].values, 0.375, rtol=1e-6)
    np.testing.assert_allclose(maps["at"].values, 0.25, rtol=1e-6)
    np.testing.assert_allclose(maps["at sea"].values, 0.5, rtol=1e-6)
    np.testing.assert_allclose(maps.at(0).values, 0.125, rtol=1e-6)
    assert not maps["house"].mask().any()


def test_values_are_the_mean_over_layers_steps_and_heads():
    made = recording(latent=(64, 64))  # the map's own cells, so that nothing is resized
    up = HeatMaps(made).select("up_blocks.1*")
    token = made.table.find("house")[0]
    column = made.positions.index(token)
    expected = made.arrays[2][..., column].mean((0, 1)).reshape(64, 64)
    np.testing.assert_allclose(up["house"].values, expected, rtol=1e-5)
    one = up.select(steps=1, heads=[1])["house"].values
    np.testing.assert_allclose(one, made.arrays[2][1, 1, :, column].reshape(64, 64), rtol=1e-6)
    half = HeatMaps(made).select(resolution=32)
    assert [layer.grid for layer in half.layers] == [(32, 32)]
    every = HeatMaps(made)["house"].values
    parts = [HeatMaps(made).select(layer.name)["house"].values for layer in made.layers]
    np.testing.assert_allclose(every, np.mean(parts, axis=0), rtol=1e-5)


def test_a_hot_cell_keeps_its_place_in_the_map():
    made = recording(latent=(8, 16), steps=1)
    arrays = [np.zeros_like(a) for a in made.arrays]
    column = made.positions.index(made.table.find("house")[0])
    arrays[0][:, :, 3 * 16 + 13, column] = 1.0  # row 3, column 13 of the 8×16 grid
    hot = HeatMaps(
        Recording(
            made.layers, tuple(arrays), made.keep, made.timesteps, made.positions, made.table,
            made.latent, made.size,
        )
    )["house"]  # fmt: skip
    assert hot.values.shape == (64, 128)
    x, y = hot.peak
    assert 13 * 8 <= x < 14 * 8
    assert 3 * 8 <= y < 4 * 8
    mask = hot.mask()
    assert mask.shape == (64, 128)
    rows, columns = np.nonzero(mask)
    assert abs(rows.mean() - 3.5 * 8) < 1
    assert abs(columns.mean() - 13.5 * 8) < 1


@given(st.integers(1, 200), st.integers(1, 200))
def test_the_short_side_has_64_cells(h, w):
    columns, rows = cells((h, w))
    assert min(columns, rows) == 64
    assert abs(columns / rows - w / h) <= 0.5 * max(1, w / h) / 64 + 1e-9 or max(h, w) > 64 * min(
        h, w
    )


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        ({"layers": "up"}, 2),
        ({"layers": "down"}, 1),
        ({"layers": "*attentions.0*"}, 2),
        ({"layers": ["down", "*up_blocks.1*"]}, 2),
        ({"layers": lambda layer: layer.heads == 4}, 1),
        ({"resolution": 8}, 1),
        ({"resolution": (16, 16)}, 2),
        ({"layers": "up", "resolution": 16}, 1),
        ({"heads": [3]}, 1),
        ({"steps": slice(0, 2), "heads": 1}, 3),
    ],
)
def test_selections_have_the_chosen_layers(choice, count):
    assert len(HeatMaps(recording()).select(**choice).layers) == count


def test_refined_maps_are_named_and_have_no_layers_or_steps():
    made = recording(keep={"step", "head"})
    refined = np.ones((8, 8, len(made.positions)), np.float32)
    maps = HeatMaps(replace(made, refined=refined))
    assert repr(maps.refined).endswith(", refined>") and "refined" not in repr(maps)
    assert repr(maps.refined["house"]).endswith(", refined>")
    assert "refined" not in repr(maps["house"])
    for word in ("house", "at"):
        assert repr(maps.refined.share(word)).endswith(", refined>")
        assert "refined" not in repr(maps.share(word))
    assert maps.refined.refined["house"].values is not None
    same = maps.refined.refined
    np.testing.assert_array_equal(same["house"].values, maps.refined["house"].values)
    assert maps.steps and maps.heads
    for axis in ("steps", "heads"):  # and not that they were averaged: these were kept
        with pytest.raises(SelectionError):
            getattr(maps.refined, axis)
    part = maps.select(steps=0)
    for ask in (lambda: part.refined, part.segment):
        with pytest.raises(SelectionError):
            ask()


def test_similarities_of_outputs_are_named_and_have_layers_and_steps():
    made = recording("at house", keep={"layer", "step", "head"})
    outputs = tuple(a[:, :1] / 2 for a in made.arrays)
    maps = HeatMaps(replace(made, outputs=outputs))
    one, every = maps.outputs.select(steps=1, layers="up")["house"], maps.outputs
    half = maps.select(steps=1, layers="up", heads=0)["house"].values / 2
    np.testing.assert_allclose(one.values, half, rtol=1e-5)
    for figure in (one.figure(scale="raw"), every.figure(), timeline(every, "house")):
        (name, *_), *_ = read_figure(figure).scales
        assert "similarity of outputs" in name and "probability" not in name
    assert "heads" not in mean_of(every) and every["house"].mask().any()
    for of, name in ((every, "heads"), (every, "refined"), (maps.select(steps=1), "outputs")):
        with pytest.raises(SelectionError):
            getattr(of, name)


def test_refined_maps_have_the_same_interface():
    """A grid of 1×1 says the same everywhere; words of several tokens, phrases, numbers, masks."""
    made = recording("at house, at sea")
    numbers = np.random.default_rng(0).random(len(made.positions), dtype=np.float32)
    numbers[[made.positions.index(p) for p in made.table.find("sea")]] = 0.25
    maps = HeatMaps(replace(made, refined=np.tile(numbers, (1, 1, 1))))
    refined = maps.refined
    assert [word.text for word in refined.words] == [word.text for word in maps.words]
    tokens = [made.positions.index(p) for p in made.table.find("house")]
    np.testing.assert_allclose(refined["house"].values, numbers[tokens].sum(), rtol=1e-6)
    assert refined["house"].values.shape == maps["house"].values.shape == (64, 64)
    assert refined["sea"].shared == refined["house"].shared != maps["sea"].shared
    assert refined.layers[0].name == "refined"
    with pytest.raises(SelectionError):
        refined.select("up")


def test_selections_narrow_one_another():
    maps = HeatMaps(recording())
    assert len(maps.select("up").select(resolution=16).layers) == 1
    twice = maps.select(steps=slice(0, 2)).select(steps=[1, 2])
    np.testing.assert_array_equal(twice["house"].values, maps.select(steps=1)["house"].values)
    negative = maps.select(steps=-1)
    np.testing.assert_array_equal(negative["house"].values, maps.select(steps=2)["house"].values)


@pytest.mark.parametrize(
    "choice",
    [{"layers": "mid"}, {"resolution": 99}, {"steps": 3}, {"steps": slice(5, 9)}, {"heads": 4}],
)
def test_empty_selections_are_errors(choice):
    with pytest.raises(SelectionError):
        HeatMaps(recording()).select(**choice)


@pytest.mark.parametrize("axis", ["layer", "step", "head"])
def test_averaged_axes_cannot_be_selected(axis):
    made = recording(keep={"layer", "step", "head"} - {axis})
    choice = {"layer": {"layers": "up"}, "step": {"steps": 0}, "head": {"heads": 0}}[axis]
    with pytest.raises(SelectionError):
        HeatMaps(made).select(**choice)


def test_unknown_words_are_refused():
    maps = HeatMaps(recording("at house " + "x" * 90 + " end"))
    with pytest.raises(UnknownWordError):
        _ = maps["hous"]
    with pytest.raises(TruncatedWordError):
        _ = maps["end"]
    with pytest.raises(TruncatedWordError):
        maps.at(3)
    with pytest.raises(UnknownWordError):
        maps.at(9)
    with pytest.raises(ArgumentError):
        _ = maps[2]
    assert [heat.label for heat in maps.values()] == ["at", "house", "x" * 90]


# --- in a notebook ---


def shown(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
        return np.asarray(picture.convert("RGB"))


def holds(sheet: np.ndarray, picture: Image.Image) -> bool:
    """Whether a picture is in a sheet, pixel by pixel."""
    wanted = np.asarray(picture)
    h, w = wanted.shape[:2]
    return any(
        np.array_equal(sheet[y : y + h, x : x + w], wanted)
        for y in range(sheet.shape[0] - h + 1)
        for x in np.nonzero((sheet[y] == wanted[0, 0]).all(axis=-1))[0]
        if x + w <= sheet.shape[1]
    )


def test_a_maps_figure_has_its_scale():
    picture = Image.new("RGB", (128, 128), (40, 120, 200))
    heat = HeatMaps(recording(), picture)["house"]
    for scale, name in (("word", "the word's own"), ("raw", "raw probability")):
        figure = heat.figure(scale=scale)
        found, overlay = read_figure(figure), heat.overlay(scale=scale, short_side=384)
        assert found.title == "house" and found.scales[0][0] == name
        assert shows(found.panels[0].picture, overlay)
        assert holds(np.asarray(plots.render(figure)), overlay.crop((1, 1, 383, 383)))
    assert heat._repr_png_() == plots.encode(heat.figure())
    bare = HeatMaps(recording())["house"]
    assert shown(bare._repr_png_()).shape == shown(heat._repr_png_()).shape
    low, high = bare.value_range("word")
    alone = overlays.heat(bare.values, (384, 384), low=low, high=high)
    assert shows(read_figure(bare.figure()).panels[0].picture, alone)


@pytest.mark.parametrize("scale", ["word", "shared", "raw"])
def test_a_map_is_plotted_on_a_users_axes(scale):
    """On axes as large as the picture its pixels are those of the overlay, a colour apart."""
    picture = Image.radial_gradient("L").resize((128, 128)).convert("RGB")
    known, bare = (HeatMaps(recording(), image)["house"] for image in (picture, None))
    for heat, image in ((known, None), (bare, picture)):
        figure = Figure((128 / 72, 128 / 72), 72)
        shown = heat.plot(figure.add_axes((0, 0, 1, 1)), image=image, scale=scale)
        renderer = RendererAgg(128, 128, 72)
        figure.draw(renderer)
        expected = known.overlay(short_side=128, scale=scale)
        got = np.asarray(renderer.buffer_rgba())[..., :3].astype(int)
        assert np.abs(got - np.asarray(expected)).max() <= 4
        assert shown.get_clim() == heat.value_range(scale)
    alone = bare.plot(Figure().add_subplot(), scale=scale)
    assert alone.get_array().shape == (128, 128, 3) and len(alone.axes.images) == 1


def test_a_notebook_shows_the_sheet_of_all_maps():
    made = recording()
    bare = HeatMaps(made)
    known = HeatMaps(made, Image.new("RGB", (128, 128), (40, 120, 200)))
    assert np.array_equal(shown(known._repr_png_()), np.asarray(known.sheet()))
    assert known.sheet() != known.sheet(scale="word") != known.sheet([known["house"]])
    # One panel less: no picture, so that only the words are there.
    assert shown(bare._repr_png_()).any()
    assert bare.sheet().size != known.sheet().size
    empty = Recording((), (), made.keep, (), made.positions, made.table, (16, 16), (128, 128))
    assert HeatMaps(empty)._repr_png_() is None


def test_a_words_share_is_among_the_content_words():
    maps = HeatMaps(recording("a house at a house"))  # "a" and "at" are no content
    house, at = maps["house"].values, maps["at"].values
    np.testing.assert_allclose(maps.share("house").values, np.ones_like(house), rtol=1e-6)
    np.testing.assert_allclose(maps.share("at").values, at / (at + house), rtol=1e-5)
    half = maps.select(layers="up").share("at").values
    parts = [maps.select(layers="up")[word].values for word in ("at", "house")]
    np.testing.assert_allclose(half, parts[0] / (parts[0] + parts[1]), rtol=1e-5)
    assert not constant(0.0).share("house").values.any()


def numbered(values: dict[str, float]) -> HeatMaps:
    """Maps that are the same number everywhere: by word, as `maps.at` gives them."""
    made = recording(" ".join(values))
    arrays = [np.zeros_like(array) for array in made.arrays]
    for word, value in zip(made.table.words, values.values(), strict=True):
        columns = [made.positions.index(token) for token in word.tokens]
        for array in arrays:
            array[..., columns] = np.float32(value) / len(columns)
    return HeatMaps(replace(made, arrays=tuple(arrays)))


@pytest.mark.parametrize(
    ("values", "query", "share"),
    [
        ({"house": 0.1, "sea": -0.3}, "house", 0.25),  # 0.1 / (0.1 + 0.3)
        ({"house": 0.1, "sea": -0.3}, "sea", 0.75),
        ({"house": 0.1, "sea": -0.1}, "house", 0.5),  # the sum is 0: it was 0 / 0
        ({"house": 0.2, "sea": -0.1, "at": 9.0}, "house sea", 1.0),  # "at" is no content
        ({"house": 0.2, "sea": -0.1, "cow": 0.3}, "house sea", 0.5),
        ({"house": 0.2, "at": -0.6}, "at", 0.75),  # asked for
        ({"house": 0.0, "sea": 0.0}, "sea", 0.0),
    ],
)
def test_a_words_share_is_counted_with_negative_weights(values, query, share):
    maps = numbered(values)
    np.testing.assert_allclose(maps.share(query).values, share, rtol=1e-5)
