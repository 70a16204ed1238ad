"""Sweeps in several processes, and processes that are killed: the embedded model."""

import json
import multiprocessing
import shutil
import signal
import time
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import heedmap as hm
from sweeps.test_sweeps import assert_same_sweeps
from sweeps.workers import run_sweep

# Processes are forked from one that has imported what they need: importing takes most of a start.
MODULES = (
    "heedmap.sweeps.processes",
    "heedmap.backends.unet",
    "diffusers.pipelines.pipeline_utils",
)
multiprocessing.set_forkserver_preload([*MODULES, "transformers.models.clip.modeling_clip"])


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Path:
    """A manifest of six jobs, of which one fails, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("sweep")
    prompts = ("a red house", "a cat", "a blue tree", "a dog", "a green car")
    rows: list[dict] = [{"prompt": prompt, "seed": 1, "steps": 3} for prompt in prompts]
    rows.append({**rows[0], "eta": "much"})
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hm.sweep(folder / "jobs.jsonl", folder / "undisturbed", pages=False)
    return folder


@pytest.fixture(autouse=True)
def jobs(desk: Path, manifest: Path) -> Path:
    """The manifest, in a folder of the test's own."""
    shutil.copytree(manifest, desk, dirs_exist_ok=True)
    return desk / "jobs.jsonl"


def results() -> list[Path]:
    return list(Path("out").glob("runs/*/*"))


def test_a_killed_sweep_continues(desk, jobs):
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=run_sweep, args=(desk,))
    process.start()
    while len(results()) < 2:
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL and len(results()) < 5
    assert hm.sweep(jobs, "out", pages=False).done == 5
    assert_same_sweeps("undisturbed")


def test_processes_of_accelerate_make_one_sweep(desk):
    """One is killed, and a job fails, which ends no other process."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=0,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="forkserver",
    )
    with pytest.raises(ChildFailedError):
        elastic_launch(config, run_sweep)(desk, "1")
    assert results() and not Path("out/results.parquet").exists()
    first, second = elastic_launch(config, run_sweep)(desk).values()
    assert_same_sweeps("undisturbed")
    assert not {*first} & {*second}  # each has run its own part
