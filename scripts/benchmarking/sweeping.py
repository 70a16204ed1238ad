"""What a sweep costs beside its model: time, memory, processes, and processes that are killed."""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from pyarrow import parquet
from rich.console import Console

import heedmap
from benchmarking.replay import PROMPT, Figures, random_pipeline
from heedmap.backends import loading

LAUNCH = ("torch.distributed.run", "--nproc_per_node")


def jobs(count: int, **options: Any) -> list[dict[str, Any]]:
    """Jobs that differ in their seeds."""
    return [{"prompt": PROMPT, "seed": seed, **options} for seed in range(count)]


def manifest(folder: Path, count: int, steps: int) -> Path:
    """The jobs as a file, for processes of their own."""
    path = folder / "jobs.toml"
    path.write_text(f'prompts = ["{PROMPT}"]\nseeds = {list(range(count))}\nsteps = {steps}\n')
    return path


# --- overhead ---------------------------------------------------------------------------------


def overhead(options: argparse.Namespace, folder: Path) -> Figures:
    """The share of a sweep's time in which no part of the model runs, at the given shape."""
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
    some, moments, found = jobs(options.images, steps=options.steps), [], {}

    def progress(done: int, total: int) -> None:
        moments.append((time.perf_counter(), spent[0]))

    for pages in (True, False):
        out = folder / f"pages-{pages}"
        moments.clear()
        heedmap.sweep(some, out, pages=pages, progress=progress)
        total, model = (last - first for first, last in zip(moments[0], moments[-1], strict=True))
        found["with_pages" if pages else "without_pages"] = {
            "overhead": round(1 - model / total, 4),
            "seconds_an_image": round(total / options.images, 2),
            "outside_an_image": round((total - model) / options.images, 2),
            "bytes_an_image": _bytes(out) // options.images,
        }
    return found


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- memory -----------------------------------------------------------------------------------


def memory(options: argparse.Namespace, folder: Path) -> Figures:
    """Resident memory of a process, in MB, after 50 jobs of the embedded model and after all."""
    process, found = psutil.Process(), {}

    def progress(done: int, total: int) -> None:
        found[done] = process.memory_info().rss / 1e6

    heedmap.sweep(jobs(options.jobs, steps=options.steps), folder / "out", progress=progress)
    first = min(done for done in found if done >= min(50, options.jobs // 2))
    size = _bytes(folder / "out") // options.jobs
    return {
        "mb": {str(done): round(found[done], 1) for done in (first, options.jobs)},
        "ratio": round(found[options.jobs] / found[first], 4),
        "bytes_an_image": size,
        "files_an_image": sum(p.is_file() for p in (folder / "out").rglob("*")) / options.jobs,
    }


# --- processes --------------------------------------------------------------------------------


def _start(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-m", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _sweep(path: Path, out: Path, *launch: object) -> subprocess.Popen[bytes]:
    return _start(*launch, "heedmap", "sweep", path, "--out", out, "--no-page", "--quiet")


def processes(options: argparse.Namespace, folder: Path) -> Figures:
    """Jobs a second, between the first and the last result, of one and of two processes in turn."""
    path, rates = manifest(folder, options.jobs, options.steps), {"1": [], "2": []}
    for count in list(rates) * options.rounds:
        out = folder / f"out-{count}"
        if _sweep(path, out, *LAUNCH, count, "-m").wait():
            raise SystemExit("a sweep failed")
        moments = sorted(one.stat().st_mtime for one in out.glob("runs/*/*"))
        rates[count].append(round((len(moments) - 1) / (moments[-1] - moments[0]), 3))
        shutil.rmtree(out)
    return {"jobs_a_second": rates}


def kills(options: argparse.Namespace, folder: Path) -> Figures:
    """Sweeps of which a process is killed at a random moment, then started again if need be."""
    path, chance = manifest(folder, options.jobs, options.steps), random.Random(0)
    heedmap.sweep(path, folder / "undisturbed", pages=False)
    expected, found = _rows(folder / "undisturbed"), {}
    for name in ("accelerate", "ray"):
        launch = (*LAUNCH, 2, "-m") if name == "accelerate" else ()
        flags = () if launch else ("--ray", "--workers", 2)
        equal = again = 0
        for number in range(options.kills):
            out = folder / f"{name}-{number}"
            command = (*launch, "heedmap", "sweep", path, "--out", out, "--no-page", *flags)
            running, wanted = _start(*command), chance.randrange(options.jobs - 1)
            while len(list(out.glob("runs/*/*"))) <= wanted and running.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random())
            children = psutil.Process(running.pid).children(recursive=True)
            workers = [one for one in children if launch or "MapWorker" in str(one.cmdline())]
            if workers:
                chance.choice(workers).kill()
            while running.wait():
                again, running = again + 1, _start(*command)
            equal += _rows(out) == expected
            shutil.rmtree(out)
        found[name] = {"kills": options.kills, "equal": equal, "started_again": again}
    return found


def _rows(folder: Path) -> list[dict[str, Any]]:
    """The table, of which `sha256` has the pixels of each image."""
    table = parquet.read_table(folder / "results.parquet")
    return table.drop_columns(["seconds"]).to_pylist()


# --- all --------------------------------------------------------------------------------------

STAGES = {"overhead": overhead, "memory": memory, "processes": processes, "kills": kills}


def sweeping(options: argparse.Namespace) -> None:
    """The sub-command `sweep`: prints the figures of the stages as JSON."""
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    setting = {"threads": options.threads, "torch": torch.__version__}
    for name in options.stage or STAGES:
        with tempfile.TemporaryDirectory() as folder:
            figures = STAGES[name](options, Path(folder))
        Console().print_json(data={"stage": name, **figures, **setting})
