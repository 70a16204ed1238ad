"""`heedmap sweep`: what it prints, and its exit codes."""

import json
from pathlib import Path

import pandas as pd
import pytest

from cli.calling import PROMPT, error_of, files, invoke, run_command, run_json, usage_error_of
from heedmap.sweeps import processes


@pytest.fixture
def jobs(model) -> Path:
    path = Path("jobs.toml")
    path.write_text(f'prompts = ["{PROMPT}", "a tree"]\nseeds = [1, 2]\nsteps = 2\n')
    return path


def test_a_sweep_is_the_librarys(jobs, random_folder):
    options = ("sweep", jobs, "--out", "out", "--no-page")
    printed = run_command(*options)
    processes.sweep(jobs, "mine", model=random_folder, pages=False)
    assert files(Path("out")) == files(Path("mine"))
    assert "4 jobs" in printed and "out/results.parquet" in printed
    assert len(pd.read_parquet("out/results.parquet")) == 4
    counts = {"done": 4, "failed": 0, "pending": 0, "warnings": []}
    assert run_json(*options) == {"folder": "out", "table": "out/results.parquet", **counts}


def test_an_interrupted_sweep_keeps_what_is_done(jobs, monkeypatch):
    run = processes.Worker.run
    calls = []

    def interrupt(worker, unit):
        if calls:
            raise KeyboardInterrupt
        calls.append(unit)
        run(worker, unit)

    monkeypatch.setattr(processes.Worker, "run", interrupt)
    result = invoke("sweep", jobs, "--out", "out", "--no-page")
    assert result.exit_code == 130 and len(list(Path("out").glob("runs/*/*"))) == 1


def test_the_exit_code_is_1_if_a_job_failed(jobs):
    Path("jobs.jsonl").write_text(json.dumps({"prompt": PROMPT, "seed": 1, "eta": "much"}))
    result = invoke("sweep", "jobs.jsonl", "--out", "out", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["failed"] == 1


def test_bad_input_ends_with_one_sentence(jobs, desk):
    Path("jobs.jsonl").write_text('{"prompt": "a cat", "seed": 1}\nnothing\n')
    assert "line 2: " in error_of("sweep", "jobs.jsonl", "--out", "out")
    error_of("sweep", "missing.jsonl", "--out", "out")
    error_of("sweep", jobs, "--out", "out", "--shard", "3/2")
    usage_error_of("sweep", jobs, "--out", "out", "--shard", "1")
    assert not Path("out").exists()
