"""Figures of several words: their overlays, their scale, what they say of each word."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import recording, same_pixels
from PIL import Image

from heedmap.figures import plots
from heedmap.maps.heatmaps import SCALES, HeatMaps


@pytest.mark.parametrize(("size", "scale"), [((96, 64), "word"), ((2400, 1600), "shared")])
def test_a_figure_is_returned_with_its_overlays(size, scale):
    picture = Image.radial_gradient("L").resize(size).convert("RGB")
    maps = HeatMaps(recording("at house"), picture)
    figure, made = maps.figure_and_overlays(title="a title", scale=scale)
    for one, heat, panel in zip(made, maps.values(), read_figure(figure).panels[1:], strict=True):
        assert same_pixels(one, heat.overlay(scale=scale)) and shows(panel.picture, one)
    assert figure.get_suptitle() == "a title"
    assert same_pixels(figure, maps.figure(title="a title", scale=scale))
    assert same_pixels(figure, maps.sheet(title="a title", scale=scale))


def test_without_maps_the_figure_is_the_picture():
    picture = Image.radial_gradient("L").convert("RGB")
    figure, made = HeatMaps(recording("at house"), picture).figure_and_overlays([])
    (panel,) = read_figure(figure).panels
    assert made == [] and shows(panel.picture, picture)
    assert plots.render(figure).height > picture.height


@pytest.mark.parametrize("scale", ["shared", "word", "raw"])
def test_figures_of_refined_maps_say_so(scale):
    made = recording("at house")
    carried = np.random.default_rng(0).random((4, 4, len(made.positions)), dtype=np.float32)
    maps = HeatMaps(replace(made, refined=carried))
    for of, said in ((maps, ""), (maps.refined, " · refined by self-attention")):
        figures = [
            of.figure(scale=scale),
            of.figure([of["house"], of.token(0)], scale=scale),
            of["house"].figure(scale=scale),
        ]
        own = {"word": "the word's own"}.get(scale, SCALES[scale])
        assert [read_figure(figure).scales[0][0] for figure in figures] == [
            *[f"{SCALES[scale]}{said}"] * 2,
            f"{own}{said}",
        ]
    found = read_figure(maps.figure([maps["house"], maps.refined["house"]], scale=scale))
    assert found.scales[0][0] == SCALES[scale]
    assert [panel.note.endswith(", refined") for panel in found.panels] == [False, True]


def test_words_and_phrases_in_one_figure_share_a_scale():
    """A phrase draws more than any of its words, and nothing is cut off at the words' most."""
    maps = HeatMaps(recording("red house"), Image.new("RGB", (128, 128), "grey"))
    heats = [maps["red"], maps["red house"]]
    found = read_figure(maps.figure(heats, scale="shared"))
    low = min(heat.values.min() for heat in maps.values())
    high = maps["red house"].values.max()
    assert high > maps["red"].shared[1]
    assert [texts for _, texts in found.scales] == [ends(low, high)]
    for heat, panel in zip(heats, found.panels[1:], strict=True):
        assert shows(panel.picture, heat.render(float(low), float(high)))
