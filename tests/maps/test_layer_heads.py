"""Layers by heads: rows, columns and the scale."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import by_hand, maps_of

from heedmap.errors import ArgumentError, SelectionError
from heedmap.figures import overlays, plots
from heedmap.maps.word_figures import layers_by_heads


def test_each_layer_has_a_row_and_each_head_a_column():
    maps = maps_of()
    content = read_figure(layers_by_heads(maps, "house"))
    labels = [label for label, _ in content.rows]
    assert content.columns == ["head 0", "head 1", "head 2", "head 3"]
    assert labels == ["the image", "down 0.0", "up 0.0", "up 1.1"]
    heats = {
        (number, head): maps.select(layer.name, heads=head)["house"].values
        for number, layer in enumerate(maps.layers)
        for head in range(layer.heads)
    }
    low = min(float(values.min()) for values in heats.values())
    high = max(float(values.max()) for values in heats.values())
    for number, (_, row) in enumerate(content.rows[1:]):
        for head, cell in enumerate(row):
            if (number, head) in heats:
                expected = overlays.heat(heats[number, head], cell.size, low=low, high=high)
                assert shows(cell, expected)
            else:
                assert cell == ""  # a layer of two heads beside one of four
    assert [texts for _, texts in content.scales] == [ends(low, high)]


@pytest.mark.parametrize(
    ("keep", "axes", "captions", "choices"),
    [
        (
            ("layer",),
            None,
            ["down 0.0", "up 0.0", "up 1.1"],
            [{"layers": "down"}, {"layers": "up_blocks.0*"}, {"layers": "up_blocks.1*"}],
        ),
        (
            ("layer", "head"),
            {"head"},
            ["head 0", "head 1", "head 2", "head 3"],
            [{"heads": head} for head in range(4)],
        ),
    ],
)
def test_one_axis_is_a_sheet_of_overlays(keep, axes, captions, choices):
    maps = maps_of(keep=keep)
    panels = read_figure(layers_by_heads(maps, "house", axes=axes)).panels
    assert [panel.caption for panel in panels] == [*captions, "the image"]
    values = [maps.select(**choice)["house"].values for choice in choices]
    for panel, expected in zip(panels[:-1], by_hand(maps, values), strict=True):
        assert shows(panel.picture, expected)


@pytest.mark.parametrize(
    ("keep", "axes", "error"),
    [
        (("step",), None, SelectionError),
        (("layer", "head"), [], ArgumentError),
    ],
)
def test_axes_that_were_not_kept_are_refused(keep, axes, error):
    with pytest.raises(error):
        layers_by_heads(maps_of(keep=keep), "house", axes=axes)


def test_selections_narrow_the_sheet():
    content = read_figure(layers_by_heads(maps_of().select("up", heads=[1, -1]), "house"))
    assert [label for label, _ in content.rows[1:]] == ["up 0.0"]  # the other has two heads
    assert content.columns == ["head 1", "head 3"]


def test_the_table_of_a_large_model_is_bounded():
    """SDXL's 70 layers of 20 heads."""
    maps = maps_of()
    layer = maps.layers[0]
    array = maps.recording.arrays[0][:1]
    layers = tuple(replace(layer, name=f"up.{number}", heads=20) for number in range(70))
    arrays = (np.repeat(array, 10, axis=1),) * 70
    whole = replace(maps.recording, layers=layers, arrays=arrays, timesteps=(1.0,))
    image = plots.render(layers_by_heads(replace(maps, recording=whole), "house"))
    assert 700 < image.width <= 2 * plots.MAX_WIDTH and 1800 < image.height <= 3200
