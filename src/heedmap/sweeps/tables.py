"""The files of a sweep: the row of each job, and the table and the failures of all of them.

    sweep.json                    which sweep the folder holds
    runs/<ab>/<abcdef…>/          a job's result, as its task saves it, with `row.json`
    failed/<abcdef…>.json         a job that failed at its last attempt
    results.parquet, failed.jsonl the rows of all jobs, and those that failed

The two tables are made of the other files when no job is left, so any process can die before.
"""

import hashlib
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from heedmap.errors import RunError
from heedmap.io.reading import path_of
from heedmap.io.writing import TakenError, digest_of, put_file, save_parts
from heedmap.maps.heatmaps import HeatMap
from heedmap.results.edits import EditResult
from heedmap.results.runs import Run
from heedmap.sweeps.jobs import Job
from heedmap.text.words import Word

TABLE = "results.parquet"
ROW = "row.json"
_SETTINGS = (
    "model",
    "prompt",
    "negative",
    "seed",
    "steps",
    "guidance",
)


def claim(out: str | Path, jobs: Sequence[Job], batch: int) -> Path:
    """Make the folder of a sweep, or raise a RunError unless it holds this sweep; return it."""
    folder = path_of(out)
    file = folder / "sweep.json"
    ids = hashlib.sha256("".join(job.id for job in jobs).encode())
    data = json.dumps({"sha256": ids.hexdigest(), "batch": batch}).encode()
    try:
        save_parts(folder, {file.name: data})
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


def row_of(
    job: Job,
    result: Run | EditResult,
    folder: Path,
    seconds: float,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Return the row of a job as plain JSON types: its settings, its image and its maps.

    An edit's row is that of the edited image; its change is measured against the source. `folder`
    is that of the result, within the sweep's.
    """
    changes: dict[str, Any] = {}
    image = folder / "image.png"
    if isinstance(result, EditResult):
        run = result.edited
        image = folder / "edited" / "image.png"
        change = result.report.change
        changes = {
            "moved": result.report.moved,
            "mse_inside": change.inside.mse,
            "mse_outside": change.outside.mse,
            "ssim_outside": change.outside.ssim,
        }
    else:
        run = result
    settings = run.settings
    maps = run.maps
    size = run.image.size
    return {
        **{name: getattr(job, name) for name in ("id", "line", "task")},
        **{name: getattr(settings, name) for name in _SETTINGS},
        "source": job.arguments.get("source"),
        "width": size[0],
        "height": size[1],
        "arguments": json.dumps(job.arguments, sort_keys=True),
        "folder": folder.as_posix(),
        "image": image.as_posix(),
        "sha256": digest_of(run.image),
        "words": [_word_row(word, maps.at(word.number)) for word in maps.words],
        **changes,
        "warnings": list(warnings),
        "seconds": round(seconds, 3),
    }


def _word_row(word: Word, heat: HeatMap) -> dict[str, Any]:
    return {
        "number": word.number,
        "word": word.text,
        "extremum": heat.extremum,
        "mean": float(heat.values.mean()),
        "peak": heat.peak,
    }


def write_tables(folder: Path, jobs: Sequence[Job]) -> None:
    """Write `results.parquet` and `failed.jsonl`."""
    from pyarrow import json as arrow_json, parquet

    done, failed = ended(folder)
    rows = [run_folder(folder, job) / ROW for job in jobs if job.id in done]
    failures = [failure_file(folder, job) for job in jobs if job.id in failed]
    if rows:
        lines = BytesIO(b"".join(row.read_bytes() for row in rows))
        table = BytesIO()
        parquet.write_table(arrow_json.read_json(lines), table)
        put_file(folder / TABLE, table.getvalue())
    failed_lines = b"".join(failure.read_bytes() for failure in failures)
    put_file(folder / "failed.jsonl", failed_lines)
