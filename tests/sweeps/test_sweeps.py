"""Sweeps in one process: what they write, what they skip, what they survive."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from diffusers import StableDiffusionPipeline
from PIL import Image

import heedmap as hm
from heedmap.errors import ArgumentError, RunError
from heedmap.io.writing import digest_of
from heedmap.pipelines.generation import generate

JOBS = [
    {"prompt": "a red house", "seed": 7, "steps": 2},
    {"prompt": "a blue tree", "seed": 8, "steps": 2, "keep": ["step"]},
    {"prompt": "a blue tree", "seed": 9, "steps": 2},
    {"task": "edit", "source": "a red house", "target": "a blue house", "seed": 7, "steps": 2},
]


def run(jobs=JOBS, out="out", **options) -> hm.SweepResult:
    return hm.sweep(jobs, out, pages=options.pop("pages", False), **options)


def table(out="out") -> pd.DataFrame:
    """The table without the time that a job took, which no other sweep has."""
    return pd.read_parquet(Path(out) / "results.parquet").drop(columns="seconds")


def failures(file="out/failed.jsonl") -> list[dict]:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def files(out="out") -> dict[str, object]:
    """The content of each file: pixels, failures without their traceback."""
    content: dict[str, object] = {}
    for path in Path(out).rglob("*"):
        name = path.relative_to(out).as_posix()
        if "/." in name:  # what is left of a killed process
            continue
        if path.suffix == ".png":
            content[name] = digest_of(Image.open(path))
        elif name == "failed.jsonl" or name.startswith("failed/"):
            content[name] = [{**one, "traceback": None} for one in failures(path)]
        elif path.is_file() and path.name not in ("results.parquet", "row.json"):
            content[name] = path.read_bytes()
    return content


def assert_same_sweeps(other: Path | str) -> None:
    """Row by row, and file by file."""
    assert table().to_json() == table(other).to_json()
    assert files() == files(other)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The folder of a sweep of the jobs; tests must leave it as it was."""
    out = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    result = run(out=out)
    assert (result.done, result.failed, result.pending) == (4, 0, 0)
    return out


# --- results ----------------------------------------------------------------------------------


def test_a_row_has_what_the_call_gives(embedded, undisturbed):
    rows = table(undisturbed)
    assert rows.line.tolist() == [1, 2, 3, 4]
    assert rows.task.tolist() == ["generate"] * 3 + ["edit"]
    single = generate(embedded, "a red house", seed=7, steps=2)
    row = rows.iloc[0]
    assert (row.prompt, row.seed, row.steps) == ("a red house", 7, 2)
    assert row.sha256 == digest_of(single.image)
    assert [word["word"] for word in row.words] == ["a", "red", "house"]
    for word, heat in zip(row.words, single.maps.values(), strict=True):
        values = heat.values
        assert word["extremum"] == values.max() and word["mean"] == pytest.approx(values.mean())
        assert word["peak"].tolist() == list(heat.peak)
    assert hm.Run.load(undisturbed / row.folder).settings == single.settings


def test_a_row_of_an_edit_has_its_change(undisturbed):
    *_, row = table(undisturbed).itertuples()
    edit = hm.EditResult.load(undisturbed / row.folder)
    assert (row.prompt, row.source) == ("a blue house", "a red house")
    assert row.moved == edit.report.moved
    assert row.mse_outside == edit.report.change.outside.mse
    assert row.sha256 == digest_of(edit.edited.image) != digest_of(edit.source.image)


def test_a_picture_is_located_beside_its_manifest(desk):
    (desk / "set").mkdir()
    Image.new("RGB", (64, 64), "red").save("set/photo.png")
    row = {"task": "locate", "image": "photo.png", "prompt": "a red house", "seed": 1, "steps": 2}
    Path("set/jobs.jsonl").write_text(json.dumps(row))
    assert run("set/jobs.jsonl").done == 1
    found = hm.Run.load(Path("out") / table().folder[0])
    assert found.settings.located is not None and found.settings.located.size == (64, 64)


# --- failures ---------------------------------------------------------------------------------


def before_sampling(monkeypatch, act) -> None:
    """Let a function of the seeds of a call act before the pipeline makes its first latents."""
    real = StableDiffusionPipeline.prepare_latents

    def prepare(pipe, *args, **kwargs):
        (generators,) = (one for one in args if isinstance(one, list))
        act([one.initial_seed() for one in generators])
        return real(pipe, *args, **kwargs)

    monkeypatch.setattr(StableDiffusionPipeline, "prepare_latents", prepare)


@pytest.fixture
def broken(monkeypatch):
    """Images of the seed 8 fail while this set has something in it."""
    active = {True}

    def act(seeds):
        if active and 8 in seeds:
            raise RuntimeError("CUDA error: out of luck\nmore lines")

    before_sampling(monkeypatch, act)
    return active


def test_a_bad_job_ends_nothing_and_runs_again(undisturbed, broken):
    result = run()
    assert (result.done, result.failed, result.pending) == (3, 1, 0)
    assert table().line.tolist() == [1, 3, 4]
    (failure,) = failures()
    assert (failure["line"], failure["error"]) == (2, "RuntimeError")
    assert failure["arguments"] == JOBS[1]
    assert "out of luck" in failure["message"] and "Traceback" in failure["traceback"]
    broken.clear()
    assert run().failed == 0 and failures() == []
    assert_same_sweeps(undisturbed)


# --- going on ---------------------------------------------------------------------------------


def test_a_sweep_that_is_started_again_draws_nothing(undisturbed, monkeypatch):
    shutil.copytree(undisturbed, "out")
    before = files()
    before_sampling(monkeypatch, lambda seeds: pytest.fail("it samples"))
    assert run().done == 4 and files() == before


def test_what_is_missing_runs_again(undisturbed):
    """Half of the results are gone, and what a killed process leaves is there."""
    shutil.copytree(undisturbed, "out")
    for folder in list(Path("out/runs").glob("*/*"))[::2]:
        folder.rename(folder.with_name(f".{folder.name}.tmp-0a1b2c3d"))
        (folder.with_name(f".{folder.name}.tmp-0a1b2c3d") / "run.json").unlink(missing_ok=True)
    Path("out/results.parquet").unlink()
    run()
    assert_same_sweeps(undisturbed)


def test_the_folder_of_another_sweep_is_refused(undisturbed):
    shutil.copytree(undisturbed, "out")
    before = files()
    more = [*JOBS, {**JOBS[0], "seed": 1}]
    for jobs, options in ((more, {}), (JOBS, {"batch": 2})):
        with pytest.raises(RunError, match="another sweep"):
            run(jobs, **options)
    assert files() == before


# --- batches ----------------------------------------------------------------------------------


def test_a_batch_differs_from_single_images_by_rounding():
    jobs = [{**JOBS[0], "prompt": f"a {animal}"} for animal in ("cat", "dog", "bird")]
    run(jobs)
    run(jobs, "batched", batch=2)
    for one, other in zip(table().itertuples(), table("batched").itertuples(), strict=True):
        images = [
            np.asarray(Image.open(Path(out) / row.image), int)
            for out, row in (("out", one), ("batched", other))
        ]
        assert np.abs(images[0] - images[1]).max() <= 1
        for a, b in zip(one.words, other.words, strict=True):
            assert a["mean"] == pytest.approx(b["mean"], rel=1e-5)


def test_a_batch_that_does_not_fit_is_halved(monkeypatch):
    """So are later batches of its shape at once; the images are those of smaller batches."""
    sizes: list[int] = []

    def act(seeds):
        sizes.append(len(seeds))
        if len(seeds) > 1:
            raise torch.OutOfMemoryError

    jobs = [{**JOBS[0], "seed": seed, "steps": 1} for seed in range(6)]
    run(jobs, "single")
    before_sampling(monkeypatch, act)
    assert run(jobs, batch=4).done == 6
    assert sizes == [4, 2, *[1] * 6]
    assert table().to_json() == table("single").to_json()


# --- shards -----------------------------------------------------------------------------------


def test_shards_are_parts_of_one_sweep(undisturbed):
    first = run(shard=(1, 2))
    assert (first.done, first.failed, first.pending) == (2, 0, 2) and not first.table.exists()
    second = run(shard=(2, 2))
    assert (second.done, second.failed, second.pending) == (4, 0, 0)
    assert table().to_json() == table(undisturbed).to_json()


@pytest.mark.parametrize("options", [{"shard": (3, 2)}, {"batch": 0}], ids=str)
def test_options_out_of_range_are_refused(desk, options):
    with pytest.raises(ArgumentError, match=r"shard|batch"):
        run(**options)
    assert not (desk / "out").exists()
