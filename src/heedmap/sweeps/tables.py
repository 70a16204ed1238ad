"""The files of a sweep: the row of each job, and the table and the failures of all of them.

    sweep.json                    which sweep the folder holds
    runs/<ab>/<abcdef…>/          a job's result, as its task saves it, with `row.json`
    failed/<abcdef…>.json         a job that failed at its last attempt
    results.parquet, failed.jsonl the rows of all jobs, and those that failed

The two tables are made of the other files when no job is left, so any process can die before.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedmap.errors import RunError
from heedmap.figures.overlays import resize_map
from heedmap.io.reading import path_of, read_bytes
from heedmap.io.writing import TakenError, check_new, digest_of, put_file
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import MASK_THRESHOLD
from heedmap.results.edits import EditResult
from heedmap.results.runs import Run
from heedmap.sweeps import TABLE
from heedmap.sweeps.jobs import Job, truth

if TYPE_CHECKING:
    import pyarrow

FAILURES, ROW = "failed.jsonl", "row.json"
_ROWS_AT_ONCE = 10_000
_LARGEST = 2**24  # bytes of a row


# --- places -----------------------------------------------------------------------------------


def claim(out: str | Path, jobs: Sequence[Job], settings: Mapping[str, Any]) -> Path:
    """Make the folder of a sweep, or raise a RunError unless it holds this sweep; return it."""
    folder = path_of(out)
    file, ids = folder / "sweep.json", hashlib.sha256("".join(job.id for job in jobs).encode())
    data = json.dumps({"jobs": len(jobs), "sha256": ids.hexdigest(), **settings}).encode()
    try:
        if not file.exists():
            names = os.listdir(folder) if folder.is_dir() else [""]
            if not all(name.startswith(f".{file.name}") for name in names):
                check_new(folder)
            replace_file(file, data)
    except TakenError:
        if not file.exists():  # else another process has just made it
            raise
    if read_bytes(file, most=_LARGEST) != data:
        raise RunError(f"{folder} holds another sweep, or other settings: name a new folder")
    return folder


def run_folder(folder: Path, job: Job) -> Path:
    """Return the folder of a job's result; a folder of 256 others holds it."""
    return folder / "runs" / job.id[:2] / job.id


def failure_file(folder: Path, job: Job) -> Path:
    """Return the file that exists while the last attempt of a job has failed."""
    return folder / "failed" / f"{job.id}.json"


def is_done(folder: Path, job: Job) -> bool:
    """Return whether a job has its result."""
    return run_folder(folder, job).exists()


def is_pending(folder: Path, job: Job) -> bool:
    """Return whether a job has neither a result nor a failure."""
    return not (is_done(folder, job) or failure_file(folder, job).exists())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole, in the place of an older one."""
    partial = path.with_name(f".{path.name}.tmp-{secrets.token_hex(4)}")
    put_file(partial, data)
    os.replace(partial, path)


# --- rows -------------------------------------------------------------------------------------


def row_of(
    job: Job, result: Run | EditResult, seconds: float, warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the row of a job as plain JSON types: its settings, its image and its maps.

    An edit's row is that of the edited image; its change is measured against the source.
    """
    if isinstance(result, EditResult):
        run, report, image = result.edited, result.report, "edited/image.png"
    else:
        run, report, image = result, None, "image.png"
    names = ("model", "prompt", "negative", "seed", "steps", "guidance")
    maps, (width, height) = run.maps.without_shared_scale(), run.image.size
    own = run.settings.located.size if run.settings.located else run.image.size
    heats = [(word, maps.at(word.number)) for word in maps.words]
    return {
        "id": job.id,
        "line": job.line,
        "task": job.task,
        **{name: getattr(run.settings, name) for name in names},
        "source": job.arguments.get("source"),
        "width": width,
        "height": height,
        "arguments": json.dumps(job.arguments, sort_keys=True, ensure_ascii=False),
        "image": image,
        "sha256": digest_of(run.image),
        "words": [
            {
                "number": word.number,
                "word": word.text,
                "extremum": heat.extremum,
                "mean": float(heat.values.mean()),
                "peak": heat.peak,
            }
            for word, heat in heats
        ],
        "truths": [
            {"word": word, **overlap(maps, word, truth(where, word, own, run.image.size))}
            for word, where in job.truths.items()
        ],
        "moved": report and report.moved,
        "mse_inside": report and report.change.inside.mse,
        "mse_outside": report and report.change.outside.mse,
        "ssim_outside": report and report.change.outside.ssim,
        "warnings": list(warnings),
        "seconds": round(seconds, 3),
    }


def overlap(maps: HeatMaps, word: str, mask: np.ndarray) -> dict[str, Any]:
    """Compare a word's map with the mask of its truth, bool (H, W).

    `pointing` is True if the map's peak is inside; `iou` is the intersection over union with
    `HeatMap.mask`, and `map_iou` that with the map from the middle of its range on.
    """
    heat = maps[word]
    x, y = heat.peak
    low, high = float(heat.values.min()), float(heat.values.max())
    own = resize_map(heat.values, heat.size) >= low + MASK_THRESHOLD * (high - low)
    return {
        "pointing": bool(mask[y, x]),
        "iou": _iou(heat.mask(), mask),
        "map_iou": _iou(own, mask),
    }


def _iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / max((a | b).sum(), 1))


# --- tables -----------------------------------------------------------------------------------


def write_tables(folder: Path, jobs: Sequence[Job]) -> None:
    """Write `results.parquet` and `failed.jsonl`."""
    from pyarrow import RecordBatch, parquet

    schema, rows = _schema(), _rows(folder, jobs)
    partial = folder / f".{TABLE}.tmp-{secrets.token_hex(4)}"
    with parquet.ParquetWriter(partial, schema) as writer:
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            writer.write_batch(RecordBatch.from_pylist(some, schema))
    os.replace(partial, folder / TABLE)
    files = [failure_file(folder, job) for job in jobs]
    failures = [file.read_bytes() for file in files if file.exists()]
    replace_file(folder / FAILURES, b"".join(failures))


def _rows(folder: Path, jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
    for job in jobs:
        place = run_folder(folder, job)
        if is_done(folder, job):
            row = json.loads(read_bytes(place / ROW, most=_LARGEST))
            name = place.relative_to(folder).as_posix()
            yield {**row, "folder": name, "image": f"{name}/{row['image']}"}


def _schema() -> "pyarrow.Schema":
    import pyarrow as pa

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    word = {
        "number": whole,
        "word": text,
        "extremum": number,
        "mean": number,
        "peak": pa.list_(whole),
    }
    compared = {"word": text, "pointing": pa.bool_(), "iou": number, "map_iou": number}
    columns = {
        **dict.fromkeys(("id", "task", "model", "prompt", "source", "negative"), text),
        **dict.fromkeys(("arguments", "folder", "image", "sha256"), text),
        **dict.fromkeys(("line", "seed", "steps", "width", "height"), whole),
        **dict.fromkeys(("guidance", "moved", "seconds"), number),
        **dict.fromkeys(("mse_inside", "mse_outside", "ssim_outside"), number),
        "words": pa.list_(pa.struct(word.items())),
        "truths": pa.list_(pa.struct(compared.items())),
        "warnings": pa.list_(text),
    }
    return pa.schema(columns.items())
