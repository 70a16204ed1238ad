"""Layers by heads: rows, columns, the scale, what the sheet says."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import by_hand, maps_of

from heedmap.errors import ArgumentError, SelectionError
from heedmap.figures import overlays, plots
from heedmap.maps import word_figures


def test_each_layer_has_a_row_and_each_head_a_column():
    maps = maps_of()
    found = read_figure(word_figures.layers_by_heads(maps, "house"))
    rows = found.rows
    assert found.columns == ["head 0", "head 1", "head 2", "head 3"]
    assert [label for label, _ in rows] == ["the image", "down 0.0", "up 0.0", "up 1.1"]
    heats = {
        (n, h): maps.select(layer.name, heads=h)["house"].values
        for n, layer in enumerate(maps.recording.layers)
        for h in range(layer.heads)
    }
    low = min(float(v.min()) for v in heats.values())
    high = max(float(v.max()) for v in heats.values())
    for n, (_, row) in enumerate(rows[1:]):
        for h, cell in enumerate(row):
            if (n, h) not in heats:
                assert cell == ""  # a layer of two heads beside one of four
                continue
            expected = overlays.heat(heats[n, h], cell.size, low=low, high=high)
            assert shows(cell, expected)
    assert [len([c for c in row if c == ""]) for _, row in rows[1:]] == [2, 0, 2]
    assert found.scales == [("one for the word in all layers and heads shown", ends(low, high))]
    note = "3 layers in rows, 4 heads in columns · mean of 3 steps · at house, at sea"
    assert found.note == note
    assert rows[0][1][0].size == rows[1][1][0].size


@pytest.mark.parametrize(
    ("keep", "axes", "captions", "title"),
    [
        (("layer",), None, ["down 0.0", "up 0.0", "up 1.1"], "By layer: house"),
        (("layer", "step", "head"), ["layer"], ["down 0.0", "up 0.0", "up 1.1"], "By layer: house"),
        (("layer", "head"), {"head"}, ["head 0", "head 1", "head 2", "head 3"], "By head: house"),
    ],
)
def test_one_axis_is_a_sheet_of_overlays(keep, axes, captions, title):
    maps = maps_of(keep=keep)
    found = read_figure(word_figures.layers_by_heads(maps, "house", axes=axes))
    panels = found.panels
    assert [panel.caption for panel in panels] == [*captions, "the image"]
    if "layer" in title:
        parts = [maps.select(layer.name)["house"].values for layer in maps.layers]
        assert [panel.note for panel in panels[:-1]] == ["16×16 cells", "8×8 cells", "16×16 cells"]
    else:
        parts = [maps.select(heads=head)["house"].values for head in range(4)]
    for panel, expected in zip(panels[:-1], by_hand(maps, parts), strict=True):
        assert shows(panel.picture, expected)
    assert found.title == title


def test_axes_that_were_not_kept_are_refused():
    for keep, axes in (
        (("step",), None),
        ((), None),
        (("layer",), ["layer", "head"]),
        (("layer",), ["head"]),
    ):
        with pytest.raises(SelectionError):
            word_figures.layers_by_heads(maps_of(keep=keep), "house", axes=axes)
    for axes in ([], ["step"], "layer"):
        with pytest.raises(ArgumentError):
            word_figures.layers_by_heads(maps_of(), "house", axes=axes)


def test_selections_narrow_the_sheet():
    found = read_figure(
        word_figures.layers_by_heads(maps_of().select("up", heads=[1, -1]), "house")
    )
    assert [label for label, _ in found.rows[1:]] == ["up 0.0"]  # the other has two heads only
    assert found.columns == ["head 1", "head 3"]


def test_the_table_of_a_large_model_is_bounded():
    """SDXL's 70 layers of 20 heads."""
    one = maps_of()
    rows = tuple(replace(one.recording.layers[0], name=f"up.{n}", heads=20) for n in range(70))
    part = np.repeat(one.recording.arrays[0][:1], 10, axis=1)
    made = replace(one.recording, layers=rows, arrays=(part,) * 70, timesteps=(1.0,))
    figure = plots.render(word_figures.layers_by_heads(replace(one, recording=made), "house"))
    assert 700 < figure.width <= 2 * plots.MAX_WIDTH and 1800 < figure.height <= 3200


def test_layers_with_names_like_patterns_are_chosen_by_name():
    one = maps_of()
    names = ["*", "up", "up_blocks.0"]
    rows = tuple(replace(row, name=n) for row, n in zip(one.recording.layers, names, strict=True))
    maps = replace(one, recording=replace(one.recording, layers=rows))
    panels = read_figure(word_figures.layers_by_heads(maps, "house", axes=["layer"])).panels
    tops = [float(one.select(row.name)["house"].values.max()) for row in one.layers]
    assert len({*tops}) == 3
    plain = read_figure(word_figures.layers_by_heads(one, "house", axes=["layer"])).panels
    for mine, other in zip(panels, plain, strict=True):
        assert np.array_equal(np.asarray(mine.picture), np.asarray(other.picture))
