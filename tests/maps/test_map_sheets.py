"""Figures of several words: their overlays, their scale, what they say of each word."""

from dataclasses import replace

import numpy as np
import pytest
from making import recording, same_pixels
from PIL import Image

from heedmap.figures import plots
from heedmap.maps.heatmaps import SCALES, HeatMaps


@pytest.mark.parametrize("size", [(96, 64), (2400, 1600)])
@pytest.mark.parametrize("scale", ["shared", "word"])
def test_a_figure_is_returned_with_its_overlays(size, scale, panels):
    picture = Image.radial_gradient("L").resize(size).convert("RGB")
    maps = HeatMaps(recording("at house"), picture)
    figure, drawn = maps.figure_and_overlays(title="a title", scale=scale)
    for one, heat, panel in zip(drawn, maps, panels[1:], strict=True):
        assert same_pixels(one, heat.overlay(scale=scale)) and same_pixels(one, panel.picture)
    assert figure.get_suptitle() == "a title"
    assert same_pixels(figure, maps.figure(title="a title", scale=scale))
    assert same_pixels(figure, maps.sheet(title="a title", scale=scale))


def test_without_maps_the_figure_is_the_picture(panels):
    picture = Image.radial_gradient("L").convert("RGB")
    figure, drawn = HeatMaps(recording("at house"), picture).figure_and_overlays([])
    assert drawn == [] and [panel.picture.size for panel in panels] == [picture.size]
    assert plots.render(figure).height > picture.height


@pytest.mark.parametrize("scale", ["shared", "word", "raw"])
def test_figures_of_refined_maps_say_so(panels, framed, scale):
    made = recording("at house")
    carried = np.random.default_rng(0).random((4, 4, len(made.positions)), dtype=np.float32)
    maps = HeatMaps(replace(made, refined=carried))
    for of, said in ((maps, ""), (maps.refined, " · refined by self-attention")):
        framed.clear()
        of.sheet(scale=scale)
        of.sheet([of["house"], of.token(0)], scale=scale)
        of["house"].figure(scale=scale)
        own = {"word": "the word's own"}.get(scale, SCALES[scale])
        assert [one["bar"].name for one in framed] == [
            *[f"{SCALES[scale]}{said}"] * 2,
            f"{own}{said}",
        ]
    panels.clear()
    maps.sheet([maps["house"], maps.refined["house"]], scale=scale)
    assert framed[-1]["bar"].name == SCALES[scale]
    assert [panel.note.endswith(", refined") for panel in panels] == [False, True]


def test_words_and_phrases_in_one_figure_share_a_scale(panels, framed):
    """A phrase draws more than any of its words, and nothing is cut off at the words' most."""
    maps = HeatMaps(recording("red house"), Image.new("RGB", (128, 128), "grey"))
    heats = [maps["red"], maps["red house"]]
    maps.figure(heats, scale="shared")
    low = min(heat.values.min() for heat in maps)
    high = maps["red house"].values.max()
    assert high > maps["red"].shared[1]
    (frame,) = framed
    assert frame["bar"].ends == pytest.approx((low, high))
    for heat, panel in zip(heats, panels[1:], strict=True):
        assert same_pixels(panel.picture, heat.render(float(low), float(high)))
