from dataclasses import replace

import numpy as np
import pytest
from making import recording
from PIL import Image

from heedmap.figures import layout, overlays
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.map_sheets import sheet_of
from heedmap.maps.word_map import SCALES


@pytest.mark.parametrize(("size", "again"), [((96, 64), False), ((2400, 1600), True)])
@pytest.mark.parametrize("scale", ["shared", "word"])
def test_a_sheet_comes_with_the_overlays_that_it_is_made_of(monkeypatch, size, again, scale):
    """Each is drawn once, but where the sheet's are smaller."""
    picture = Image.radial_gradient("L").resize(size).convert("RGB")
    maps = HeatMaps(recording("at house"), picture)
    expected = [heat.overlay(scale=scale).tobytes() for heat in maps]
    figure = maps.figure(title="a title", scale=scale)
    drawn: list[int] = []
    draw = overlays.overlay
    monkeypatch.setattr(
        overlays, "overlay", lambda *args, **named: drawn.append(1) or draw(*args, **named)
    )
    laid, each = maps.laid_out(title="a title", scale=scale)
    assert [one.tobytes() for one in each] == expected
    assert len(drawn) == (4 if again else 2)
    assert laid.title == "a title" and laid.image() == figure.image()


def test_without_maps_the_sheet_is_the_picture():
    picture = Image.radial_gradient("L").convert("RGB")
    laid, each = sheet_of([], picture, "a title", "shared", note="no words")
    assert list(each) == []
    plain, _ = sheet_of([], picture, "a title", "shared")
    assert laid.image().height > plain.image().height  # the note has a line
    shown = HeatMaps(recording("at house"), picture).figure([], title="a title").image()
    assert shown == plain.image()


def test_a_panel_says_how_stable_its_map_is_where_that_is_known(monkeypatch):
    said: list[str] = []
    rows = layout.in_rows
    monkeypatch.setattr(
        layout, "in_rows", lambda panels: said.extend(one.note for one in panels) or rows(panels)
    )
    maps = HeatMaps(recording("at house"), stability={1: 0.984})
    maps.sheet()
    at, house = (f"up to {heat.values.max():.2g}" for heat in maps)
    assert said == [at, f"{house} · stability 0.98"]


@pytest.mark.parametrize("scale", ["shared", "word", "raw"])
def test_a_sheet_and_a_figure_of_refined_maps_name_them(monkeypatch, scale):
    bars: list[str] = []
    bar = layout.ScaleBar
    monkeypatch.setattr(
        layout,
        "ScaleBar",
        lambda name, *more, **named: bars.append(name) or bar(name, *more, **named),
    )
    notes: list[str] = []
    rows = layout.in_rows
    monkeypatch.setattr(
        layout, "in_rows", lambda panels: notes.extend(one.note for one in panels) or rows(panels)
    )
    made = recording("at house")
    carried = np.random.default_rng(0).random((4, 4, len(made.positions)), dtype=np.float32)
    maps = HeatMaps(replace(made, refined=carried))
    own = {"word": "the word's own"}
    for refined, of in ((False, maps), (True, maps.refined)):
        bars.clear(), notes.clear()
        of.sheet(scale=scale)
        of.sheet([of.alone("house"), of.token(0)], scale=scale)
        maps.sheet([of.share("house")], scale=scale)
        of["house"].figure(scale=scale)
        said = " · refined by self-attention" if refined else ""
        assert bars == [*[f"{SCALES[scale]}{said}"] * 3, f"{own.get(scale, SCALES[scale])}{said}"]
        assert "refined" not in " ".join(notes)
    bars.clear(), notes.clear()
    maps.sheet([maps["house"], maps.refined["house"]], scale=scale)
    assert bars == [SCALES[scale]]
    assert [note.endswith(", refined") for note in notes] == [False, True]


def test_what_is_shown_together_has_one_scale_that_holds_a_phrase(panels, framed):
    """A phrase draws more than any of its words, and nothing is cut off at the words' most."""
    maps = HeatMaps(recording("red house"), Image.new("RGB", (128, 128), "grey"))
    heats = [maps["red"], maps["red house"]]
    _, drawn = maps.laid_out(heats, scale="shared")
    low = min(heat.values.min() for heat in maps)
    high = maps["red house"].values.max()
    assert high > maps["red"].shared[1]
    (frame,) = framed
    assert (frame["bar"].low, frame["bar"].high) == pytest.approx((low, high))
    for heat, panel, picture in zip(heats, panels[1:], drawn, strict=True):
        wanted = heat.drawn(float(low), float(high))
        assert panel.picture.tobytes() == wanted.tobytes() == picture.tobytes()
