"""What places of the image read of it, and of reference images: exact, and nothing changes."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from making import recordings_of, same_pixels, self_attention_layers
from oracle import _grid, shares, watch

import heedmap as hm
from families.checking import WHOLE, assert_restored, compare, count_passes, expect, paint, state_of
from families.models import TABLE, picture
from heedmap.errors import ArgumentError, TraceError, UnknownWordError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "a cat"]
BOX = (9, 3, 30, 41)


def mask_of(size, box=BOX) -> np.ndarray:
    inside = np.zeros(size[::-1], bool)
    inside[box[1] : box[3], box[0] : box[2]] = True
    return inside


def cells_of(place, size, grid) -> list[int]:
    """The positions of a pixel, or those of which half is inside of a box, or the fullest."""
    if len(place) == 2:
        column, row = (
            int((side + 0.5) * cells / pixels)
            for side, pixels, cells in zip(place, size, grid[::-1], strict=True)
        )
        return [row * grid[1] + column]
    share = shares(place, size, grid).flatten()
    return (share >= min(0.5, float(share.max()))).nonzero().flatten().tolist()


class PlaceShares(dict):
    """By layer, the mean P (B, H, N, K) of places in each pass: a part of the keys."""

    def __init__(self):
        super().__init__()
        self.near = defaultdict(float)


def expected_places(pipe, call, places, size, grid=None, references=()):
    """Of the image and of each reference; a layer of a UNet has a grid of its own."""
    parts = [PlaceShares() for _ in (0, *references)]

    def act(run):
        if bool(run.tokens) != bool(grid):
            return
        positions = run.query.shape[2]
        own = grid or _grid(positions, (size[1] // 8, size[0] // 8))
        cells = [cells_of(place, size, own) for place in places]
        means = torch.stack([run.attention()[:, :, one].mean(2) for one in cells], dim=-1)
        start = run.tokens
        for part, count in zip(parts, (positions, *references), strict=True):
            part.setdefault(run.name, []).append(means[:, :, start : start + count].numpy())
            part.near[run.name] = max(run.near, part.near[run.name])
            start += count

    with watch(pipe, act, alone=grid is None):
        bare = call()
    return bare, parts


@pytest.mark.parametrize(
    ("family", "references"),
    [
        ("sd1", ()),
        ("sdxl", ()),
        ("sigma", ()),
        ("sd35", ()),
        ("zimage", ()),
        ("qwen21", ()),
        ("kontext", (8,)),
        ("klein_images", (24, 20)),
        ("qwen_edit", (60,)),
    ],
)
def test_what_places_read_is_exact(load, family, references):
    """Two images, guided, in each layer, head and step; the mask is that of the box."""
    pipe, row = load(family), TABLE[family]
    size = row.size or (96, 128)
    call = lambda: paint(pipe, prompt=PROMPTS, **row.arguments(2, seeds=(1, 2)))  # noqa: E731
    places = [(size[0] - 1, 0), BOX, (2, 33)]
    grid = row.grids[0] if row.is_joint else None
    bare, (image, *others) = expected_places(pipe, call, places, size, grid, references)
    before = state_of(pipe)
    with trace(pipe, WHOLE, places=[places[0], mask_of(size), places[2]]) as traced:
        assert np.array_equal(call(), bare)
    assert_restored(pipe, before)
    schedule = row.layouts(2), row.groups(2)
    compare(recordings_of(traced.place_maps), expect(image, *schedule), image.near)
    assert len({one.arrays[0].tobytes() for one in recordings_of(traced.place_maps)}) == 2
    for number, other in enumerate(others):
        recordings = recordings_of(one[number] for one in traced.reference_place_maps)
        compare(recordings, expect(other, *schedule), other.near)
    assert traced.place_maps[0].recording.share_of == "places"


def test_the_map_of_a_place_peaks_where_a_key_is_raised(load):
    """All queries meet the key of one pixel alone, in grids that no side is a multiple of."""
    pipe, size, (x, y) = load("sd1"), TABLE["sd1"].size, (93, 20)

    def raise_key(_, args, output):
        h, w = _grid(output.shape[1], (9, 13))
        output[:] = 0
        output[:, y * h // size[1] * w + x * w // size[0]] = 40
        return output

    for layer in self_attention_layers(pipe).values():
        layer.to_k.register_forward_hook(raise_key)
        layer.to_q.register_forward_hook(lambda _, args, output: output * 0 + 1)
    run = hm.generate(pipe, "a cat", size=size, seed=1, steps=1, places=[(3, 60), (50, 50)])
    for heat in (run.places[0], run.places["50,50"]):
        column, row = heat.peak
        assert (column * 13 // 104, row * 9 // 72) == (x * 13 // 104, y * 9 // 72)
    recording = run.places.recording
    for layer, (array,) in zip(recording.layers, recording.arrays, strict=True):
        np.testing.assert_allclose(array.max(axis=1), 1, atol=1e-5)
        assert (array[0].argmax(axis=0) == cells_of((x, y), size, layer.grid)).all()


# --- words, files, repetitions ---


def test_the_mask_of_a_word_is_a_place(load, tmp_path):
    """The image is the same; a saved run is given others from its settings."""
    pipe, call = load("sd1"), {"seed": 3, "steps": 2, "size": (104, 72)}
    plain = hm.generate(pipe, "a red house", **call)
    passes = []
    run = hm.generate(
        pipe, "a red house", **call, places=["house", (3, 60), (3, 60)],
        progress=lambda *done: passes.append(done),
    )  # fmt: skip
    assert same_pixels(run.image, plain.image) and passes == [(n, 4) for n in range(1, 5)]
    assert tuple(run.places) == ("house", "3,60", "3,60 2") and plain.places is None
    masked = hm.generate(pipe, "a red house", **call, places=[plain.maps["house"].mask()])
    np.testing.assert_allclose(run.places[0], masked.places["mask"], rtol=1e-6)
    saved = hm.Run.load(run.save(tmp_path / "run"))
    np.testing.assert_array_equal(saved.places["house"], run.places["house"])
    assert (tmp_path / "run/places.png").exists()
    again = hm.repeat(pipe, saved)
    np.testing.assert_array_equal(again.run.places["house"], run.places["house"])
    saved = hm.Run.load(masked.save(tmp_path / "masked"))
    again = hm.repeat(pipe, saved, places=["house", BOX, saved.settings.places[0]])
    assert again.same and tuple(again.run.places) == ("house", "9,3,30,41", "mask")
    np.testing.assert_allclose(again.run.places[0], saved.places[0], rtol=1e-6)
    np.testing.assert_allclose(again.run.places[2], saved.places[0], rtol=1e-6)


def test_words_are_places_of_located_images_and_of_batches(load, tmp_path):
    pipe = load("sd1")
    found = hm.locate(pipe, picture(104, 72), "a red house", seed=1, steps=2, places=["red"])
    saved = hm.Run.load(found.save(tmp_path / "found", overlays=False))
    again = hm.repeat(pipe, saved)
    assert again.same and saved.settings.places == ("red",)
    np.testing.assert_array_equal(again.run.places["red"], saved.places["red"])
    one, other = hm.generate(pipe, ["a cat", "the cat"], seed=[1, 2], steps=1, places=["cat"])
    assert one.settings.batch_place and not np.array_equal(one.places[0], other.places[0])
    again = hm.repeat(pipe, other)
    np.testing.assert_array_equal(again.run.places[0], other.places[0])


def test_places_on_reference_images_are_saved(load, tmp_path):
    row = TABLE["klein_images"]
    run = hm.generate(load("klein_images"), "a cat", places=[(9, 9)], **row.options())
    saved = hm.Run.load(run.save(tmp_path / "run"))
    for mine, theirs in zip(run.references, saved.references, strict=True):
        np.testing.assert_array_equal(mine.places[0], theirs.places[0])
        assert mine.places[0].size == mine.maps["cat"].size and mine.places[0].values.max() > 0
    assert run.places.select(layers="single")[0].share_of == "places"


# --- what cannot be recorded ---


@pytest.mark.parametrize(
    ("family", "places", "error"),
    [
        ("sd1", ["cat", (104, 3)], ArgumentError),
        ("sd1", [(0, 0, 105, 8)], ArgumentError),
        ("sd1", [np.ones((8, 8), bool)], ArgumentError),
        ("sd1", [(1.5, 2)], ArgumentError),
        ("sd1", (3, 4), ArgumentError),
        ("sd1", ["dog"], UnknownWordError),
        ("sana", [(3, 4)], ArgumentError),
    ],
)
def test_places_are_refused_before_sampling(load, family, places, error):
    pipe = load(family)
    passes = count_passes(pipe)
    with pytest.raises(error):
        hm.generate(pipe, "a cat", **TABLE[family].options(places=places))
    assert not passes


def test_a_bare_trace_knows_no_mask_of_a_word(load):
    with pytest.raises(ArgumentError, match="house"):
        trace(load("sd1"), places=["house"])


def test_merged_tokens_have_no_places(load):
    """Half of the positions attend, as with merged tokens."""
    pipe = load("sd1")
    layer = next(iter(self_attention_layers(pipe).values()))
    forward = layer.forward
    layer.forward = lambda x, **more: forward(x[:, ::2], **more).repeat_interleave(2, 1)[
        :, : x.shape[1]
    ]
    with pytest.raises(TraceError), trace(pipe, places=[(3, 4)]):
        paint(pipe, "a cat", **TABLE["sd1"].arguments())
