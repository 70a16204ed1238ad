"""Manifests: the jobs that they hold, and the lines of those that cannot run."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heedmap.backends import loading
from heedmap.errors import ArgumentError, HeedmapError, ModelError, RunError
from heedmap.pipelines.arguments import resolve_options
from heedmap.pipelines.generation import generate
from heedmap.sweeps.jobs import in_units, read_jobs, truth

JOB = {"prompt": "a red house", "seed": 7}
EDIT = {"task": "edit", "source": "a red house", "target": "a blue house", "seed": 7}


def written(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def jsonl(*rows: dict) -> Path:
    return written("jobs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def refused(rows: list[dict]) -> str:
    with pytest.raises(ArgumentError) as caught:
        read_jobs(rows)
    return str(caught.value)


# --- manifests --------------------------------------------------------------------------------


def test_jsonl_has_a_job_a_line():
    path = written("jobs.jsonl", f"{json.dumps(JOB)}\n\n{json.dumps(EDIT)}\n")
    house, edit = read_jobs(path)
    assert (house.line, house.task, house.arguments) == (1, "generate", JOB)
    assert (edit.line, edit.task) == (3, "edit")
    assert edit.arguments == {name: EDIT[name] for name in ("source", "target", "seed")}


def test_csv_has_the_jobs_of_jsonl():
    cells = [
        "task,prompt,seed,steps,size,keep,target,source,negative",
        'generate,"a red house, at night",7,3,"[64, 64]","[""step""]",,,7',
        "edit,,7,,,,a blue house,a red house,",
    ]
    path = written("jobs.csv", "\n".join(cells))
    house = {"prompt": "a red house, at night", "seed": 7, "steps": 3, "size": [64, 64]}
    house |= {"task": "generate", "keep": ["step"], "negative": "7"}
    expected = read_jobs(jsonl(house, EDIT))
    assert [(j.arguments, j.task) for j in read_jobs(path)] == [
        (j.arguments, j.task) for j in expected
    ]
    assert [job.line for job in read_jobs(path)] == [2, 3]


def test_toml_multiplies_its_lists():
    path = written(
        "jobs.toml",
        'prompts = ["a red house", "a red tree"]\nseeds = [1, 2]\nsteps = 3\n'
        "guidances = [4, 5.5]\n[weights]\nred = [0.5, 2]\n",
    )
    jobs = read_jobs(path)
    assert len(jobs) == 16 and len({job.id for job in jobs}) == 16
    made = {tuple(job.arguments[n] for n in ("prompt", "seed", "guidance")) for job in jobs}
    assert ("a (red:0.5) house", 1, 4) in made and ("a (red:2) tree", 2, 5.5) in made
    assert {job.arguments["steps"] for job in jobs} == {3}


def test_a_misspelt_list_of_toml_is_likened_to_lists():
    text = refused(written("jobs.toml", 'prompt = "a cat"\nsteps = 3\nseedz = [1, 2]\n'))
    assert "seedz" in text and "seeds" in text and "line 1" not in text


def test_weights_of_an_edit_are_those_of_its_target():
    weights = {"weights": {"house": 3}}
    swap, alone = read_jobs([{**EDIT, **weights}, {**EDIT, "target": None, **weights}])
    assert swap.arguments["target"] == "a blue (house:3)"
    assert swap.arguments["source"] == "a red house"
    assert alone.arguments["source"] == "a red (house:3)" and alone.arguments["target"] is None


def test_a_list_has_jobs_of_plain_json():
    (job,) = read_jobs([{**JOB, "size": (64, 64)}])
    assert job.arguments == {**JOB, "size": [64, 64]}
    refused([{**JOB, "seed": np.int64(7)}])


# --- identity ---------------------------------------------------------------------------------


def test_every_setting_is_part_of_the_identity(random_folder):
    other = {
        "seed": 8,
        "steps": 3,
        "guidance": 2,
        "negative": "blurry",
        "model": str(random_folder),
    }
    rows = [JOB, *({**JOB, name: value} for name, value in other.items()), EDIT]
    rows += [{**JOB, "truths": {"house": [0, 0, 8, 8]}}, {**EDIT, "cross_replace": 0.5}]
    ids = {job.id for job in read_jobs(rows)}
    assert len(ids) == len(rows)
    assert ids.isdisjoint(job.id for job in read_jobs(rows, dtype="float16"))
    assert {read_jobs([JOB])[0].id, read_jobs([dict(reversed(JOB.items()))])[0].id} <= ids


def test_a_job_that_occurs_twice_is_refused():
    text = refused([JOB, EDIT, JOB])
    assert "line 3" in text and "line 1" in text


# --- checks -----------------------------------------------------------------------------------


BAD = [
    {**JOB, "task": "paint"},
    {**JOB, "stepz": 3},
    {**JOB, "steps": 0},
    {**JOB, "steps": 3, "num_inference_steps": 3},
    {**JOB, "size": [63, 64]},
    {**JOB, "keep": "steps"},
    {**JOB, "edits": []},
    {**JOB, "prompt": " "},
    {**JOB, "prompt": "a (red:1,5) house"},
    {**JOB, "prompt": "a red house " + "x " * 90 + "(tree:2)"},
    {**JOB, "concepts": [""]},
    {**JOB, "weights": {"tree": 2}},
    {**JOB, "weights": 2},
    {**JOB, "truths": {"tree": [0, 0, 8, 8]}},
    {**JOB, "truths": {"house": [0, 0, 800, 8]}},
    {**JOB, "truths": {"house": "missing.png"}},
    {**JOB, "truths": ["house"]},
    {**JOB, "guidance": float("nan")},
    {"prompt": "a red house"},
    {"prompt": "a red house", "seed": -1},
    {"seed": 7},
    {**EDIT, "target": "a red house"},
    {**EDIT, "target": ["a blue house", "a green house"]},
    {**EDIT, "only": "tree->house"},
    {**EDIT, "threshold": 0.5},
    {**EDIT, "word_windows": {"tree": 0.5}},
    {**EDIT, "image": "missing.png"},
    {"task": "locate", "picture": "missing.png", "prompt": "a house", "seed": 7},
    {"task": "locate", "prompt": "a house", "seed": 7},
    "a red house",
    7,
]


@pytest.mark.parametrize("rows", [BAD[n : n + 5] for n in range(0, len(BAD), 5)])
def test_jobs_that_their_call_would_refuse_are_refused(rows):
    text = refused([JOB, *rows])
    assert all(f"line {line}: " in text for line in range(2, len(rows) + 2))


def test_all_bad_lines_are_in_one_error():
    path = written("jobs.jsonl", f'{{"seed": 7}}\n{json.dumps(JOB)}\n{{"prompt":\n[]\n')
    with pytest.raises(ArgumentError) as caught:
        read_jobs(path)
    text = str(caught.value)
    assert all(f"line {line}: " in text for line in (1, 3, 4)) and "line 2: " not in text
    assert "\n" not in text


def test_a_model_that_is_missing_is_refused_with_its_line():
    text = refused([{**JOB, "model": "nothing"}, {**EDIT, "model": "nothing"}])
    assert "line 1: " in text and "line 2: " in text


@pytest.mark.parametrize(
    ("name", "text"),
    [("jobs.jsonl", "\n"), ("jobs.yaml", "a: b"), ("jobs.toml", "seeds ="), ("jobs.csv", "task\n")],
)
def test_a_file_that_is_no_manifest_is_refused(name, text):
    with pytest.raises(ArgumentError):
        read_jobs(written(name, text))


def test_a_missing_file_is_refused():
    with pytest.raises(RunError):
        read_jobs("jobs.jsonl")


@settings(max_examples=60)
@given(st.text(max_size=200), st.sampled_from(["jsonl", "csv", "toml"]))
def test_any_text_has_jobs_or_an_error(tmp_path_factory, text, kind):
    path = tmp_path_factory.mktemp("any") / f"jobs.{kind}"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(HeedmapError):
        read_jobs(path)


# --- the model without weights ----------------------------------------------------------------


def test_an_outline_answers_as_the_model(embedded):
    """By the options, the words and the sizes that a call resolves."""
    outline = loading.outline()
    assert all(part.device.type == "meta" for part in outline.unet.parameters())
    row = {"steps": 3, "size": [64, 128], "eta": 0.5}
    calls = [resolve_options(generate, pipe, 7, row) for pipe in (embedded, outline)]
    assert calls[0] == calls[1]
    assert outline.vae_scale_factor == embedded.vae_scale_factor
    with pytest.raises(ModelError):
        loading.outline("nothing")


# --- units ------------------------------------------------------------------------------------


def test_a_unit_has_jobs_of_one_shape_and_model(random_folder):
    rows = [{**JOB, "seed": n, "steps": 2 + n % 2} for n in range(6)]
    rows += [{**EDIT, "seed": n} for n in range(2)] + [{**JOB, "model": str(random_folder)}]
    jobs = read_jobs(rows)
    units = in_units(jobs, 2)
    assert sorted(job.line for unit in units for job in unit) == list(range(1, 10))
    assert [len(unit) for unit in units] == [2, 2, 1, 1, 1, 1, 1]
    for unit in units:
        assert len({(job.model, job.task, job.arguments.get("steps")) for job in unit}) == 1
    assert [len(unit) for unit in in_units(jobs)] == [1] * 9


# --- truths -----------------------------------------------------------------------------------


def test_a_truth_is_the_pixels_inside(desk):
    box = truth([16, 32, 64, 128], "house", (128, 128), (128, 128))
    expected = np.zeros((128, 128), bool)
    expected[32:128, 16:64] = True
    assert (box == expected).all()
    Image.fromarray(expected).save("mask.png")
    assert (truth(str(desk / "mask.png"), "house", (1, 1), (128, 128)) == expected).all()
    half = truth([16, 32, 64, 128], "house", (128, 128), (64, 64))
    assert (half == expected[::2, ::2]).all()
