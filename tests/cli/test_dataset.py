"""`heedmap dataset` and `heedmap sweep --masks`: what they save and print."""

import json
from pathlib import Path

import heedmap as hm
from cli.calling import error_of, files, run_command, run_json


def test_a_data_set_is_the_librarys(saved: Path):
    assert run_command("dataset", "saved").splitlines() == ["saved/dataset/coco"]
    hm.dataset("saved", "mine", format="png", words=["red house"], classes="noun")
    options = ("--format", "png", "--words", "red house", "--classes", "noun", "--out", "out")
    assert run_json("dataset", "saved", *options) == {"folder": "out", "warnings": []}
    for name in files(Path("out")) | files(Path("mine")):
        assert Path("out", name).read_bytes() == Path("mine", name).read_bytes()
    error_of("dataset", "saved", "--out", "out")


def test_a_sweep_saves_the_masks_of_its_results(model):
    Path("jobs.toml").write_text('prompts = ["a red house", "a tree"]\nseed = 1\nsteps = 2\n')
    for _ in range(2):  # the second sweep has nothing to do but to write them again
        run_command("sweep", "jobs.toml", "--out", "out", "--no-page", "--masks")
        content = json.loads(Path("out/masks/annotations.json").read_text())
        assert [one["name"] for one in content["categories"]] == ["red house", "tree"]
        assert all(Path("out", one["run"], "run.json").exists() for one in content["images"])


def test_a_folder_without_runs_is_refused(desk: Path):
    error_of("dataset", "nowhere")
    error_of("dataset", ".")
