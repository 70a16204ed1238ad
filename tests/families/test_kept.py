"""What is kept, saved and shown of a run: the same of every family."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

import heedmap
from families.checking import TOLERANCE, WHOLE, paint
from heedmap.figures import plots
from heedmap.page.packing import pack
from heedmap.recording.tracing import trace

PAIR = ["a red house", "the cat sat at a big tree"]
KEPT = [kept for n in range(3) for kept in itertools.combinations(sorted(WHOLE), n)]
each_family = pytest.mark.parametrize("family", ["sd1", "sigma"])


@pytest.mark.parametrize(("family", "each"), [("sd1", KEPT), ("sigma", [(), ("layer",)])])
def test_axes_that_are_not_kept_are_averaged(load, family, each):
    """Where layers are averaged too, each is brought to 64 cells on the short side first."""
    pipe = load(family)
    given = {"seeds": (1, 2), "steps": 2}
    with trace(pipe, WHOLE) as whole:
        bare = paint(pipe, PAIR, **given)
    for keep in each:
        with trace(pipe, keep) as recorder:
            assert np.array_equal(bare, paint(pipe, PAIR, **given))
        assert_averaged(recorder.recordings, whole.recordings, keep)


def assert_averaged(recordings, whole, keep):
    for mine, every in zip(recordings, whole, strict=True):
        averaged = tuple(n for n, axis in enumerate(("step", "head")) if axis not in keep)
        expected = [array.mean(averaged, keepdims=True) for array in every.arrays]
        if "layer" in keep:
            for found, wanted in zip(mine.arrays, expected, strict=True):
                np.testing.assert_allclose(found, wanted, atol=TOLERANCE)
            continue
        (found,) = mine.arrays
        grids = [layer.grid for layer in every.layers]
        short = min(mine.latent)
        cells = [round(64 * side / short) for side in mine.latent]
        wanted = np.mean(list(map(enlarged, expected, grids, [cells] * len(grids))), axis=0)
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE)


def enlarged(p, grid, cells):
    """(S, H, Q, K) from a layer's grid to that of the maps."""
    planes = torch.from_numpy(p).double().movedim(2, 3).unflatten(-1, grid)
    large = interpolate(planes.flatten(0, 1), size=cells, mode="bilinear", antialias=True)
    return large.unflatten(0, p.shape[:2]).flatten(-2).movedim(-1, 2).numpy()


@each_family
def test_a_run_is_saved_shown_and_read_back(load, family, tmp_path):
    pipe = load(family)
    run = heedmap.generate(
        pipe, "a red house, at sea", seed=3, steps=2, keep=WHOLE, tokens="all",
        branches=("conditional", "negative"), negative="no cat",
    )  # fmt: skip
    saved = run.save(tmp_path / "run")
    again = heedmap.Run.load(saved)
    assert again.settings == run.settings
    for mine, theirs in ((run.maps, again.maps), (run.negative_maps, again.negative_maps)):
        assert mine.recording.layers == theirs.recording.layers
        assert mine.recording.table == theirs.recording.table
        for a, b in zip(mine.recording.arrays, theirs.recording.arrays, strict=True):
            assert np.array_equal(a, b)
    page = (saved / "index.html").read_text(encoding="utf-8")
    packed = pack([{"prompt": run.maps.recording}], 10**8)
    assert [layer["short"] for layer in packed["layers"]] == [
        layer.short for layer in run.maps.layers
    ]
    assert all(f'"{layer.short}"' in page for layer in run.maps.layers)
    assert [entry["text"] for entry in packed["runs"][0]["entries"]][:3] == ["a", "red", "house"]
    assert packed["runs"][0]["entries"][-1]["kind"] == "pad"
    for shown in (run.figure(), run.timeline("red"), run.layers_by_heads("red")):
        assert min(plots.render(shown).size) > 100
    one = run.maps.select(layers="*.0.*attn2", steps=slice(0, 2), heads=[1])["red"]
    assert one.values.max() > 0


@each_family
def test_edits_are_saved_and_read_back(load, family, tmp_path):
    pipe = load(family)
    given = {"seed": 3, "steps": 2}
    pair = heedmap.edit(pipe, "a red house", "a blue house", only="red->blue", **given)
    again = heedmap.EditResult.load(pair.save(tmp_path / "pair"))
    assert again.report == pair.report
    assert np.array_equal(again.blend, pair.blend)
    assert np.array_equal(again.edited.image, pair.edited.image)
    grid = heedmap.grid(pipe, "a red house", weights={"red": [0, 2]}, seeds=3, steps=1)
    assert len(heedmap.Grid.load(grid.save(tmp_path / "grid")).cells) == 2
    # The source beside its edits is the picture that it is alone.
    alone = heedmap.generate(pipe, "a red house", **given)
    off = np.abs(np.asarray(alone.image, int) - np.asarray(pair.source.image))
    assert off.max() <= 1
