"""Sweeps in several processes, and processes that are killed: the embedded model, real commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import heedmap as hm
from sweeps.test_sweeps import same_sweeps

SWEEP = ("heedmap", "sweep", "jobs.jsonl", "--no-page", "--out", "out")
RECORD = """
import json, os
import heedmap
from heedmap.sweeps.processes import Worker

lines, run = [], Worker.run
Worker.run = lambda self, unit: (lines.extend(job.line for job in unit), run(self, unit))
heedmap.sweep("jobs.jsonl", "out", pages=False)
with open(f"rank-{os.environ['RANK']}.json", "w") as file:
    json.dump(lines, file)
"""
# The launcher that `accelerate launch` starts on GPUs; on CPUs that needs MPI.
LAUNCH = ("torch.distributed.run", "--nproc_per_node", 2, "-m")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    """A manifest of six jobs, of which one fails, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("sweep")
    prompts = ("a red house", "a cat", "a blue tree", "a dog", "a green car")
    rows: list[dict] = [{"prompt": prompt, "seed": 1, "steps": 3} for prompt in prompts]
    rows.append({**rows[0], "eta": "much"})
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hm.sweep(folder / "jobs.jsonl", folder / "undisturbed", pages=False)
    return folder


@pytest.fixture
def jobs(desk: Path, sweep: Path, monkeypatch) -> Path:
    """The manifest, in a folder of the test's own."""
    monkeypatch.setenv("HOME", str(desk))  # Ray writes there
    shutil.copytree(sweep, desk, dirs_exist_ok=True)
    return desk / "jobs.jsonl"


def start(*command: object) -> subprocess.Popen[bytes]:
    with Path("log").open("ab") as log:
        words = [sys.executable, "-m", *map(str, command)]
        return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(timeout=300)
    finally:
        print(Path("log").read_text(errors="replace")[-3000:])  # for a failure's report


def kill_after(process: subprocess.Popen[bytes], count: int, kill: Callable[[], None]) -> None:
    """Kill when so many results are there."""
    while len(list(Path("out").glob("runs/*/*"))) < count:
        assert process.poll() is None, Path("log").read_text()[-3000:]
        time.sleep(0.01)
    kill()


def test_a_killed_sweep_continues(jobs):
    process = start(*SWEEP)
    kill_after(process, 2, process.kill)
    assert process.wait() == -signal.SIGKILL
    assert 2 <= len(list(Path("out").glob("runs/*/*"))) < 5
    assert hm.sweep(jobs, "out", pages=False).done == 5
    same_sweeps("undisturbed")


@pytest.mark.slow
def test_processes_of_accelerate_make_one_sweep(jobs):
    """One is killed, and a job fails, which ends no other process."""
    process = start(*LAUNCH, *SWEEP)

    def kill() -> None:
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        os.kill(workers[1].pid, signal.SIGKILL)

    kill_after(process, 1, kill)
    assert ended(process) != 0 and not Path("out/results.parquet").exists()
    Path("record.py").write_text(RECORD)
    assert ended(start(*LAUNCH[:-1], "record.py")) == 0
    same_sweeps("undisturbed")
    lines = [json.loads(path.read_text()) for path in Path().glob("rank-*.json")]
    assert len(lines) == 2 and not set(lines[0]) & set(lines[1])  # each has run its own part


@pytest.mark.slow
def test_ray_runs_the_job_of_a_killed_worker_again(jobs):
    process = start(*SWEEP, "--ray", "--workers", 2)

    def kill() -> None:
        children = psutil.Process(process.pid).children(recursive=True)
        workers = [one for one in children if "MapWorker" in one.name() + str(one.cmdline())]
        os.kill(workers[0].pid, signal.SIGKILL)

    kill_after(process, 1, kill)
    assert ended(process) == 1  # for the job that fails
    same_sweeps("undisturbed")
