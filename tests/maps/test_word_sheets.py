"""What all sheets of one word have in common: texts of any kind, bounds, scales."""

import time
from dataclasses import replace

import numpy as np
import pytest
from making import Made, gradient, maps_of, recording, same_pixels, settings_of
from PIL import Image

from heedmap.figures import plots
from heedmap.maps import word_figures
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Layer
from heedmap.maps.word_figures import mean_of
from heedmap.results import runs
from heedmap.results.runs import Run

LONG = "a house of " + "many " * 30 + "rooms"


def kinds(maps: HeatMaps, word: str) -> list[Image.Image]:
    run = Made(maps.image or gradient(), maps, settings_of(prompt=maps.tokens.prompt))
    other = replace(run, settings=settings_of(prompt="other", seed=3))
    figures = [
        word_figures.timeline(maps, word, frames=2),
        word_figures.layers_by_heads(maps, word),
        word_figures.layers_by_heads(maps, word, axes=["layer"]),
        runs.compare([run, other], [word]),
    ]
    return [
        word_figures.animation(maps.select(steps=0), word).frames[0],
        *map(plots.render, figures),
    ]


@pytest.mark.parametrize("word", [LONG, "수박" * 30, "수박 집", "بيت أحمر", "x" * 200])
def test_words_of_any_length_and_script_are_whole(word):
    """The words take room, and the margins stay white: nothing is cut."""
    maps = maps_of(prompt=f"at sea, {word}" if len(word) < 60 else "at sea")
    drawn = [plots.render(replace(maps["sea"], label=word).figure())]
    for sheet in drawn + (kinds(maps, word) if len(word) < 60 else []):
        edge = np.asarray(sheet.convert("L"))
        assert (edge[:24] == 255).all()
        assert (edge[-24:] == 255).all()
        assert (edge[:, :28] == 255).all()
        assert (edge[:, -28:] == 255).all()


def test_word_figures_take_phrases_and_numbers():
    maps = maps_of()
    assert same_pixels(word_figures.timeline(maps, 1), word_figures.timeline(maps, "house"))
    assert not same_pixels(
        word_figures.timeline(maps, "at sea"), word_figures.timeline(maps, "sea")
    )


def test_word_figures_are_methods_of_a_run():
    maps = maps_of(steps=2)
    run = Run(maps.image, maps, {"prompt": "at house, at sea"})
    assert same_pixels(
        run.timeline("house", frames=2), word_figures.timeline(maps, "house", frames=2)
    )
    assert run.animation("house").gif() == word_figures.animation(maps, "house").gif()
    assert same_pixels(run.layers_by_heads("house"), word_figures.layers_by_heads(maps, "house"))


# --- as many as one can look at ---------------------------------------------------------------


def many(layers: int = 1, heads: int = 1, steps: int = 1, words: int = 2) -> HeatMaps:
    """Maps of so much, of one cell a layer."""
    one = recording(" ".join(["at"] * words))
    rows = tuple(Layer(f"up_blocks.{n}.attn2", heads, (1, 1)) for n in range(layers))
    random = np.random.default_rng(0)
    shape = (steps, heads, 1, len(one.positions))
    made = replace(
        one, layers=rows, timesteps=tuple(map(float, range(steps, 0, -1))), latent=(16, 16),
        arrays=tuple(random.random(shape, dtype=np.float32) for _ in rows),
    )  # fmt: skip
    return HeatMaps(made, gradient())


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({}, "mean of 2 layers, 5 steps, all heads"),
        ({"heads": 0}, "mean of 2 layers, 5 steps, head 0"),
        ({"heads": [1, 3]}, "mean of 2 layers, 5 steps, heads 1, 3"),
        ({"heads": slice(4)}, "mean of 2 layers, 5 steps, all heads"),
        ({"steps": [1, 2]}, "mean of 2 layers, 2 of 5 steps, all heads"),
        ({"layers": lambda layer: "0" in layer.name}, "mean of 1 layer, 5 steps, all heads"),
    ],
)
def test_the_note_names_the_averaged_axes(chosen, said):
    """As `select` takes it, counted from 0."""
    assert mean_of(many(layers=2, heads=4, steps=5).select(**chosen)) == said


def test_the_note_omits_the_axes_that_are_shown():
    maps = many(layers=2, heads=4, steps=5)
    assert mean_of(maps, "step") == "mean of 2 layers, all heads"
    assert mean_of(maps, "layer", "head") == "mean of 5 steps"
    averaged = HeatMaps(replace(maps.recording, keep=frozenset({"layer"})))
    assert mean_of(averaged, "layer") == "mean of 5 steps, all heads"


def test_a_words_own_scale_is_fast_with_many_words():
    """The range of 200 words at 999 steps takes long: only their own scale needs it."""
    began = time.process_time()
    word_figures.timeline(many(steps=999, words=200), 0)
    assert time.process_time() - began < 2
