"""Timelines and animations: their frames, their scale, what each says."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import by_hand, gif_frames, maps_of

from heedmap.errors import ArgumentError, SelectionError, UnknownWordError
from heedmap.figures import overlays, plots
from heedmap.maps import word_figures

# --- over the steps ---------------------------------------------------------------------------


def test_frames_of_a_timeline_are_the_overlays_of_their_steps():
    maps = maps_of(steps=9)
    figure = word_figures.timeline(maps, "house", frames=3)
    found = read_figure(figure)
    every = [maps.select(steps=step)["house"].values for step in range(9)]
    expected = by_hand(maps, every)
    assert [one.caption for one in found.panels] == ["step 0", "step 4", "step 8", "the image"]
    timesteps = ["timestep 900", "timestep 896", "timestep 892"]
    assert [one.note for one in found.panels[:3]] == timesteps
    for panel, step in zip(found.panels[:3], (0, 4, 8), strict=True):
        assert shows(panel.picture, expected[step])
    assert found.title == "Over the steps: house"
    assert found.note == (
        "3 of 9 steps, each by itself, over the finished image · mean of 3 layers, all heads · "
        "at house, at sea"
    )
    low, high = min(e.min() for e in every), max(e.max() for e in every)
    assert found.scales == [("one for the word at all steps", ends(low, high))]
    assert plots.render(figure).width <= 2 * plots.MAX_WIDTH


def test_a_timeline_of_a_selection_has_its_steps_and_layers():
    maps = maps_of(steps=9)
    part = maps.select("up", heads=[0, 1]).select(steps=slice(-4, None))
    found = read_figure(word_figures.timeline(part, "house", frames=2))
    assert [one.caption for one in found.panels[:2]] == ["step 5", "step 8"]
    every = [part.select(steps=step)["house"].values for step in range(5, 9)]
    assert shows(found.panels[0].picture, by_hand(maps, every)[0])
    assert found.note.startswith("2 of 9 steps")
    assert "mean of 2 layers, heads 0, 1 · " in found.note
    found = read_figure(word_figures.timeline(part.select(heads=1), "house", frames=2))
    assert "mean of 2 layers, head 1 · " in found.note


@pytest.mark.parametrize(
    ("frames", "steps"), [(1, [2]), (2, [0, 2]), (3, [0, 1, 2]), (99, [0, 1, 2])]
)
def test_frames_are_spread_over_the_steps(frames, steps):
    found = read_figure(word_figures.timeline(maps_of(), "house", frames=frames))
    assert [one.caption for one in found.panels[:-1]] == [f"step {step}" for step in steps]


def test_a_timeline_has_one_scale_for_all_steps():
    maps = maps_of()
    for scale, name in (("shared", "one for all words at all steps"), ("raw", "raw probability")):
        found = read_figure(word_figures.timeline(maps, "house", scale=scale))
        spans = [maps.select(steps=step)["house"].value_range(scale) for step in range(3)]
        expected = ends(min(low for low, _ in spans), max(high for _, high in spans))
        assert found.scales == [(name, expected)]


def test_words_of_a_timeline_are_rows():
    maps = maps_of()
    figure = word_figures.timeline(maps, ["house", 3], frames=2, scale="shared", width=3.25)
    assert figure.get_size_inches()[0] == pytest.approx(3.25)
    found = read_figure(figure)
    assert found.columns == ["step 0", "step 2"]
    assert [label for label, _ in found.rows] == ["house", "sea"]
    every = [maps.select(steps=step) for step in range(3)]
    spans = [one[word].value_range("shared") for one in every for word in ("house", "sea")]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    assert [texts for _, texts in found.scales] == [ends(low, high)]
    for word, (_, row) in zip(("house", "sea"), found.rows, strict=True):
        for step, cell in zip((0, 2), row, strict=True):
            heat = word_figures.resized(every[step], 256)[word]
            assert shows(cell, heat.render(low, high, short_side=1))


@pytest.mark.parametrize(
    ("word", "options"),
    [([], {}), (None, {}), ("house", {"width": 1}), (["house", "sea"], {"width": 2})],
)
def test_a_timeline_without_words_or_room_is_refused(word, options):
    with pytest.raises(ArgumentError):
        word_figures.timeline(maps_of(steps=30), word, **{"frames": 30, **options})


def test_a_timeline_needs_kept_steps_and_a_known_word():
    averaged = maps_of(keep=("layer",))
    for draw in (word_figures.timeline, word_figures.animation):
        with pytest.raises(SelectionError):
            draw(averaged, "house")
        with pytest.raises(UnknownWordError):
            draw(maps_of(), "hous")
        with pytest.raises(ArgumentError):
            draw(maps_of(), "house", scale="loud")
    with pytest.raises(ArgumentError):
        word_figures.timeline(maps_of(), "house", frames=0)


def test_a_timeline_without_an_image_shows_the_heat_alone():
    maps = replace(maps_of((8, 16)), image=None)
    found = read_figure(word_figures.timeline(maps, "house", frames=2))
    assert [one.caption for one in found.panels] == ["step 0", "step 2"]
    assert "finished picture" not in found.note
    every = [maps.select(steps=step)["house"].values for step in range(3)]
    low, high = min(e.min() for e in every), max(e.max() for e in every)
    assert shows(found.panels[0].picture, overlays.heat(every[0], (362, 181), low=low, high=high))


# --- that move --------------------------------------------------------------------------------


def test_the_gif_has_a_frame_for_every_step():
    latent = 12, 20
    maps = maps_of(latent, steps=2)
    moving = word_figures.animation(maps, "house")
    frames, durations, about = gif_frames(moving.gif())
    assert len(frames) == len(moving.frames) == 2
    assert durations == list(moving.durations) == [400, 1500]
    assert about["loop"] == 0  # for ever
    every = [maps.select(steps=step)["house"].values for step in range(2)]
    root = (latent[1] / latent[0]) ** 0.5
    wide, high = round(384 * root), round(384 / root)
    expected = by_hand(maps, every, (wide, high))
    for frame, drawn, overlay in zip(frames, moving.frames, expected, strict=True):
        assert frame.size == drawn.size == moving.frames[0].size
        whole, inner = np.asarray(drawn), np.asarray(overlay)[2:-2, 2:-2].astype(int)
        h, w = inner.shape[:2]
        near = [
            np.abs(whole[y : y + h, x : x + w].astype(int) - inner).mean()
            for y in range(60, 110)
            for x in range(30, 45)
        ]
        assert min(near) < 3  # at the size of the figure it may be one pixel less wide
        apart = np.abs(np.asarray(frame, int) - whole)
        assert apart.mean() < 5 and np.percentile(apart, 99) < 20
        assert (np.asarray(frame)[:20] == 255).all() and (np.asarray(frame)[-20:] == 255).all()
