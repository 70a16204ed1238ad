"""`heedmap repeat`: 0 where it is the same, 1 where it differs, 2 after an error."""

import json
from pathlib import Path

from cli.calling import PROMPT, error_of, files, invoke, run_command, run_json
from heedmap import EditResult, Run
from heedmap.pipelines import editing


def spoil(folder: Path, **odd) -> None:
    path = folder / "run.json"
    about = json.loads(path.read_text("utf-8"))
    about["settings"] |= odd
    path.write_text(json.dumps(about), "utf-8")


def test_an_equal_image_exits_with_0(model, saved, desk):
    before = files(desk)
    assert run_command("repeat", saved).startswith(f"{saved}: ")
    found = run_json("repeat", "saved")
    assert (found["run"], found["same"], found["largest"]) == ("saved", True, 0)
    assert (found["changed"], found["folder"], found["warnings"]) == ({}, None, [])
    assert files(desk) == before  # nothing was written


def test_another_image_exits_with_1(model, saved):
    spoil(saved, seed=4)
    result = invoke("repeat", saved, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and found["same"] is False and 0 < found["largest"] <= 255


def test_runs_and_edits_are_repeated_and_saved(model, saved, run, desk, opened):
    editing.edit(model, PROMPT, "a blue house", seed=3, steps=1).save("pair", overlays=False)
    assert run_command("repeat", saved, "-o", "run2", "--open", "-q") == "run2\n"
    run_command("repeat", "pair", "--out", "pair2")
    assert Run.load("run2").settings == run.settings
    assert EditResult.load("pair2").report == EditResult.load("pair").report
    assert opened == [(desk / "run2" / "index.html").as_uri()]


def test_results_that_cannot_be_repeated_are_refused(model, saved):
    error_of("repeat", "nothing")
    spoil(saved, arguments={"latents": {"object": "tensor"}})
    error_of("repeat", saved)
    error_of("repeat", saved, "--out", saved)
