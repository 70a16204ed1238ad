"""The work of one process: it runs jobs and writes their results, each whole."""

import json
import shutil
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from heedmap.backends import loading
from heedmap.errors import HeedmapError, reason, record_warnings
from heedmap.io.writing import TakenError, whole_folder
from heedmap.options import Device, Dtype
from heedmap.pipelines.arguments import resolve_options
from heedmap.pipelines.generation import generate_batch
from heedmap.results.edits import EditResult
from heedmap.results.runs import Run
from heedmap.sweeps import tables
from heedmap.sweeps.jobs import TASKS, Job, call_of


@dataclass
class Worker:
    """A process that runs the jobs of a sweep, with the model of the last one."""

    folder: Path
    device: Device
    dtype: Dtype
    pages: bool
    _model: tuple[str | None, Any] | None = field(default=None, init=False)

    def run(self, unit: Sequence[Job]) -> None:
        """Run the jobs of a unit that have no result, in one call of the pipeline.

        All of the unit is generated if one result is missing: the size of a batch changes how a
        processor rounds. If the batch fails, its jobs run one by one; a job that fails alone
        leaves its error in a file.
        """
        missing = [job for job in unit if not tables.is_done(self.folder, job)]
        if not missing:
            return
        try:
            pipe = self._pipeline(unit[0].model)
            with record_warnings() as warnings:
                start = perf_counter()
                results = _results(pipe, unit)
                seconds = (perf_counter() - start) / len(unit)
            for job, result in zip(unit, results, strict=True):
                if job in missing:
                    self._save(job, result, tables.row_of(job, result, seconds, warnings))
        except Exception as error:  # one job ends no sweep
            if len(unit) > 1:
                for job in unit:
                    self.run([job])
            elif not tables.is_done(self.folder, unit[0]):  # else another process has done it
                self._save_failure(unit[0], error)

    def _pipeline(self, model: str | None) -> Any:
        if self._model is None or self._model[0] != model:
            self._model = None  # the memory is free before the next model is loaded
            pipe = loading.load(model, device=self.device, dtype=self.dtype)
            pipe.set_progress_bar_config(disable=True)
            self._model = model, pipe
        return self._model[1]

    def _save(self, job: Job, result: Run | EditResult, row: dict[str, Any]) -> None:
        target = tables.run_folder(self.folder, job)
        for partial in target.parent.glob(f".{target.name}.tmp-*"):  # of a process that was killed
            shutil.rmtree(partial, ignore_errors=True)
        with suppress(TakenError), whole_folder(target) as partial:
            result.write_files(partial, overlays=self.pages)
            (partial / tables.ROW).write_text(json.dumps(row), encoding="utf-8")
        tables.failure_file(self.folder, job).unlink(missing_ok=True)

    def _save_failure(self, job: Job, error: Exception) -> None:
        known = isinstance(error, HeedmapError)
        failure = {
            **asdict(job),
            "error": type(error).__name__,
            "message": str(error) if known else reason(error),
            "traceback": None if known else traceback.format_exc(),
        }
        data = json.dumps(failure).encode() + b"\n"
        tables.replace_file(tables.failure_file(self.folder, job), data)


def _results(pipe: Any, unit: Sequence[Job]) -> Sequence[Run | EditResult]:
    first = unit[0]
    if first.task != "generate":
        return [TASKS[first.task](pipe, **first.arguments)]
    options, _ = resolve_options(call_of(first.task, pipe, first.arguments))
    prompts, seeds = ([job.arguments[name] for job in unit] for name in ("prompt", "seed"))
    return generate_batch(pipe, prompts, seeds, options)[0]
