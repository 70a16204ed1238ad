"""The file of a recording: read back equal, and refused by itself, whatever stands beside it."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from making import recording
from safetensors.numpy import load_file, save_file

from heedmap.errors import RunError
from heedmap.maps.recordings import Recording

FIELDS = ("layers", "keep", "timesteps", "positions", "table", "latent", "size", "share_of")


def with_all_parts(seed: int = 5, **options) -> Recording:
    """A recording with refined maps and similarities of outputs by chance."""
    plain = recording(**options)
    random = np.random.default_rng(seed).random
    shapes = [(len(array), 1, *array.shape[2:]) for array in plain.arrays]
    return replace(
        plain,
        refined=random((8, 8, len(plain.positions)), dtype=np.float32),
        outputs=tuple(random(shape, dtype=np.float32) for shape in shapes),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a recording with all parts."""
    with_all_parts().save(tmp_path / "maps")
    return tmp_path / "maps"


@pytest.mark.parametrize("keep", [(), ("step",), ("layer", "head"), ("layer", "step", "head")])
@pytest.mark.parametrize("latent", [(16, 16), (7, 3), (1, 1)])
def test_a_saved_recording_is_read_back_equal(tmp_path: Path, keep, latent):
    saved = with_all_parts(keep=keep, latent=latent)
    saved.save(tmp_path / "maps")
    read = Recording.load(str(tmp_path / "maps"))
    assert all(getattr(read, name) == getattr(saved, name) for name in FIELDS)
    for name in ("arrays", "outputs"):
        assert all(map(np.array_equal, getattr(read, name), getattr(saved, name)))
    assert np.array_equal(read.refined, saved.refined)
    assert read.nbytes == saved.nbytes


def test_parts_of_a_recording_are_recordings(tmp_path: Path):
    whole = with_all_parts()
    refined = whole.refined_alone()
    assert (refined.keep, refined.refined, refined.outputs) == (frozenset(), None, ())
    assert [(layer.heads, layer.grid) for layer in refined.layers] == [(1, (8, 8))]
    assert np.array_equal(refined.arrays[0].reshape(8, 8, -1), whole.refined)
    whole.outputs_alone().save(tmp_path / "alone")
    outputs = Recording.load(tmp_path / "alone")
    assert (outputs.share_of, outputs.keep, outputs.outputs) == ("outputs", {"layer", "step"}, ())
    assert all(map(np.array_equal, outputs.arrays, whole.outputs))


def test_recorded_arrays_are_read_only(path: Path):
    array = np.ones_like(recording().arrays[0])
    given = replace(recording(), arrays=(array, *recording().arrays[1:]))
    for arrays in (given.arrays, Recording.load(path).arrays, [Recording.load(path).refined]):
        for one in arrays:
            with pytest.raises(ValueError):
                one[0] = 0
    array[0] = 2  # the caller's own array stays writable


# --- what is refused --------------------------------------------------------------------------


def rewrite(path: Path, change=None, change_arrays=None) -> None:
    """Save a recording again with another description, or other arrays."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    description = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["heedmap"])
    tensors = load_file(path)
    if change is not None:
        change(description)
    if change_arrays is not None:
        change_arrays(tensors)
    save_file(tensors, path, metadata={"heedmap": json.dumps(description)})


def check_refused(path: Path) -> None:
    with pytest.raises(RunError, match=path.name):
        Recording.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a["positions"].__setitem__(-1, 77),
        lambda a: a["layers"][0].update(heads=3),
        lambda a: a["timesteps"].pop(),
        lambda a: a["keep"].append("colour"),
        lambda a: a["layers"][0].update(grid=[9, 9]),
        lambda a: a.update(latent=[2**40, 1]),
    ],
)
def test_inconsistent_descriptions_are_refused(path: Path, change):
    rewrite(path, change)
    check_refused(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"layer.0": t["layer.0"].astype(np.float16)}),
        lambda t: t.update({"more": t["layer.0"]}),
        lambda t: t["layer.0"].__setitem__((0, 0, 0, 0), np.nan),
        lambda t: t["refined"].__setitem__((0, 0, 0), -1.1e20),
    ],
)
def test_arrays_that_contradict_the_description_are_refused(path: Path, change):
    rewrite(path, change_arrays=change)
    check_refused(path)


def test_other_files_are_refused(path: Path):
    data = path.read_bytes()
    save_file({"layer.0": np.zeros((1, 1, 1, 1), np.float32)}, path)
    check_refused(path)  # without a description
    long_header = struct.pack("<Q", 2**24 + 1) + b"{}"
    for content in (b"", b"\x80\x04pickle", b"\xff" * 64, long_header, data[:-100]):
        path.write_bytes(content)
        check_refused(path)
    path.unlink()
    check_refused(path)
