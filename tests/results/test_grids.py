"""Grids: each cell against the edit alone, batches that are cut, and the folder."""

import numpy as np
import pytest
import torch
from figure_reading import read_figure
from making import largest_difference, random_pipeline
from PIL import Image

from heedmap.errors import ArgumentError, HeedmapWarning, UnknownWordError
from heedmap.pipelines.editing import edit, grid
from heedmap.results.grids import Cell, Grid
from heedmap.results.runs import Run

STEPS = 2
SOURCE = "a red house"


@pytest.fixture(scope="module")
def pipe():
    """One for all: a grid leaves it as it was."""
    return random_pipeline()


@pytest.fixture(scope="module")
def strip(pipe) -> Grid:
    """Two seeds, three weights, two windows."""
    return grid(
        pipe,
        SOURCE,
        weights={"red": [-1, 1, 3]},
        cross_replace=[0, (0, 0.8)],
        seeds=[7, 8],
        steps=STEPS,
    )


@pytest.fixture
def saved(strip, tmp_path):
    return strip.save(tmp_path / "x")


def size_of_batch(cell: Cell) -> int:
    _, size = cell.result.edited.settings.batch_place or (0, 1)
    return size


# --- what it gives ----------------------------------------------------------------------------


def test_every_cell_equals_its_single_edit(pipe, strip):
    assert [cell.number for cell in strip] == list(range(1, 13))
    assert len(strip) == 12
    assert {(c.seed, c.weights["red"], c.cross_replace) for c in strip} == {
        (s, w, (0.0, c)) for s in (7, 8) for w in (-1, 1, 3) for c in (0, 0.8)
    }
    for cell in strip:
        if cell.seed == 8 and (cell.weights["red"], cell.cross_replace[1]) in {(-1, 0), (3, 0.8)}:
            alone = edit(
                pipe, f"a (red:{cell.weights['red']:g}) house", seed=8,
                cross_replace=cell.cross_replace, steps=STEPS,
            )  # fmt: skip
            assert largest_difference(alone.edited.image, cell.result.edited.image) <= 1
            assert largest_difference(alone.source.image, cell.result.source.image) <= 1
            assert cell.result.edited.settings.edit == alone.edited.settings.edit
            mine = cell.result.report
            other = alone.report
            assert mine.moved == pytest.approx(other.moved, abs=1e-4)
            for name in ("words", "sites", "self_sites", "kind", "why", "weights", "options"):
                assert getattr(mine, name) == getattr(other, name)
            for a, b in zip(
                alone.edited.maps.values(), cell.result.edited.maps.values(), strict=True
            ):
                np.testing.assert_allclose(a.values, b.values, atol=1e-4)


def test_cells_of_a_seed_share_their_source(strip):
    assert list(strip.sources) == [7, 8]
    for cell in strip:
        assert cell.result.source is strip.sources[cell.seed]
    assert all(size_of_batch(cell) == 7 for cell in strip)


def test_the_cell_of_weight_1_changes_nothing(pipe, strip):
    assert any(cell.weights["red"] == 1 for cell in strip)
    for cell in strip:
        if cell.weights["red"] == 1 and cell.cross_replace[1]:
            assert largest_difference(cell.result.source.image, cell.result.edited.image) <= 1
            assert cell.result.report.moved == pytest.approx(0, abs=1e-5)
    with pytest.warns(HeedmapWarning) as warned:
        grid(pipe, SOURCE, weights={"red": [1, 1.000001]}, seeds=1, steps=1)
    assert [warning.filename for warning in warned] == [__file__]


def test_targets_windows_and_blends_are_axes_of_a_grid(pipe):
    made = grid(
        pipe, SOURCE, ["a red sea", "a blue sea"], self_replace=[0.0, 0.5], cross_replace=0.5,
        seeds=3, steps=STEPS, only="house->sea",
    )  # fmt: skip
    assert list(made.axes) == ["target", "self_replace"]
    assert made.axes["self_replace"] == [(0.0, 0.0), (0.0, 0.5)]
    assert [cell.result.report.self_sites for cell in made] == [0, 7, 0, 7]
    for cell in made:
        alone = edit(
            pipe, SOURCE, cell.target, self_replace=cell.self_replace, cross_replace=0.5, seed=3,
            steps=STEPS, only="house->sea",
        )  # fmt: skip
        assert largest_difference(alone.edited.image, cell.result.edited.image) <= 1
        assert (alone.blend == cell.result.blend).mean() > 0.99


def test_a_negative_weight_is_measured_where_the_word_acts(pipe):
    """The map of a negative weight is its mirror: what acts most is lowest."""
    free = {"seeds": 2, "steps": 1, "cross_replace": 1, "self_replace": 1}
    made = grid(pipe, SOURCE, weights={"red": [-2, 2]}, **free)
    shares = [cell.result.report.change.inside.share for cell in made]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)


# --- batches ----------------------------------------------------------------------------------


def test_split_batches_equal_one_batch(pipe, strip):
    reported = []
    made = grid(
        pipe, SOURCE, weights={"red": [-1, 1, 3]}, cross_replace=[0, (0, 0.8)], seeds=[7, 8],
        steps=STEPS, batch=3, progress=lambda *now: reported.append(now),
    )  # fmt: skip
    assert all(size_of_batch(cell) == 3 for cell in made)
    for mine, whole in zip(made, strip, strict=True):
        assert largest_difference(mine.result.edited.image, whole.result.edited.image) <= 1
        assert largest_difference(mine.result.source.image, whole.result.source.image) <= 1
    assert reported == [(n, 12) for n in range(1, 13)]


def test_memory_that_runs_out_halves_the_batch(pipe, strip, monkeypatch):
    forward = pipe.unet.forward

    def small(latents, *rest, **options):
        if len(latents) > 2 * 4:  # with the negative branch
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(latents, *rest, **options)

    monkeypatch.setattr(pipe.unet, "forward", small)
    made = grid(
        pipe, SOURCE, weights={"red": [-1, 1, 3]}, cross_replace=[0, (0, 0.8)], seeds=7, steps=STEPS
    )
    assert max(map(size_of_batch, made)) == 4
    for mine, whole in zip(made, strip.cells[:6], strict=True):
        assert largest_difference(mine.result.edited.image, whole.result.edited.image) <= 1


# --- the sheet and the figures ----------------------------------------------------------------


def test_the_sheet_is_labelled_by_what_varies(strip):
    sheet = read_figure(strip.figure())
    assert sheet.columns == ["the source", "red ×−1", "red ×1", "red ×3"]
    assert [label for label, _ in sheet.rows] == [
        f"seed {seed} · cross {c}" for seed in (7, 8) for c in ("0", "0.8")
    ]
    assert sheet.title == SOURCE
    assert sheet.note.startswith("self 0.4 · 2 steps · guidance")


# --- on disk ----------------------------------------------------------------------------------


def test_a_saved_grid_is_read_back_equal(strip, saved):
    there = {p.relative_to(saved).as_posix() for p in saved.rglob("*") if p.is_file()}
    parts = {"image.png", "maps.safetensors", "run.json"}
    folders = {*(f"cells/{n:03d}" for n in range(1, 13)), "sources/7", "sources/8"}
    runs = {f"{folder}/{part}" for folder in folders for part in parts}
    assert there == {"grid.png", "grid.json", "index.html"} | runs
    back = Grid.load(saved)
    assert back.report == strip.report
    assert back.rows() == strip.rows()
    assert back.axes == strip.axes
    for mine, read in zip(strip, back, strict=True):
        assert vars(read) | {"result": mine.result} == vars(mine)
        assert read.result.report == mine.result.report
        assert read.result.source is back.sources[read.seed]
        for a, b in zip(
            mine.result.edited.maps.values(), read.result.edited.maps.values(), strict=True
        ):
            np.testing.assert_array_equal(a.values, b.values)
    assert Run.load(saved / "cells" / "003").settings.prompt == "a (red:1) house"


def test_the_table_has_a_row_for_each_cell(strip, saved):
    for cell, row in zip(strip, strip.rows(), strict=True):
        with Image.open(saved / row["file"]) as image:
            assert largest_difference(image, cell.result.edited.image) == 0


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"target": SOURCE, "cross_replace": [0, 1]}, ArgumentError),
        ({"weights": {"dog": [1, 2]}}, UnknownWordError),
        ({"weights": {"red": [1, 2, 1]}}, ArgumentError),
        ({"target": "a (red:2) sea", "weights": {"red": [1, 2]}}, ArgumentError),
        ({"self_replace": [0, (0.9, 0.1)]}, ArgumentError),
        ({"seed": 3, "seeds": [1, 2]}, ArgumentError),
    ],
    ids=str,
)
def test_bad_grids_end_before_the_first_step(pipe, arguments, error):
    def fail(*_):
        raise AssertionError("a step was run")

    options = {"target": "a red sea", "seeds": 0, "steps": 1, **arguments}
    with pytest.raises(error, match=r"red|self_replace|seed"):
        grid(pipe, SOURCE, **options, progress=fail, callback_on_step_end=fail)
