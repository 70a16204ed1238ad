"""Timelines, animations, layers by heads: pixels, scales, what each sheet says."""

import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import Made, gif_frames, gradient, recording, same_pixels, settings_of, stable_diffusion
from PIL import Image

from heedmap.errors import ArgumentError, SelectionError, UnknownWordError
from heedmap.figures import layout, overlays
from heedmap.figures.blocks import Block
from heedmap.maps import timelines
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Layer
from heedmap.results import comparisons
from heedmap.results.runs import Run

LONG = "a house of " + "many " * 30 + "rooms"


def maps_of(latent=(16, 16), **more: Any) -> HeatMaps:
    made = recording(latent=latent, **more)
    return HeatMaps(made, gradient(*made.size))


@pytest.fixture
def panels(monkeypatch) -> list[layout.Panel]:
    """The panels of the grids that are drawn."""
    seen: list[layout.Panel] = []
    real = layout.in_rows
    monkeypatch.setattr(layout, "in_rows", lambda ps, **k: (seen.extend(ps), real(ps, **k))[1])
    return seen


def by_hand(maps: HeatMaps, parts: list[np.ndarray], size=(256, 256)) -> list[Image.Image]:
    """Overlays of these values on one scale, from the least of them to the greatest."""
    low, high = min(float(p.min()) for p in parts), max(float(p.max()) for p in parts)
    image = maps.image.resize(size, Image.Resampling.LANCZOS)
    return [overlays.overlay(image, part, low=low, high=high) for part in parts]


# --- over the steps ---------------------------------------------------------------------------


def test_frames_of_a_timeline_are_the_overlays_of_their_steps(panels, framed):
    maps = maps_of(steps=9)
    drawn = timelines.timeline(maps, "house", frames=3).image()
    every = [maps.select(steps=step)["house"].values for step in range(9)]
    expected = by_hand(maps, every)
    assert [panel.caption for panel in panels] == ["step 1", "step 5", "step 9", "the picture"]
    assert [panel.note for panel in panels[:3]] == ["timestep 900", "timestep 896", "timestep 892"]
    for panel, step in zip(panels[:3], (0, 4, 8), strict=True):
        assert same_pixels(panel.picture, expected[step])
    (said,) = framed
    assert said["title"] == "Over the steps: house"
    assert said["note"] == (
        "3 of 9 steps, each by itself, over the finished picture · mean of 3 layers, all heads · "
        "at house, at sea"
    )
    low, high = min(e.min() for e in every), max(e.max() for e in every)
    assert (said["bar"].low, said["bar"].high) == (low, high)
    assert said["bar"].name == "one for the word at all steps"
    assert drawn.mode == "RGB"
    assert drawn.width <= layout.MAX_WIDTH


def test_frames_reach_the_sheet_as_they_are():
    """All the panels' pixels, but for their outlines, are in the sheet."""
    maps = maps_of(steps=3)
    sheet = np.asarray(timelines.timeline(maps, "house").image())
    _, wide, high = layout._plan(4, 1, None)
    parts = [maps.select(steps=step)["house"].values for step in range(3)]
    low, high_value = min(p.min() for p in parts), max(p.max() for p in parts)
    image = maps.image.resize((256, 256), Image.Resampling.LANCZOS)
    for part in parts:
        made = overlays.overlay(image, part, low=low, high=high_value)
        inner = np.asarray(made.resize((wide, high), Image.Resampling.LANCZOS))[1:-1, 1:-1]
        rows, columns = np.nonzero((sheet == inner[0, 0]).all(axis=-1))
        assert any(
            np.array_equal(sheet[y : y + high - 2, x : x + wide - 2], inner)
            for y, x in zip(rows, columns, strict=True)
        )


def test_a_timeline_of_a_selection(panels, framed):
    maps = maps_of(steps=9)
    part = maps.select("up", heads=[0, 1]).select(steps=slice(-4, None))
    timelines.timeline(part, "house", frames=2)
    assert [panel.caption for panel in panels[:2]] == ["step 6", "step 9"]
    every = [part.select(steps=step)["house"].values for step in range(5, 9)]
    assert same_pixels(panels[0].picture, by_hand(maps, every)[0])
    assert framed[0]["note"].startswith("2 of 9 steps")
    assert "mean of 2 layers, heads 1, 2 · " in framed[0]["note"]


@pytest.mark.parametrize(
    ("frames", "steps"), [(1, [3]), (2, [1, 3]), (3, [1, 2, 3]), (99, [1, 2, 3])]
)
def test_how_many_frames(panels, frames, steps):
    timelines.timeline(maps_of(), "house", frames=frames)
    assert [p.caption for p in panels[:-1]] == [f"step {step}" for step in steps]


def test_scales_of_a_timeline(framed):
    maps = maps_of()
    for scale, name in (("shared", "one for all words at all steps"), ("raw", "raw probability")):
        timelines.timeline(maps, "house", scale=scale)
        bar = framed[-1]["bar"]
        assert bar.name == name
        spans = [maps.select(steps=step)["house"].span(scale) for step in range(3)]
        assert bar.low == min(low for low, _ in spans)
        assert bar.high == max(high for _, high in spans)


def test_a_step_or_a_word_of_no_recording():
    averaged = maps_of(keep=("layer",))
    for draw in (timelines.timeline, timelines.animation):
        with pytest.raises(SelectionError, match="record again with keep including 'step'"):
            draw(averaged, "house")
        with pytest.raises(UnknownWordError, match="'hous' is not in the prompt"):
            draw(maps_of(), "hous")
        with pytest.raises(
            ArgumentError, match="frames is 0: expected a whole number of at least 1"
        ):
            draw(maps_of(), "house", frames=0)
        with pytest.raises(ArgumentError, match="scale is 'loud': expected 'shared'"):
            draw(maps_of(), "house", scale="loud")


def test_without_a_picture_the_heat_alone(panels, framed):
    maps = replace(maps_of((8, 16)), image=None)
    timelines.timeline(maps, "house", frames=2)
    assert [panel.caption for panel in panels] == ["step 1", "step 3"]
    assert framed[0]["bar"].alone
    assert "finished picture" not in framed[0]["note"]
    every = [maps.select(steps=step)["house"].values for step in range(3)]
    low, high = min(e.min() for e in every), max(e.max() for e in every)
    assert panels[0].picture.size == (362, 181)
    heat = (overlays.resize_map(every[0], (362, 181)) - low) / (high - low)
    expected = overlays.colour(np.clip(heat, 0, 1))
    assert np.abs(np.asarray(panels[0].picture, int) - expected).max() <= 6  # one colour apart


# --- that move --------------------------------------------------------------------------------


@pytest.mark.parametrize("latent", [(16, 16), (12, 20)])
def test_every_step_is_a_frame_of_the_gif(latent):
    maps = maps_of(latent, steps=7)
    moving = timelines.animation(maps, "house")
    frames, durations, about = gif_frames(moving.gif())
    assert len(frames) == len(moving.frames) == 7
    assert durations == list(moving.durations) == [400] * 6 + [1500]
    assert about["loop"] == 0  # for ever
    size = moving.frames[0].size
    every = [maps.select(steps=step)["house"].values for step in range(7)]
    root = (latent[1] / latent[0]) ** 0.5
    wide, high = round(384 * root), round(384 / root)
    expected = by_hand(maps, every, (wide, high))
    left = (size[0] - wide) // 2
    whole = np.asarray(moving.frames[0])
    top = next(
        y
        for y in range(120)
        if np.array_equal(whole[y, left : left + wide], np.asarray(expected[0])[0])
    )
    for frame, drawn, overlay in zip(frames, moving.frames, expected, strict=True):
        assert frame.size == drawn.size == size
        box = (left, top, left + wide, top + high)
        assert same_pixels(drawn.crop(box), overlay)
        apart = np.abs(np.asarray(frame.crop(box), int) - np.asarray(overlay, int))
        assert apart.mean() < 4
        assert np.percentile(apart, 99) < 16
        paper = np.asarray(frame)
        assert (paper[:20] == 255).all()
        assert (paper[-20:] == 255).all()


def test_each_frame_says_its_step(framed):
    timelines.animation(maps_of(steps=5), "house", frames=3)
    assert [said["note"] for said in framed] == ["step 1 of 5", "step 3 of 5", "step 5 of 5"]
    assert {said["title"] for said in framed} == {"Over the steps: house"}
    assert len({(said["bar"].low, said["bar"].high) for said in framed}) == 1


def test_long_runs_are_bounded():
    maps = stable_diffusion("a cat", keep=frozenset({"step"}), steps=150, side=16, heads=1).maps
    moving = timelines.animation(maps, "cat", side=128)
    assert len(moving.frames) == timelines.MOVING
    assert sum(moving.durations) < 7000
    assert len(moving.gif()) < timelines.MOVING * 40_000


def test_an_animation_is_saved_and_shows_itself(tmp_path, monkeypatch):
    moving = timelines.animation(maps_of(prompt="at <house> sea"), "<house>")
    path = moving.save(tmp_path / "house.gif")
    assert path.read_bytes() == moving.gif()
    shown = moving._repr_html_()
    assert shown.startswith('<img alt="Over the steps: &lt;house&gt;" src="data:image/gif;base64,')
    monkeypatch.setattr(Image.Image, "quantize", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        moving.save(tmp_path / "other.gif")
    assert [p.name for p in tmp_path.iterdir()] == ["house.gif"]


# --- by layer and head ------------------------------------------------------------------------


def test_a_row_a_layer_and_a_column_a_head(tables, framed):
    maps = maps_of()
    timelines.layers_by_heads(maps, "house")
    rows, columns = tables[0]
    assert columns == ["head 1", "head 2", "head 3", "head 4"]
    assert [label for label, _ in rows] == ["down 0.0", "up 0.0", "up 1.1"]
    heats = {
        (n, h): maps.select(layer.name, heads=h)["house"].values
        for n, layer in enumerate(maps.recording.layers)
        for h in range(layer.heads)
    }
    low = min(float(v.min()) for v in heats.values())
    high = max(float(v.max()) for v in heats.values())
    for n, (_, row) in enumerate(rows):
        for h, cell in enumerate(row):
            if (n, h) not in heats:
                assert cell == ""  # a layer of two heads beside one of four
                continue
            expected = overlays.heat(heats[n, h], cell.size, low=low, high=high)
            assert same_pixels(cell, expected)
    assert [len([c for c in row if c == ""]) for _, row in rows] == [2, 0, 2]
    said = framed[0]
    assert (said["bar"].low, said["bar"].high, said["bar"].alone) == (low, high, True)
    assert said["bar"].name == "one for the word in all layers and heads shown"
    assert said["note"] == (
        "3 layers in rows, 4 heads in columns · mean of 3 steps · at house, at sea"
    )
    (beside,) = [row for _, row in tables[1][0]]
    assert beside[0].size[0] >= 128


@pytest.mark.parametrize(
    ("keep", "axes", "captions", "title"),
    [
        (("layer",), None, ["down 0.0", "up 0.0", "up 1.1"], "By layer: house"),
        (("layer", "step", "head"), ["layer"], ["down 0.0", "up 0.0", "up 1.1"], "By layer: house"),
        (("layer", "head"), {"head"}, ["head 1", "head 2", "head 3", "head 4"], "By head: house"),
    ],
)
def test_one_axis_is_a_sheet_of_overlays(panels, framed, keep, axes, captions, title):
    maps = maps_of(keep=keep)
    timelines.layers_by_heads(maps, "house", axes=axes)
    assert [panel.caption for panel in panels] == ["the picture", *captions]
    if "layer" in title:
        parts = [maps.select(layer.name)["house"].values for layer in maps.layers]
        assert [panel.note for panel in panels[1:]] == ["16×16 cells", "8×8 cells", "16×16 cells"]
    else:
        parts = [maps.select(heads=head)["house"].values for head in range(4)]
    for panel, expected in zip(panels[1:], by_hand(maps, parts), strict=True):
        assert same_pixels(panel.picture, expected)
    assert framed[0]["title"] == title


def test_axes_that_were_not_kept():
    for keep, axes, missing in (
        (("step",), None, "layer"),
        ((), None, "layer"),
        (("layer",), ["layer", "head"], "head"),
        (("layer",), ["head"], "head"),
    ):
        with pytest.raises(SelectionError, match=f"keep including '{missing}'"):
            timelines.layers_by_heads(maps_of(keep=keep), "house", axes=axes)
    for axes in ([], ["step"], "layer"):
        with pytest.raises(ArgumentError, match="expected a list of 'layer' or 'head'"):
            timelines.layers_by_heads(maps_of(), "house", axes=axes)


def test_selections_narrow_the_sheet(tables):
    timelines.layers_by_heads(maps_of().select("up", heads=[1, -1]), "house")
    rows, columns = tables[0]
    assert [label for label, _ in rows] == ["up 0.0"]  # the other has two heads only
    assert columns == ["head 2", "head 4"]


@pytest.mark.parametrize(
    ("layers", "heads", "size", "blocks"),
    [
        (16, 8, (512, 512), 1),  # SD 1.5
        (70, 20, (1024, 1024), 2),  # SDXL
        (70, 20, (832, 1216), 2),
        (70, 20, (1216, 832), 2),
        (7, 4, (128, 128), 1),
        (70, 1, (512, 512), 4),
    ],
)
def test_tables_of_every_model_are_legible_and_bounded(layers, heads, size, blocks):
    found, side = timelines._blocks(layers, heads, size)
    assert found == blocks
    assert 36 <= side <= 160
    root = math.sqrt(size[0] / size[1])
    wide, high = round(side * root), round(side / root)
    picture = Image.new("RGB", (wide, high), "red")
    each = math.ceil(layers / blocks)
    table = layout.table(
        [("down 2.0.9", [picture] * heads)] * each, ["1"] * heads, side=side, least=side
    )
    assert blocks * table.width + (blocks - 1) * 32 + 64 <= layout.MAX_WIDTH
    assert table.height <= 2500


def test_names_of_layers():
    name = "{}.attentions.{}.transformer_blocks.{}.attn2".format
    labels = {
        name("up_blocks.1", 2, 0): "up 1.2",
        name("mid_block", 0, 0): "mid 0",
        name("down_blocks.2", 1, 7): "down 2.1.7",
        "mean": "mean",
    }
    assert {n: Layer(n, 1, (1, 1)).short for n in labels} == labels


# --- what all have in common ------------------------------------------------------------------


def kinds(maps: HeatMaps, word: str) -> list[Image.Image]:
    run = Made(maps.image or gradient(), maps, settings_of(prompt=maps.tokens.prompt))
    other = replace(run, settings=settings_of(prompt="other", seed=3))
    return [
        timelines.animation(maps, word, frames=1, side=128).frames[0],
        timelines.timeline(maps, word, frames=2).image(),
        timelines.layers_by_heads(maps, word).image(),
        timelines.layers_by_heads(maps, word, axes=["layer"]).image(),
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
    assert same_pixels(timelines.timeline(maps, 1), timelines.timeline(maps, "house"))
    assert not same_pixels(timelines.timeline(maps, "at sea"), timelines.timeline(maps, "sea"))


def test_runs_have_them_as_methods():
    maps = maps_of()
    run = Run(maps.image, maps, {"prompt": "at house, at sea"})
    assert same_pixels(run.timeline("house", frames=2), timelines.timeline(maps, "house", frames=2))
    assert run.animation("house").gif() == timelines.animation(maps, "house").gif()
    assert same_pixels(run.layers_by_heads("house"), timelines.layers_by_heads(maps, "house"))


def test_pyplot_is_never_imported():
    script = """
import sys
from maps.test_timelines import comparisons, kinds, maps_of
kinds(maps_of(), "house")
assert "matplotlib.colors" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


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
    ("drawn", "made", "axes", "said"),
    [
        (timelines.timeline, {"steps": 10_000}, None, "10000 steps.*timeline.*--steps"),
        (
            timelines.animation,
            {"steps": 1001},
            None,
            "1001 steps: expected at most 1000 on a sheet",
        ),
        (timelines.layers_by_heads, {"layers": 512, "heads": 64}, None, "32768 layers by heads"),
        (timelines.layers_by_heads, {"layers": 129}, ["layer"], "129 layers.*inspect --layers"),
        (timelines.layers_by_heads, {"heads": 129}, ["head"], "129 heads.*inspect --heads"),
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
    timelines.timeline(many(steps=999, words=200), 0)
    assert time.process_time() - began < 2
    with pytest.raises(SelectionError, match="shared by 75 words in 999 maps takes too long"):
        timelines.timeline(many(steps=999, words=200), 0, scale="shared")


@pytest.mark.parametrize("scale", ["word", "shared", "raw"])
def test_frames_have_the_scale_of_all_steps(scale, framed):
    maps = maps_of(steps=7)
    timelines.timeline(maps, "house", frames=2, scale=scale)
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


def test_layers_whose_names_are_patterns_are_themselves(panels):
    one = maps_of()
    names = ["*", "up", "up_blocks.0"]
    rows = tuple(replace(row, name=n) for row, n in zip(one.recording.layers, names, strict=True))
    maps = replace(one, recording=replace(one.recording, layers=rows))
    timelines.layers_by_heads(maps, "house", axes=["layer"])
    tops = [float(one.select(row.name)["house"].values.max()) for row in one.layers]
    assert len({*tops}) == 3
    timelines.layers_by_heads(one, "house", axes=["layer"])
    half = len(panels) // 2
    for mine, other in zip(panels[:half], panels[half:], strict=True):
        assert np.array_equal(np.asarray(mine.picture), np.asarray(other.picture))
