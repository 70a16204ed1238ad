"""A sweep in one process, or in many by Accelerate, by shards or by Ray.

Processes share the folder of the sweep and nothing else. Each runs its part of the units; a unit
is a job, or the jobs of one batch. The one that finds no job left writes the tables.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from heedmap.checks import check_bool, check_int
from heedmap.errors import ArgumentError
from heedmap.options import Device, Dtype, LoadOptions
from heedmap.sweeps import TABLE, tables
from heedmap.sweeps.jobs import Job, in_units, read_jobs
from heedmap.sweeps.workers import Worker

_LONGEST = timedelta(days=365)  # that one process waits for another
_MOST_BLOCKS = 10_000  # into which Ray divides the units


@dataclass(frozen=True)
class SweepResult:
    """The state of a sweep when a process has ended its part.

    Attributes:
        folder: the folder of the sweep.
        done: the number of jobs that have a result.
        failed: the number of jobs that failed; `failed.jsonl` lists them.
        pending: the number of jobs that other processes have yet to run. The tables are written
            when there are none.
    """

    folder: Path
    done: int
    failed: int
    pending: int

    @property
    def table(self) -> Path:
        """The file of the table; it is there when no job is pending."""
        return self.folder / TABLE


def sweep(
    jobs: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    model: str | Path | None = None,
    device: Device = LoadOptions.device,
    dtype: Dtype = LoadOptions.dtype,
    batch: int = 1,
    pages: bool = True,
    shard: tuple[int, int] | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Run many jobs, and write a table of their results.

        hm.sweep("jobs.jsonl", "outputs/sweep")
        pandas.read_parquet("outputs/sweep/results.parquet")

    All jobs are checked first. A job that has a result is skipped, so a sweep that was interrupted
    continues, and jobs that failed run again. One job that fails ends no other. Under `accelerate
    launch` each process runs its part of the jobs.

    Args:
        jobs: a manifest (.jsonl, .csv, .toml), or a list of jobs (`heedmap.sweeps.jobs`).
        out: a new folder, or that of this sweep.
        model: the model of the jobs that name none, as in `load`.
        device: as in `load`.
        dtype: as in `load`.
        batch: the most images of one call. In a batch, images differ from those of single calls by
            rounding; a sweep that continues still draws the same batches.
        pages: whether results have pages, sheets and overlays.
        shard: (number, count) runs one of so many parts, from 1, in this process.
        ray: the address of a Ray cluster, or "local": runs the jobs in a pool of Ray's actors.
        workers: the number of these actors. Default: one for each GPU, or one.
        progress: called with the numbers of the jobs that have ended and of all jobs.

    Raises:
        ArgumentError: if a job or an argument is wrong.
        RunError: if the manifest is missing, or the folder holds something else.
    """
    batch = check_int("batch", batch, least=1, most=10_000)
    pages = check_bool("pages", pages)
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ArgumentError("the table needs pyarrow: pip install 'heedmap[sweep]'") from error
    if ray is not None and shard is not None:
        raise ArgumentError("ray and shard are both set: Ray divides the jobs itself; set one")
    if workers is not None and ray is None:
        raise ArgumentError("workers is the number of Ray's actors: set ray, too")
    check_int("workers", 1 if workers is None else workers, least=1)
    state, (number, count) = None, (1, 1) if shard is None else shard
    check_int("shard", number, least=1, most=check_int("the number of shards", count))
    if shard is None and ray is None:
        from accelerate import PartialState
        from torch import accelerator

        # Without `cpu`, it finds no other processes on a machine that has CPUs alone.
        state = PartialState(cpu=not accelerator.is_available(), timeout=_LONGEST)
        number, count = state.process_index + 1, state.num_processes
    every = read_jobs(jobs, model=model, dtype=dtype)
    folder = tables.claim(out, every, {"batch": batch})
    units = in_units(every, batch)[number - 1 :: count]
    _forget_failures(folder, units)
    todo = [unit for unit in units if not all(tables.is_done(folder, job) for job in unit)]
    report = _counting(folder, every, progress if number == 1 or shard else None)
    arguments = folder.resolve(), device, dtype, pages
    report()
    if ray is None:
        worker = Worker(*arguments)
        for unit in todo:
            worker.run(unit)
            report()
    elif todo:
        for _ in _by_ray(todo, arguments, ray, workers):
            report()
    if state is not None:  # the launcher ends all processes if the first ends with an error
        state.wait_for_everyone()
    pending = sum(tables.is_pending(folder, job) for job in every)
    done = sum(tables.is_done(folder, job) for job in every)
    if not pending and (number == 1 or shard is not None):
        tables.write_tables(folder, every)
    return SweepResult(folder, done, len(every) - done - pending, pending)


def _forget_failures(folder: Path, units: Iterable[Sequence[Job]]) -> None:
    """Delete the failures of jobs that run again."""
    failed = {one.stem for one in (folder / "failed").glob("*.json")}
    for job in (job for unit in units for job in unit if job.id in failed):
        tables.failure_file(folder, job).unlink(missing_ok=True)


def _counting(
    folder: Path, jobs: Sequence[Job], progress: Callable[[int, int], None] | None
) -> Callable[[], None]:
    """Return the function that counts the jobs of all processes, and reports the number.

    It looks at the files of jobs that had not ended before, for at most a twentieth of the time.
    """
    pending, earliest = list(jobs), 0.0

    def report() -> None:
        nonlocal pending, earliest
        start = time.monotonic()
        if progress is None or start < earliest:
            return
        pending = [job for job in pending if tables.is_pending(folder, job)]
        progress(len(jobs) - len(pending), len(jobs))
        end = time.monotonic()
        earliest = end + 20 * (end - start)

    return report


# --- Ray --------------------------------------------------------------------------------------


def _by_ray(
    units: Sequence[Sequence[Job]], arguments: tuple[Any, ...], address: str, workers: int | None
) -> Iterator[Any]:
    """Run units in a pool of Ray's actors, and yield something after each.

    Ray starts an actor that has died again, and runs its unit again.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ArgumentError("Ray is not installed: pip install 'heedmap[ray]'") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(None if address == "local" else address, ignore_reinit_error=True, **quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    gpus = ray.cluster_resources().get("GPU", 0)
    pool = workers or int(gpus) or 1
    actor: Any = _Actor  # the type of `map` is that of functions
    rows = [{"unit": json.dumps([asdict(job) for job in unit])} for unit in units]
    yield from (
        ray.data.from_items(rows, override_num_blocks=min(len(units), _MOST_BLOCKS))
        .map(
            actor,
            fn_constructor_args=arguments,
            compute=ray.data.ActorPoolStrategy(size=pool),
            num_gpus=min(1, gpus / pool),
        )
        .iter_rows()
    )


class _Actor:
    """A worker in a process of Ray's."""

    def __init__(self, *arguments: Any) -> None:
        self._worker = Worker(*arguments)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self._worker.run([Job(**job) for job in json.loads(row["unit"])])
        return row
