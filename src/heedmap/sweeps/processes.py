"""A sweep in one process, or in many by Accelerate or by shards.

Processes share the folder of the sweep and nothing else. Each runs its part of the units: a unit is
a job, or the jobs of one batch. Results are written whole. The process that finds no job left
writes the tables.
"""

import json
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from rich.console import Console
from rich.progress import track

from heedmap.backends import loading
from heedmap.checks import check_int
from heedmap.errors import ArgumentError, record_warnings
from heedmap.io.writing import TakenError, put_file, save_parts
from heedmap.options import Device, Dtype, LoadOptions
from heedmap.results.edits import EditResult
from heedmap.results.runs import Run
from heedmap.sweeps import tables
from heedmap.sweeps.jobs import TASKS, Job, in_units, read_jobs


@dataclass(frozen=True)
class SweepResult:
    """The state of a sweep when a process has ended its part.

    Attributes:
        folder: the folder of the sweep.
        done: the number of jobs that have a result.
        failed: the number of jobs that failed; `failed.jsonl` lists them.
        pending: the number of jobs left to other processes. The last one writes the tables.
    """

    folder: Path
    done: int
    failed: int
    pending: int

    @property
    def table(self) -> Path:
        """The file of the table: it is there when no job is pending and one is done."""
        return self.folder / tables.TABLE


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
    show_progress: bool = False,
) -> SweepResult:
    """Run many jobs, and write a table of their results.

        hm.sweep("jobs.jsonl", "outputs/sweep")
        pandas.read_parquet("outputs/sweep/results.parquet")

    All jobs are checked first. A job that has a result is skipped, so a sweep that was interrupted
    continues, and jobs that failed run again. One job that fails ends no other. Under `accelerate
    launch` each process runs its part of the jobs.

    Args:
        jobs: a manifest (.jsonl, .toml), or a list of jobs (`heedmap.sweeps.jobs`).
        out: a new folder, or that of this sweep.
        model: the model of the jobs that name none, as in `load`.
        device: as in `load`.
        dtype: as in `load`.
        batch: the most images of one call; a batch that does not fit the memory is halved, and so
            are later ones. In a batch, images differ by rounding; a sweep that continues draws the
            same batches.
        pages: whether results have pages, sheets and overlays.
        shard: (number, count) runs one of so many parts, from 1, in this process.
        show_progress: whether to show a bar on stderr.

    Raises:
        ArgumentError: if a job or an argument is wrong.
        RunError: if the manifest is missing, or the folder holds something else.
    """
    batch = check_int("batch", batch, least=1, most=10_000)
    # Without `cpu`, it finds no other processes on a machine that has CPUs alone.
    state = PartialState(
        cpu=not torch.accelerator.is_available(), timeout=timedelta(days=365)
    )
    number, count = shard or (state.process_index + 1, state.num_processes)
    check_int("shard", number, least=1, most=count)
    if find_spec("pyarrow") is None:
        raise ArgumentError("pyarrow is not installed: pip install 'heedmap[sweep]'")
    all_jobs = read_jobs(jobs, model=model, dtype=dtype)
    folder = tables.claim(out, all_jobs, batch)
    units = in_units(all_jobs, batch)[number - 1 :: count]
    for unit in units:
        for job in unit:  # those that failed run again
            tables.failure_file(folder, job).unlink(missing_ok=True)
    worker = Worker(folder, device, dtype, pages)
    console = Console(stderr=True)
    for unit in track(units, "Jobs", console=console, disable=not show_progress):
        worker.run(unit)
    # The launcher ends all processes if the first ends with an error.
    state.wait_for_everyone()
    done, failed = map(len, tables.ended(folder))
    pending = len(all_jobs) - done - failed
    if not pending and state.is_main_process:
        tables.write_tables(folder, all_jobs)
    return SweepResult(folder, done, failed, pending)


@dataclass
class Worker:
    """The work of one process, with the model of its last job."""

    folder: Path
    device: Device
    dtype: Dtype
    pages: bool
    _pipes: dict[str | None, Any] = field(default_factory=dict, init=False)
    _largest: float = field(default=inf, init=False)

    def run(self, unit: Sequence[Job]) -> None:
        """Run the jobs of a unit that have no result, in one call of the pipeline.

        All of the unit is generated if one result is missing: the size of a batch changes how a
        processor rounds. If a batch fails, its halves run; a job that fails alone leaves its error
        in a file. After an error of memory, later batches are halved at once.
        """
        if all(tables.run_folder(self.folder, job).exists() for job in unit):
            return
        half = len(unit) // 2
        if len(unit) <= self._largest:
            try:
                return self._run(unit)
            except Exception as error:  # one job ends no sweep
                if isinstance(error, torch.OutOfMemoryError):
                    self._largest = max(1, half)
                if not half:
                    return self._save_failure(unit[0], error)
        self.run(unit[:half])  # the memory of the batch is free: its error is gone
        self.run(unit[half:])

    def _run(self, unit: Sequence[Job]) -> None:
        model = unit[0].model
        if model not in self._pipes:
            self._pipes.clear()  # the memory is free before the next model is loaded
            pipe = loading.load(
                model,
                device=self.device,
                dtype=self.dtype,
            )
            pipe.set_progress_bar_config(disable=True)
            self._pipes[model] = pipe
        with record_warnings() as warnings:
            start = time.perf_counter()
            results = _results(self._pipes[model], unit)
            seconds = (time.perf_counter() - start) / len(unit)
        for job, result in zip(unit, results, strict=True):
            target = tables.run_folder(self.folder, job)
            folder = target.relative_to(self.folder)
            row = tables.row_of(job, result, folder, seconds, warnings)
            row_part = {tables.ROW: json.dumps(row).encode() + b"\n"}
            with suppress(TakenError):  # it is done
                save_parts(target, result.parts(self.pages) | row_part)

    def _save_failure(self, job: Job, error: Exception) -> None:
        failure = {
            **asdict(job),
            "error": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        data = json.dumps(failure).encode() + b"\n"
        put_file(tables.failure_file(self.folder, job), data)


def _results(pipe: Any, unit: Sequence[Job]) -> Sequence[Run | EditResult]:
    """Call the task of a unit once: with a prompt and a seed for each job, if it has several."""
    call = TASKS[unit[0].task]
    arguments = unit[0].arguments
    if len(unit) == 1:
        return [call(pipe, **arguments)]
    lists = {name: [job.arguments[name] for job in unit] for name in ("prompt", "seed")}
    return call(pipe, **{**arguments, **lists})
