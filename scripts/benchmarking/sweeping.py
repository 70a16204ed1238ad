"""What a sweep costs beside its model: time, memory, processes, and processes that are killed."""

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from pyarrow import parquet
from rich.console import Console

import heedmap
from benchmarking.replay import PROMPT, Figures, random_pipeline
from heedmap.backends import loading
from heedmap.sweeps.processes import Worker

LAUNCH = ("torch.distributed.run", "--nproc_per_node")
FEW = (2, 6)  # steps, of which those of a whole run are extrapolated


def jobs(count: int, steps: int) -> list[dict[str, Any]]:
    """Jobs that differ in their seeds."""
    return [{"prompt": PROMPT, "seed": seed, "steps": steps} for seed in range(count)]


def manifest(folder: Path, count: int, steps: int) -> Path:
    """The jobs as a file, for processes of their own."""
    path = folder / "jobs.toml"
    path.write_text(f'prompts = ["{PROMPT}"]\nseeds = {list(range(count))}\nsteps = {steps}\n')
    return path


# --- overhead ---------------------------------------------------------------------------------


def overhead(options: argparse.Namespace, folder: Path) -> Figures:
    """The share of a sweep's time in which no part of the model runs, at the given shape.

    Jobs of 2 and of 6 steps are measured, after one of each that is not, and a job of all steps is
    extrapolated: its time outside of the model and that inside grow with the steps.
    """
    pipe, spent = random_pipeline(options), [0.0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[0] += time.perf_counter() - start

        return call

    for part, name in (
        (pipe.unet, "forward"),
        (pipe.text_encoder, "forward"),
        (pipe.vae, "decode"),
    ):
        setattr(part, name, timed(getattr(part, name)))
    loading.load = loading.outline = lambda *_, **__: pipe
    moments, found = [], {}

    def line(first: float, second: float) -> float:
        """The value at all steps, of the values at few."""
        return first + (second - first) * (options.steps - FEW[0]) / (FEW[1] - FEW[0])

    for pages in (True, False):
        times, out = [], folder / f"pages-{pages}"
        for steps in FEW:
            one = jobs(options.jobs + 1, steps)
            shutil.rmtree(out, ignore_errors=True)
            moments.clear()
            with _after_jobs(lambda: moments.append((time.perf_counter(), spent[0]))):
                heedmap.sweep(one, out, pages=pages)
            total, model = (b - a for a, b in zip(moments[0], moments[-1], strict=True))
            times.append(((total - model) / options.jobs, model / options.jobs))
        outside, model = (line(*pair) for pair in zip(*times, strict=True))
        found["with_pages" if pages else "without_pages"] = {
            "measured": {
                n: [round(one, 3) for one in pair] for n, pair in zip(FEW, times, strict=True)
            },
            "outside_seconds": round(outside, 2),
            "model_seconds": round(model, 1),
            "overhead": round(outside / (outside + model), 4),
            "bytes_an_image": _bytes(out) // (options.jobs + 1),
            "files_an_image": _files(out) / (options.jobs + 1),
        }
    return {"extrapolated_to_steps": options.steps, **found}


@contextmanager
def _after_jobs(act: Callable[[], object]) -> Iterator[None]:
    """Call a function after each job of a sweep, in the block."""
    run = Worker.run

    def record(self: Worker, unit: Any) -> None:
        run(self, unit)
        act()

    Worker.run = record
    try:
        yield
    finally:
        Worker.run = run


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.glob("runs/**/*"))


# --- memory -----------------------------------------------------------------------------------


def memory(options: argparse.Namespace, folder: Path) -> Figures:
    """Resident memory of a process, in MB, after 50 jobs of the embedded model and after all."""
    process, found = psutil.Process(), []
    some = jobs(options.jobs, options.steps)
    with _after_jobs(lambda: found.append(process.memory_info().rss / 1e6)):
        heedmap.sweep(some, folder / "out", pages=False)
    first = max(1, min(50, options.jobs // 2))
    return {
        "mb": {str(done): round(found[done - 1], 1) for done in (first, options.jobs)},
        "ratio": round(found[-1] / found[first - 1], 4),
    }


# --- processes --------------------------------------------------------------------------------


def _start(path: Path, out: Path, *flags: object, launch: tuple[object, ...] = ()) -> Any:
    command = ("-m", *launch, "heedmap", "sweep", path, "--out", out, "--no-page", "--quiet")
    words = [sys.executable, "-W", "ignore", *map(str, (*command, *flags))]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def processes(options: argparse.Namespace, folder: Path) -> Figures:
    """Jobs a second, between the first and the last result, of one and of two processes in turn."""
    path, rates = manifest(folder, options.jobs, options.steps), {"1": [], "2": []}
    for count in list(rates) * options.rounds:
        out = folder / f"out-{count}"
        if _start(path, out, launch=(*LAUNCH, count, "-m")).wait():
            raise SystemExit("a sweep failed")
        moments = sorted(one.stat().st_mtime for one in out.glob("runs/*/*"))
        rates[count].append(round((len(moments) - 1) / (moments[-1] - moments[0]), 3))
        shutil.rmtree(out)
    return {"jobs_a_second": rates}


def kills(options: argparse.Namespace, folder: Path) -> Figures:
    """Sweeps under Accelerate of which a process is killed, then started again if need be.

    The moment is random, between the start of the process and the end of an undisturbed sweep.
    """
    path, chance = manifest(folder, options.jobs, options.steps), random.Random(0)
    heedmap.sweep(path, folder / "undisturbed", pages=False)
    expected, longest = _content(folder / "undisturbed"), 0.0
    launch: Any = (*LAUNCH, 2, "-m")
    count = {"sweeps": options.kills, "killed": 0, "started_again": 0, "equal": 0}
    for number in range(-1, options.kills):  # the first is not killed
        out = folder / f"killed-{number}"
        running = _start(path, out, launch=launch)
        while not (victims := _workers(running.pid)) and running.poll() is None:
            time.sleep(0.05)
        start = time.monotonic()
        if number >= 0:
            time.sleep(chance.uniform(0, longest))
            victims = [one for one in _workers(running.pid) or victims if one.is_running()]
            if victims and running.poll() is None:
                chance.choice(victims).kill()
                count["killed"] += 1
        while running.wait():
            count["started_again"] += 1
            running = _start(path, out, launch=launch)
        longest = time.monotonic() - start if number < 0 else longest
        count["equal"] += number >= 0 and _content(out) == expected
        Console(stderr=True).print(number + 1, count)
        shutil.rmtree(out)
    return {**count, "seconds_undisturbed": round(longest, 1)}


def _workers(pid: int) -> list[psutil.Process]:
    """The processes that run jobs."""
    try:
        every = psutil.Process(pid).children(recursive=True)
        return [one for one in every if "heedmap" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def _content(folder: Path) -> dict[str, Any]:
    """The table, of which `sha256` has the pixels of each image, and the digests of all maps."""
    table = parquet.read_table(folder / "results.parquet")
    maps = [(path.parent.name, path.read_bytes()) for path in folder.rglob("*.safetensors")]
    return {
        "rows": table.drop_columns(["seconds"]).to_pylist(),
        "maps": sorted((key, hashlib.sha256(data).hexdigest()) for key, data in maps),
    }


# --- all --------------------------------------------------------------------------------------

STAGES = {"overhead": overhead, "memory": memory, "processes": processes, "kills": kills}
JOBS = {"overhead": 1, "memory": 1000, "processes": 60, "kills": 30}
STEPS = {"overhead": 25, "memory": 1, "processes": 10, "kills": 2}


def sweeping(options: argparse.Namespace) -> None:
    """The sub-command `sweep`: prints the figures of the stages as JSON."""
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for name in options.stages or STAGES:
        own = {"jobs": options.jobs or JOBS[name], "steps": options.steps or STEPS[name]}
        setting = {**own, "threads": options.threads, "torch": torch.__version__}
        with tempfile.TemporaryDirectory() as folder:
            figures = STAGES[name](argparse.Namespace(**{**vars(options), **own}), Path(folder))
        Console().print_json(data={"stage": name, **setting, **figures})
