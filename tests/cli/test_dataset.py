"""`heedmap dataset`: what it saves and prints."""

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


def test_a_folder_without_runs_is_refused(desk: Path):
    error_of("dataset", "nowhere")
    error_of("dataset", ".")
