"""What all sheets of one word have in common: texts of any kind, bounds, scales."""

import time
from dataclasses import replace

import numpy as np
import pytest
from making import Made, gradient, maps_of, recording, same_pixels, settings_of
from PIL import Image

from heedmap.errors import SelectionError, UnknownWordError
from heedmap.figures import layout
from heedmap.figures.blocks import Block
from heedmap.maps import word_figures
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Layer
from heedmap.maps.word_figures import check_many, mean_of
from heedmap.results import comparisons
from heedmap.results.runs import Run

LONG = "a house of " + "many " * 30 + "rooms"


def kinds(maps: HeatMaps, word: str) -> list[Image.Image]:
    run = Made(maps.image or gradient(), maps, settings_of(prompt=maps.tokens.prompt))
    other = replace(run, settings=settings_of(prompt="other", seed=3))
    return [
        word_figures.animation(maps.select(steps=0), word).frames[0],
        word_figures.timeline(maps, word, frames=2).image(),
        word_figures.layers_by_heads(maps, word).image(),
        word_figures.layers_by_heads(maps, word, axes=["layer"]).image(),
        comparisons.compare([run, other], [word]).image(),
    ]


@pytest.mark.parametrize("word", [LONG, "수박" * 30, "수박 집", "بيت أحمر", "x" * 200])
def test_words_of_any_length_and_script_are_whole(word):
    """The words take room, and the margins stay white: nothing is cut."""
    maps = maps_of(prompt=f"at sea, {word}" if len(word) < 60 else "at sea")
    heat = maps["sea"]
    labelled = replace(heat, label=word)
    named = layout.framed(Block.of(labelled.drawn(0, 1)), title=f"Over the steps: {word}")
    paper = np.asarray(named.image().convert("L"))
    assert (paper[:, :28] == 255).all()
    assert (paper[:, -28:] == 255).all()
    if len(word) < 60:
        for sheet in kinds(maps, word):
            edge = np.asarray(sheet.convert("L"))
            assert (edge[:24] == 255).all()
            assert (edge[-24:] == 255).all()
            assert (edge[:, :28] == 255).all()
            assert (edge[:, -28:] == 255).all()


def test_a_phrase_and_a_number_are_words_too():
    maps = maps_of()
    assert same_pixels(word_figures.timeline(maps, 1), word_figures.timeline(maps, "house"))
    assert not same_pixels(
        word_figures.timeline(maps, "at sea"), word_figures.timeline(maps, "sea")
    )


def test_runs_have_them_as_methods():
    maps = maps_of()
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
def test_a_note_says_over_what_is_averaged(chosen, said):
    """As `select` takes it, counted from 0."""
    assert mean_of(many(layers=2, heads=4, steps=5).select(**chosen)) == said


def test_a_note_leaves_out_what_is_shown():
    maps = many(layers=2, heads=4, steps=5)
    assert mean_of(maps, "step") == "mean of 2 layers, all heads"
    assert mean_of(maps, "layer", "head") == "mean of 5 steps"
    averaged = HeatMaps(replace(maps.recording, keep=frozenset({"layer"})))
    assert mean_of(averaged, "layer") == "mean of 5 steps, all heads"


@pytest.mark.parametrize(
    ("drawn", "made", "axes", "said"),
    [
        (word_figures.timeline, {"steps": 10_000}, None, r"10000 steps.*select\(steps=slice"),
        (
            word_figures.animation,
            {"steps": 1001},
            None,
            "1001 steps: expected at most 1000 on a sheet",
        ),
        (word_figures.layers_by_heads, {"layers": 512, "heads": 64}, None, "32768 layers by heads"),
        (
            word_figures.layers_by_heads,
            {"layers": 129},
            ["layer"],
            r"129 layers.*select\(layers='mid'\)",
        ),
        (
            word_figures.layers_by_heads,
            {"heads": 129},
            ["head"],
            r"129 heads.*select\(heads=\[0, 1\]\)",
        ),
    ],
)
def test_what_nobody_can_look_at_is_a_sentence_at_once(drawn, made, axes, said):
    maps, more = many(**made), {} if axes is None else {"axes": axes}
    began = time.process_time()
    with pytest.raises(SelectionError, match=said):
        drawn(maps, 0, **more)
    assert time.process_time() - began < 1


def test_a_word_of_many_is_drawn_by_its_own_scale_in_no_more_time():
    """75 words at 999 steps were 75,000 maps, for a scale that is not shown."""
    began = time.process_time()
    word_figures.timeline(many(steps=999, words=200), 0)
    assert time.process_time() - began < 2
    with pytest.raises(SelectionError, match="shared by 75 words in 999 maps takes too long"):
        word_figures.timeline(many(steps=999, words=200), 0, scale="shared")


@pytest.mark.parametrize("scale", ["word", "shared", "raw"])
def test_frames_have_the_scale_of_all_steps(scale, framed):
    maps = maps_of(steps=7)
    word_figures.timeline(maps, "house", frames=2, scale=scale)
    each = [maps.select(steps=step)["house"].span(scale) for step in range(7)]
    bar = framed[-1]["bar"]
    assert (bar.low, bar.high) == (min(a for a, _ in each), max(b for _, b in each))


def test_a_map_alone_is_the_map():
    maps = maps_of()
    for word in ("house", 1):
        one = maps[word] if isinstance(word, str) else maps.at(word)
        alone = maps.alone(word)
        np.testing.assert_array_equal(alone.values, one.values)
        assert (alone.label, alone.size, alone.shared) == (one.label, one.size, (0.0, 1.0))
    with pytest.raises(UnknownWordError):
        maps.alone("cathedral")


@pytest.mark.parametrize("of", ["steps", "heads", "layers"])
def test_as_many_as_a_sheet_shows(of):
    maps = maps_of()
    check_many(maps, 7, 7, of, "word")
    with pytest.raises(SelectionError, match=f"these are 8 {of}: expected at most 7 on a sheet"):
        check_many(maps, 8, 7, of, "word")
