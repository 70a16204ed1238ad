"""What all figures of one word have in common: texts of any kind, the averaged axes, bounds."""

from dataclasses import replace

import numpy as np
import pytest
from making import maps_of, same_pixels
from PIL import Image

from heedmap.figures import plots
from heedmap.maps import word_figures
from heedmap.maps.word_figures import mean_of
from heedmap.results.runs import Run


def assert_margins_are_white(image: Image.Image) -> None:
    paper = np.asarray(image.convert("L"))
    for edge in (paper[:24], paper[-24:], paper[:, :28], paper[:, -28:]):
        assert (edge == 255).all()


@pytest.mark.parametrize("word", ["a house of " + "many " * 30, "수박" * 30, "بيت أحمر", "x" * 200])
def test_words_of_any_length_and_script_are_whole(word):
    """The words take room, and the margins stay white: nothing is cut."""
    maps = maps_of(prompt="at sea")
    assert_margins_are_white(plots.render(replace(maps["sea"], label=word).figure()))


def test_word_figures_have_room_for_another_script():
    maps = maps_of(prompt="at sea, 수박 집", steps=1)
    for figure in (
        word_figures.timeline(maps, "수박 집"),
        word_figures.layers_by_heads(maps, "수박 집"),
        word_figures.layers_by_heads(maps, "수박 집", axes=["layer"]),
    ):
        assert_margins_are_white(plots.render(figure))


def test_word_figures_are_methods_of_a_run():
    """They take a word, a phrase or a number."""
    maps = maps_of(steps=2)
    run = Run(maps.image, maps, {"prompt": "at house, at sea"})
    timeline = word_figures.timeline(maps, "house", frames=2)
    assert same_pixels(run.timeline(1, frames=2), timeline)
    assert not same_pixels(run.timeline("at house", frames=2), timeline)
    table = word_figures.layers_by_heads(maps, "house")
    assert same_pixels(run.layers_by_heads("house"), table)


@pytest.mark.parametrize(
    ("choice", "axes", "text"),
    [
        ({}, (), "mean of 3 layers, 3 steps, all heads"),
        ({"steps": [1, 2]}, ("head",), "mean of 3 layers, 2 of 3 steps"),
    ],
)
def test_the_note_names_the_averaged_axes(choice, axes, text):
    assert mean_of(maps_of().select(**choice), *axes) == text
