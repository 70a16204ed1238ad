"""Figures of several words: their overlays, their scale, and the mark of refined maps."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import recording, same_pixels
from PIL import Image

from heedmap.maps.heatmaps import SCALES, HeatMaps


@pytest.mark.parametrize(("size", "scale"), [((96, 64), "word"), ((600, 400), "shared")])
def test_a_figure_is_returned_with_its_overlays(size, scale):
    picture = Image.radial_gradient("L").resize(size).convert("RGB")
    maps = HeatMaps(recording("at house"), picture)
    figure, images = maps.figure_and_overlays(title="a title", scale=scale)
    panels = read_figure(figure).panels
    for image, heat, panel in zip(images, maps.values(), panels[1:], strict=True):
        assert same_pixels(image, heat.overlay(scale=scale)) and shows(panel.picture, image)
    assert figure.get_suptitle() == "a title"
    assert same_pixels(figure, maps.figure(title="a title", scale=scale))


@pytest.mark.parametrize("scale", ["shared", "word", "raw"])
def test_figures_of_refined_maps_say_so(scale):
    whole = recording("at house")
    refined = np.random.default_rng(0).random((4, 4, len(whole.positions)), dtype=np.float32)
    maps = HeatMaps(replace(whole, refined=refined))

    def scale_of(heats) -> str:
        return read_figure(maps.figure(heats, scale=scale)).scales[0][0]

    name = SCALES[scale]
    assert scale_of(None) == name
    assert scale_of([maps.refined["house"]]) == f"{name} · refined by self-attention"
    mixed = [maps["house"], maps.refined["house"]]
    assert scale_of(mixed) == name
    panels = read_figure(maps.figure(mixed, scale=scale)).panels
    assert [panel.note.endswith(", refined") for panel in panels] == [False, True]


def test_words_and_phrases_in_one_figure_share_a_scale():
    """A phrase draws more than any of its words, and nothing is cut off at the words' most."""
    maps = HeatMaps(recording("red house"), Image.new("RGB", (128, 128), "grey"))
    heats = [maps["red"], maps["red house"]]
    content = read_figure(maps.figure(heats, scale="shared"))
    low = float(min(heat.values.min() for heat in maps.values()))
    high = float(maps["red house"].values.max())
    assert high > maps["red"].shared[1]
    assert [texts for _, texts in content.scales] == [ends(low, high)]
    for heat, panel in zip(heats, content.panels[1:], strict=True):
        assert shows(panel.picture, heat.render(low, high))
