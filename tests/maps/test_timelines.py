"""Timelines: their frames and their scale."""

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import by_hand, maps_of

from heedmap.errors import ArgumentError, SelectionError, UnknownWordError
from heedmap.figures import plots
from heedmap.maps.word_figures import resized, timeline


def values_by_step(maps, count: int) -> list[np.ndarray]:
    return [maps.select(steps=step)["house"].values for step in range(count)]


def test_frames_of_a_timeline_are_the_overlays_of_their_steps():
    maps = maps_of(steps=9)
    figure = timeline(maps, "house", frames=3)
    content = read_figure(figure)
    values = values_by_step(maps, 9)
    expected = by_hand(maps, values)
    captions = [panel.caption for panel in content.panels]
    assert captions == ["step 0", "step 4", "step 8", "the image"]
    notes = [panel.note for panel in content.panels[:3]]
    assert notes == ["timestep 900", "timestep 896", "timestep 892"]
    for panel, step in zip(content.panels, (0, 4, 8), strict=False):
        assert shows(panel.picture, expected[step])
    assert content.title == "Over the steps: house"
    low = min(one.min() for one in values)
    high = max(one.max() for one in values)
    assert content.scales == [("one for the word at all steps", ends(low, high))]
    assert plots.render(figure).width <= 2 * plots.MAX_WIDTH


@pytest.mark.parametrize(("frames", "steps"), [(1, [2]), (99, [0, 1, 2])])
def test_frames_are_spread_over_the_steps(frames, steps):
    panels = read_figure(timeline(maps_of(), "house", frames=frames)).panels
    assert [panel.caption for panel in panels[:-1]] == [f"step {step}" for step in steps]


@pytest.mark.parametrize("scale", ["shared", "raw"])
def test_a_timeline_has_one_scale_for_all_steps(scale):
    maps = maps_of()
    spans = [maps.select(steps=step)["house"].value_range(scale) for step in range(3)]
    expected = ends(min(low for low, _ in spans), max(high for _, high in spans))
    content = read_figure(timeline(maps, "house", scale=scale))
    assert [texts for _, texts in content.scales] == [expected]


def test_words_of_a_timeline_are_rows():
    maps = maps_of()
    figure = timeline(maps, ["house", 3], frames=2, scale="shared")
    content = read_figure(figure)
    assert content.columns == ["step 0", "step 2"]
    words = [label for label, _ in content.rows]
    assert words == ["house", "sea"]
    parts = [maps.select(steps=step) for step in range(3)]
    spans = [part[word].value_range("shared") for part in parts for word in words]
    low = min(low for low, _ in spans)
    high = max(high for _, high in spans)
    assert [texts for _, texts in content.scales] == [ends(low, high)]
    for word, row in content.rows:
        for step, cell in zip((0, 2), row, strict=True):
            heat = resized(parts[step], 256)[word]
            assert shows(cell, heat.render(low, high, short_side=1))


@pytest.mark.parametrize(
    ("word", "options", "error"),
    [
        ([], {}, ArgumentError),
        ("hous", {}, UnknownWordError),
        ("house", {"frames": 0}, ArgumentError),
    ],
)
def test_a_timeline_without_words_is_refused(word, options, error):
    with pytest.raises(error, match=r"word|hous|frames"):
        timeline(maps_of(steps=30), word, **options)


def test_a_timeline_needs_kept_steps():
    with pytest.raises(SelectionError):
        timeline(maps_of(keep=("layer",)), "house")
