"""The files of a sweep: the row of each job, and the table and the failures of all of them.

    sweep.json                    which sweep the folder holds
    runs/<ab>/<abcdef…>/          a job's result, as its task saves it, with `row.json`
    failed/<abcdef…>.json         a job that failed at its last attempt
    shards/00000001.tar           the maps of results, if they are packed
    results.parquet, failed.jsonl the rows of all jobs, and those that failed

The two tables are made of the other files when no job is left, so any process can die before.
"""

import hashlib
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from heedmap.errors import RunError
from heedmap.figures.overlays import resize_map
from heedmap.io.reading import path_of
from heedmap.io.writing import TakenError, digest_of, whole_folder
from heedmap.maps.heatmaps import HeatMap
from heedmap.options import MASK_THRESHOLD
from heedmap.results.edits import EditResult
from heedmap.results.runs import Run
from heedmap.sweeps import TABLE
from heedmap.sweeps.jobs import Job, truth
from heedmap.text.words import Word

FAILURES = "failed.jsonl"
ROW = "row.json"
SHARDS = "shards"
JOBS_A_SHARD = 100


def claim(out: str | Path, jobs: Sequence[Job], settings: Mapping[str, Any]) -> Path:
    """Make the folder of a sweep, or raise a RunError unless it holds this sweep; return it."""
    folder = path_of(out)
    file = folder / "sweep.json"
    ids = hashlib.sha256("".join(job.id for job in jobs).encode())
    data = json.dumps(
        {"jobs": len(jobs), "sha256": ids.hexdigest(), **settings}
    ).encode()
    try:
        with whole_folder(folder) as partial:
            (partial / file.name).write_bytes(data)
    except TakenError:
        if not file.exists():  # else this or another process has made it
            raise
    if file.read_bytes() != data:
        raise RunError(
            f"{folder} holds another sweep, or other settings: name a new folder"
        )
    return folder


def run_folder(folder: Path, job: Job) -> Path:
    """Return the folder of a job's result; a folder of 256 others holds it."""
    return folder / "runs" / job.id[:2] / job.id


def failure_file(folder: Path, job: Job) -> Path:
    """Return the file that exists while the last attempt of a job has failed."""
    return folder / "failed" / f"{job.id}.json"


def ended(folder: Path) -> tuple[set[str], set[str]]:
    """Return the ids of the jobs that have a result, and of those that failed."""
    done = {path.name for path in folder.glob("runs/*/[!.]*")}
    return done, {path.stem for path in folder.glob("failed/[!.]*")} - done


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Let the block write a temporary file, then rename it to `path`, in place of an older one."""
    partial = path.with_name(f".{path.name}.tmp-{secrets.token_hex(4)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    yield partial
    os.replace(partial, path)


def _word_row(word: Word, heat: HeatMap) -> dict[str, Any]:
    return {
        "number": word.number,
        "word": word.text,
        "extremum": heat.extremum,
        "mean": float(heat.values.mean()),
        "peak": heat.peak,
    }


def row_of(
    job: Job, result: Run | EditResult, seconds: float, warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the row of a job as plain JSON types: its settings, its image and its maps.

    An edit's row is that of the edited image; its change is measured against the source.
    """
    if isinstance(result, EditResult):
        run = result.edited
        report = result.report
        image = "edited/image.png"
    else:
        run = result
        report = None
        image = "image.png"
    names = ("model", "prompt", "negative", "seed", "steps", "guidance")
    maps = run.maps.without_shared_scale()
    size = run.image.size
    own = run.settings.located.size if run.settings.located else size
    return {
        **{name: getattr(job, name) for name in ("id", "line", "task")},
        **{name: getattr(run.settings, name) for name in names},
        "source": job.arguments.get("source"),
        "width": size[0],
        "height": size[1],
        "arguments": json.dumps(job.arguments, sort_keys=True, ensure_ascii=False),
        "image": image,
        "sha256": digest_of(run.image),
        "words": [_word_row(word, maps.at(word.number)) for word in maps.words],
        "truths": [
            {"word": word, **_overlap(maps[word], truth(where, word, own, size))}
            for word, where in job.truths.items()
        ],
        "moved": report and report.moved,
        "mse_inside": report and report.change.inside.mse,
        "mse_outside": report and report.change.outside.mse,
        "ssim_outside": report and report.change.outside.ssim,
        "warnings": list(warnings),
        "seconds": round(seconds, 3),
    }


def _overlap(heat: HeatMap, mask: np.ndarray) -> dict[str, Any]:
    """Compare a word's mask, and its map from the middle of its range on, with bool (H, W)."""
    x, y = heat.peak
    low = float(heat.values.min())
    high = float(heat.values.max())
    upper = resize_map(heat.values, heat.size) >= low + MASK_THRESHOLD * (high - low)
    iou, map_iou = (
        float((one & mask).sum() / max((one | mask).sum(), 1))
        for one in (heat.mask(), upper)
    )
    return {"pointing": bool(mask[y, x]), "iou": iou, "map_iou": map_iou}


def pack(folder: Path, jobs: Sequence[Job]) -> None:
    """Move the maps of results into a tar file, their shard.

    A result is a sample of WebDataset: `<id>.maps.safetensors` (of an edit
    `<id>.edited.maps.safetensors` and so on), and its row, `<id>.json`. Maps are deleted when the
    shard is complete. A result that the shard already has is not added again.
    """
    shard = folder / SHARDS / f"{jobs[0].line:08}.tar"
    maps = {
        job.id: sorted(run_folder(folder, job).rglob("*.safetensors")) for job in jobs
    }
    if not any(maps.values()):
        return
    # Of a process that was killed.
    for partial in shard.parent.glob(f".{shard.name}.tmp-*"):
        partial.unlink()
    with whole_file(shard) as partial:
        if shard.exists():
            shutil.copyfile(shard, partial)
        with tarfile.open(partial, "a") as tar:
            packed = _keys(tar)
            for job in jobs:
                if maps[job.id] and job.id not in packed:
                    place = run_folder(folder, job)
                    for path in maps[job.id]:
                        tar.add(
                            path, ".".join([job.id, *path.relative_to(place).parts])
                        )
                    tar.add(place / ROW, f"{job.id}.json")
    for path in chain(*maps.values()):
        path.unlink()


def _keys(shard: tarfile.TarFile) -> set[str]:
    return {name.partition(".")[0] for name in shard.getnames()}


def write_tables(folder: Path, jobs: Sequence[Job]) -> None:
    """Write `results.parquet` and `failed.jsonl`."""
    from pyarrow import RecordBatch, parquet

    done, failed = ended(folder)
    rows = _rows(folder, [job for job in jobs if job.id in done])
    with (
        whole_file(folder / TABLE) as partial,
        parquet.ParquetWriter(partial, schema()) as writer,
    ):
        while some := list(islice(rows, 10_000)):
            writer.write_batch(RecordBatch.from_pylist(some, schema()))
    failures = [
        failure_file(folder, job).read_bytes() for job in jobs if job.id in failed
    ]
    with whole_file(folder / FAILURES) as partial:
        partial.write_bytes(b"".join(failures))


def _rows(folder: Path, jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
    shards: dict[str, str] = {}
    for path in folder.glob(f"{SHARDS}/[!.]*"):
        with tarfile.open(path) as shard:
            shards |= dict.fromkeys(_keys(shard), f"{SHARDS}/{path.name}")
    for job in jobs:
        place = run_folder(folder, job)
        row = json.loads((place / ROW).read_bytes())
        name = place.relative_to(folder)
        row |= {"folder": name.as_posix(), "image": (name / row["image"]).as_posix()}
        yield {**row, "shard": shards.get(job.id)}


def schema() -> Any:
    """Return the pyarrow schema of the table: the types of an example."""
    from pyarrow import Table

    example = {
        **dict.fromkeys(("id", "task", "model", "prompt", "source", "negative"), ""),
        **dict.fromkeys(("arguments", "folder", "image", "shard", "sha256"), ""),
        **dict.fromkeys(("line", "seed", "steps", "width", "height"), 0),
        **dict.fromkeys(("guidance", "moved", "seconds"), 0.0),
        **dict.fromkeys(("mse_inside", "mse_outside", "ssim_outside"), 0.0),
        "words": [{"number": 0, "word": "", "extremum": 0.0, "mean": 0.0, "peak": [0]}],
        "truths": [{"word": "", "pointing": False, "iou": 0.0, "map_iou": 0.0}],
        "warnings": [""],
    }
    return Table.from_pylist([example]).schema
