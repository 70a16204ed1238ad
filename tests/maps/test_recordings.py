"""The file of a recording: read back equal, and refused by itself, whatever stands beside it."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from making import recording
from safetensors.numpy import load_file, save_file

from heedmap.errors import RunError, SelectionError
from heedmap.maps.recordings import Recording

FIELDS = ("layers", "keep", "timesteps", "positions", "table", "latent", "size")


@pytest.mark.parametrize("keep", [(), ("step",), ("layer", "head"), ("layer", "step", "head")])
@pytest.mark.parametrize("latent", [(16, 16), (5, 12), (7, 3), (1, 1)])
def test_a_saved_recording_is_read_back_equal(tmp_path: Path, keep, latent):
    made = recording("at house", keep=keep, latent=latent)
    made.save(tmp_path / "maps")
    for path in (tmp_path / "maps", str(tmp_path / "maps")):
        read = Recording.load(path)
        assert all(getattr(read, name) == getattr(made, name) for name in FIELDS)
        assert all((a == b).all() for a, b in zip(read.arrays, made.arrays, strict=True))
        assert read.nbytes == made.nbytes == sum(4 * a.size for a in made.arrays)


def refined_too(made: Recording, seed: int = 0) -> Recording:
    """The same with refined maps by chance, on a grid of 8×8."""
    maps = np.random.default_rng(seed).random((8, 8, len(made.positions)), dtype=np.float32)
    return replace(made, refined=maps)


def test_refined_maps_are_read_back_equal(tmp_path: Path):
    made = refined_too(recording())
    made.save(tmp_path / "maps")
    read = Recording.load(tmp_path / "maps")
    assert np.array_equal(read.refined, made.refined)
    assert all((a == b).all() for a, b in zip(read.arrays, made.arrays, strict=True))
    alone = read.refined_alone()
    assert (alone.keep, alone.refined, alone.positions) == (frozenset(), None, made.positions)
    assert [(layer.name, layer.heads, layer.grid) for layer in alone.layers] == [
        ("refined", 1, (8, 8))
    ]
    assert np.array_equal(alone.arrays[0].reshape(8, 8, -1), made.refined)
    with pytest.raises(ValueError):
        read.refined[0] = 0


def outputs_too(made: Recording) -> Recording:
    """The same with similarities of outputs by chance."""
    random = np.random.default_rng(5).random
    shapes = [(len(a), 1, *a.shape[2:]) for a in made.arrays]
    return replace(made, outputs=tuple(random(shape, dtype=np.float32) for shape in shapes))


def test_similarities_of_outputs_are_read_back_equal(tmp_path: Path):
    made = refined_too(outputs_too(recording(keep=("layer", "step", "head"))))
    made.save(tmp_path / "maps")
    read = Recording.load(tmp_path / "maps")
    for name in ("arrays", "outputs"):
        assert all(map(np.array_equal, getattr(read, name), getattr(made, name)))
    assert np.array_equal(read.refined, made.refined) and read.share_of == made.share_of
    read.outputs_alone().save(tmp_path / "alone")
    alone = Recording.load(tmp_path / "alone")
    assert (alone.share_of, alone.keep, alone.outputs) == ("outputs", {"layer", "step"}, ())
    assert all(map(np.array_equal, alone.arrays, made.outputs))
    rewritten(tmp_path / "maps", lambda about: about.update(outputs=False))
    refused(tmp_path / "maps")


def test_a_file_without_refined_maps_and_similarities_has_none(tmp_path: Path):
    """As in the files of older versions, which have no word of them."""
    recording().save(tmp_path / "maps")
    rewritten(tmp_path / "maps", lambda about: (about.pop("refined"), about.pop("outputs")))
    read = Recording.load(tmp_path / "maps")
    assert read.refined is None and read.outputs == ()
    for ask in (read.refined_alone, read.outputs_alone):
        with pytest.raises(SelectionError):
            ask()


@pytest.mark.parametrize(
    ("change", "arrays"),
    [
        (lambda a: a.update(refined=None), None),
        (None, lambda t: t.pop("refined")),
        (lambda a: a.update(refined=[8, 7]), None),
        (lambda a: a.update(refined=[4, 4]), None),
        (lambda a: a.update(refined=[8, 0]), None),
        (None, lambda t: t["refined"].__setitem__((0, 0, 0), np.nan)),
        (None, lambda t: t.update(refined=t["refined"].astype(np.float64))),
    ],
)
def test_refined_maps_that_do_not_fit_are_refused(tmp_path: Path, change, arrays):
    refined_too(recording()).save(tmp_path / "maps")
    rewritten(tmp_path / "maps", change, arrays)
    refused(tmp_path / "maps")


# --- what is refused --------------------------------------------------------------------------


def rewritten(path: Path, change=None, arrays=None) -> None:
    """A saved recording with other metadata, or other arrays."""
    held = path.read_bytes()
    size = struct.unpack("<Q", held[:8])[0]
    about = json.loads(json.loads(held[8 : 8 + size])["__metadata__"]["heedmap"])
    tensors = load_file(path)
    if change is not None:
        change(about)
    if arrays is not None:
        arrays(tensors)
    save_file(tensors, path, metadata={"heedmap": json.dumps(about)})


def refused(path: Path) -> None:
    with pytest.raises(RunError, match=path.name):
        Recording.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a["positions"].__setitem__(0, a["positions"][1]),
        lambda a: a["positions"].__setitem__(-1, 77),
        lambda a: a["layers"].pop(),
        lambda a: a["layers"][0].update(heads=3),
        lambda a: a["timesteps"].pop(),
        lambda a: a["keep"].remove("head"),
        lambda a: a["keep"].append("colour"),
        lambda a: a["layers"][0].update(grid=[9, 9]),
        lambda a: a.update(latent=[2**40, 1]),
        lambda a: a.update(format=99),
    ],
)
def test_inconsistent_files_are_refused(tmp_path: Path, change):
    recording(latent=(16, 16)).save(tmp_path / "maps")
    rewritten(tmp_path / "maps", change)
    refused(tmp_path / "maps")


def test_the_last_token_of_the_prompt_is_kept(tmp_path: Path):
    made = recording()
    last = len(made.table.tokens) - 1
    replace(made, positions=(*made.positions[:-1], last)).save(tmp_path / "maps")
    assert Recording.load(tmp_path / "maps").positions[-1] == last == 76


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"layer.0": t["layer.0"].astype(np.float16)}),
        lambda t: t.update({"layer.0": t["layer.0"][:, :, :, :-1].copy()}),
        lambda t: t.update({"more": t["layer.0"]}),
        lambda t: t["layer.0"].__setitem__((0, 0, 0, 0), np.nan),
        lambda t: t["layer.2"].__setitem__((0, 0, 0, 0), 1.1e20),
        lambda t: t["layer.2"].__setitem__((0, 0, 0, 0), -1.1e20),
    ],
)
def test_arrays_that_contradict_the_header_are_refused(tmp_path: Path, change):
    recording().save(tmp_path / "maps")
    rewritten(tmp_path / "maps", arrays=change)
    refused(tmp_path / "maps")


def test_files_without_heedmaps_header_are_refused(tmp_path: Path):
    save_file({"layer.0": np.zeros((1, 1, 1, 1), np.float32)}, tmp_path / "maps")
    refused(tmp_path / "maps")


@pytest.mark.parametrize("size", [2**24 + 1, 2**62])
def test_a_header_that_is_too_long_is_not_read(tmp_path: Path, size: int):
    (tmp_path / "maps").write_bytes(struct.pack("<Q", size) + b"{}")
    refused(tmp_path / "maps")


def test_broken_and_missing_files_are_refused(tmp_path: Path):
    path = tmp_path / "maps"
    refused(path)
    for content in (b"", b"\x80\x04pickle", b"\xff" * 64):
        path.write_bytes(content)
        refused(path)
    recording().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    refused(path)


def test_recorded_arrays_are_read_only(tmp_path: Path):
    given = recording(keep=frozenset({"layer", "step", "head"}))
    mine = np.ones_like(given.arrays[0])
    held = replace(given, arrays=(mine, *given.arrays[1:]))
    held.save(tmp_path / "x")
    for one in (held, Recording.load(tmp_path / "x")):
        for array in one.arrays:
            with pytest.raises(ValueError):
                array[0] = 0
    mine[0] = 2  # whoever gave it may do with it as he likes
    about = json.loads(load_about(tmp_path / "x"))
    assert about["keep"] == ["head", "layer", "step"]


def load_about(path: Path) -> str:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size])["__metadata__"]["heedmap"]
