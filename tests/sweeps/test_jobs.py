"""Manifests: the jobs that they hold, and the lines of those that cannot run."""

import json
from pathlib import Path

import pytest

from heedmap.errors import ArgumentError
from heedmap.sweeps.jobs import in_units, read_jobs

JOB = {"prompt": "a red house", "seed": 7}
EDIT = {"task": "edit", "source": "a red house", "target": "a blue house", "seed": 7}


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def read_error(rows: list[dict]) -> str:
    with pytest.raises(ArgumentError, match="line") as caught:
        read_jobs(rows)
    return str(caught.value)


# --- manifests --------------------------------------------------------------------------------


def test_jsonl_has_a_job_a_line():
    path = write("jobs.jsonl", f"{json.dumps(JOB)}\n\n{json.dumps(EDIT)}\n")
    house, edit = read_jobs(path)
    assert (house.line, house.task, house.arguments) == (1, "generate", JOB)
    assert (edit.line, edit.task) == (3, "edit")


def test_toml_multiplies_its_lists():
    path = write(
        "jobs.toml",
        'prompts = ["a red house", "a (red:2) tree"]\nseeds = [1, 2]\nsteps = 3\n'
        "guidances = [4, 5.5]\n",
    )
    jobs = read_jobs(path)
    assert len(jobs) == 8 and len({job.id for job in jobs}) == 8
    made = {tuple(job.arguments[n] for n in ("prompt", "seed", "guidance")) for job in jobs}
    assert ("a red house", 1, 4) in made and ("a (red:2) tree", 2, 5.5) in made
    assert {job.arguments["steps"] for job in jobs} == {3}


# --- identity ---------------------------------------------------------------------------------


def test_settings_are_part_of_the_identity(random_folder):
    rows = [JOB, {**JOB, "seed": 8}, {**JOB, "model": str(random_folder)}, EDIT]
    ids = {job.id for job in read_jobs(rows)}
    assert len(ids) == len(rows)
    assert ids.isdisjoint(job.id for job in read_jobs(rows, dtype="float16"))
    assert read_jobs([dict(reversed(JOB.items()))])[0].id in ids


def test_a_job_that_occurs_twice_is_refused():
    text = read_error([JOB, EDIT, JOB])
    assert "line 3" in text and "line 1" in text


# --- checks -----------------------------------------------------------------------------------


BAD = [
    {**JOB, "task": "paint"},
    {**JOB, "stepz": 3},
    {**JOB, "steps": 3, "num_inference_steps": 3},
    {**JOB, "size": [63, 64]},
    {**JOB, "prompt": "a red house " + "x " * 90 + "(tree:2)"},
    {**JOB, "weights": {"red": 2}},
    {"prompt": "a red house"},
    {**EDIT, "target": "a red house"},
    {**EDIT, "only": "tree->house"},
    {"task": "locate", "image": "missing.png", "prompt": "a house", "seed": 7},
    7,
]


@pytest.mark.parametrize("rows", [BAD[n : n + 5] for n in range(0, len(BAD), 5)])
def test_jobs_that_their_call_would_refuse_are_refused(rows):
    text = read_error([JOB, *rows])
    assert all(f"line {line}: " in text for line in range(2, len(rows) + 2))


def test_all_bad_lines_are_in_one_error():
    path = write("jobs.jsonl", f'{{"seed": 7}}\n{json.dumps(JOB)}\n{{"prompt":\n[]\n')
    with pytest.raises(ArgumentError, match="line 1") as caught:
        read_jobs(path)
    text = str(caught.value)
    assert all(f"line {line}: " in text for line in (1, 3, 4)) and "line 2: " not in text


@pytest.mark.parametrize(
    ("name", "text"),
    [("jobs.jsonl", "\n"), ("jobs.yaml", "a: b"), ("jobs.toml", "seeds =")],
)
def test_a_file_that_is_no_manifest_is_refused(name, text):
    with pytest.raises(ArgumentError, match=r"jobs|manifest"):
        read_jobs(write(name, text))


# --- units ------------------------------------------------------------------------------------


def test_a_unit_has_jobs_of_one_shape_and_model(random_folder):
    rows = [{**JOB, "seed": n, "steps": 2 + n % 2} for n in range(6)]
    rows += [{**EDIT, "seed": n} for n in range(2)] + [{**JOB, "model": str(random_folder)}]
    jobs = read_jobs(rows)
    units = in_units(jobs, 2)
    assert sorted(job.line for unit in units for job in unit) == list(range(1, 10))
    assert sorted(len(unit) for unit in units) == [1, 1, 1, 1, 1, 2, 2]
    for unit in units:
        assert len({(job.model, job.task, job.arguments.get("steps")) for job in unit}) == 1
