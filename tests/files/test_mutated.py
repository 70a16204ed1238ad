"""Mutated results: whatever a file holds, `load` gives a result or a `RunError`."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making import random_ablation, random_edit, random_explanation, random_run, run_with_steps

from heedmap import Ablation, EditResult, Explanation, Grid, Run
from heedmap.errors import RunError
from heedmap.io.schemas import GridReport
from heedmap.results.grids import Cell

LOADERS: dict[str, Any] = {
    "run": Run, "steps": Run, "pair": EditResult, "grid": Grid, "ablation": Ablation,
    "explanation": Explanation,
}  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([10**400, -1, 2**31, 1e300, "x" * 5000, "../../x", [], {}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """One saved result of each kind."""
    root = tmp_path_factory.mktemp("results")
    pair = random_edit(blended=True)
    made = {
        "run": random_run(), "steps": run_with_steps(), "pair": pair, "ablation": random_ablation(),
        "grid": Grid((Cell(1, 7, "at sea", {}, (0.0, 0.8), (0.0, 0.4), pair),), GridReport()),
        "explanation": random_explanation(),
    }  # fmt: skip
    return {name: one.save(root / name, overlays=False) for name, one in made.items()}


def read_files(folder: Path) -> list[Path]:
    """The files that `load` reads."""
    found = [*folder.rglob("*.json"), *folder.rglob("*.safetensors")]
    pictures = ("image.png", "blend.png", "steps.png", "input.png")
    return sorted([*found, *(path for path in folder.rglob("*.png") if path.name in pictures)])


def replace_value(draw: Any, held: Any) -> Any:
    """JSON of which one value is another, missing, or twice there."""
    if isinstance(held, dict | list) and held and draw(st.integers(0, 5)):
        keys = list(held) if isinstance(held, dict) else range(len(held))
        key = draw(st.sampled_from(list(keys)))
        held[key] = replace_value(draw, held[key])
        action = draw(st.integers(0, 9))
        if action == 0:
            del held[key]
        elif action == 1 and isinstance(held, list):
            held.append(held[key])
        return held
    return draw(values)


def mutate_json(draw: Any, data: bytes) -> bytes:
    return json.dumps(replace_value(draw, json.loads(data))).encode()


def mutate_tensors(draw: Any, data: bytes) -> bytes:
    """Another header, or another description in it, of the right length."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    if draw(st.booleans()):
        about = json.loads(header["__metadata__"]["heedmap"])
        header["__metadata__"]["heedmap"] = json.dumps(replace_value(draw, about))
    else:
        header = replace_value(draw, header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def mutate_bytes(draw: Any, data: bytes) -> bytes:
    at = draw(st.integers(0, min(len(data), 400)) | st.integers(0, len(data)))
    more = draw(st.binary(max_size=9))
    return data[:at] + more + data[at + draw(st.integers(0, 9)) :]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_mutated_folder_gives_a_result_or_a_run_error(folders, data):
    name = data.draw(st.sampled_from(sorted(folders)))
    path = data.draw(st.sampled_from(read_files(folders[name])))
    before = path.read_bytes()
    mutate = mutate_bytes
    if data.draw(st.integers(0, 3)):
        mutate = {".json": mutate_json, ".safetensors": mutate_tensors}.get(path.suffix, mutate)
    try:
        path.write_bytes(mutate(data.draw, before))
        repr(LOADERS[name].load(folders[name]))
    except RunError:
        pass
    finally:
        path.write_bytes(before)


def test_a_missing_file_is_named(folders):
    for name, folder in folders.items():
        for path in read_files(folder):
            before = path.read_bytes()
            path.unlink()
            with pytest.raises(RunError, match=path.name.replace(".", r"\.")):
                LOADERS[name].load(folder)
            path.write_bytes(before)
