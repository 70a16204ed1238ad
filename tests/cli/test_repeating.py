"""`heedmap repeat`: 0 where it is the same, 1 where it differs, 2 after a mistake."""

import errno
import json
import os
import webbrowser
from pathlib import Path

import pytest

from cli.calling import PROMPT, bad, call, files, good, raising
from heedmap import Grid, Pair, Run
from heedmap.cli.options import OutputFlags
from heedmap.cli.repeating import _short
from heedmap.drawing import editing
from heedmap.models import pipelines


def spoil(folder: Path, **odd) -> None:
    path = folder / "run.json"
    about = json.loads(path.read_text("utf-8"))
    about["settings"] |= odd
    path.write_text(json.dumps(about), "utf-8")


def test_the_same(model, saved, desk):
    before = files(desk)
    assert good("repeat", saved) == f"{saved}: drawn again, it is the same to the byte.\n"
    assert files(desk) == before  # nothing was written
    assert good("repeat", saved, "--quiet") == ""
    about = json.loads(good("repeat", "saved", "--json"))
    assert about == {
        "run": "saved", "same": True, "largest": 0, "differing": 0, "pixels": 128 * 128,
        "changed": {}, "unknown": [], "folder": None, "warnings": [],
    }  # fmt: skip


def test_another_picture(model, saved):
    spoil(saved, seed=4)
    result = call("repeat", saved)
    assert result.exit_code == 1 and result.stderr == ""
    assert result.stdout.startswith(f"{saved}: drawn again, it differs: ")
    assert result.stdout.count("\n") == 1
    about = json.loads(call("repeat", saved, "--json").stdout)
    assert about["same"] is False and 0 < about["largest"] <= 255
    assert call("repeat", saved, "-q").exit_code == 1


def test_what_is_another_now_is_told(model, saved):
    spoil(saved, threads=64, loras=[{"name": "style\x1b[2J", "sha256": "0" * 64}])
    told = good("repeat", saved).splitlines()[1:]
    assert told[0].startswith("  loras: [{") and "\x1b" not in told[0]
    assert "…, here [] (not as noted)" in told[0]
    assert told[1] == "  threads: 64, here 1 (not as noted)"


def test_a_scheduler_is_set_up_as_noted(model, saved):
    config = {"beta_schedule": "scaled_linear", "steps_offset": 1}
    about = {"class": "EulerDiscreteScheduler", "config": config}
    spoil(saved, schedulers={"scheduler": about})
    result = call("repeat", saved)
    assert result.exit_code == 1
    line = "  schedulers.scheduler.class: EulerDiscreteScheduler, here DDIMScheduler (set up as no"
    assert line in result.stdout


def test_what_is_drawn_can_be_saved(model, saved, run, desk):
    told = good("repeat", saved, "--out", "again")
    assert told.endswith("  saved in again\n")
    assert Run.load("again").settings == run.settings
    assert "again exists and holds a run of heedmap" in bad("repeat", saved, "--out", "again")
    assert good("repeat", saved, "--out", "again", "-q", "--force") == "again\n"
    (desk / "mine").mkdir()
    (desk / "mine" / "notes.txt").write_text("")
    assert "is not a run of heedmap" in bad("repeat", saved, "--out", "mine", "--force")


def test_edits_and_grids(model, desk):
    editing.edit(model, PROMPT, "a blue house", seed=3, steps=2).save("pair")
    editing.grid(model, PROMPT, weights={"red": [1, 2]}, seeds=3, steps=2).save("grid")
    for folder in ("pair", "pair/edited", "pair/source", "grid", "grid/cells/002"):
        assert "the same to the byte" in good("repeat", folder)
    good("repeat", "pair", "--out", "pair2")
    good("repeat", "grid", "--out", "grid2")
    assert Pair.load("pair2").about == Pair.load("pair").about
    assert Grid.load("grid2").rows() == Grid.load("grid").rows()
    assert "is not an edit of heedmap" in bad("repeat", "pair", "--out", "grid")


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        ({"seed": "x"}, "expected a whole number, got text at settings.seed"),
        ({"arguments": {"latents": {"object": "tensor"}}}, "pass it in Python, as in hm.repeat("),
        ({"edits": [{"kind": "rule", "name": "mine"}]}, "the edit 'mine' of this run is not in"),
        ({"schedulers": {"scheduler": {"class": "X", "config": {}}}}, "the scheduler 'X' of this"),
        ({"model": 3}, "expected text, got a whole number at settings.model"),
    ],
)
def test_mistakes(model, saved, odd, sentence):
    spoil(saved, **odd)
    assert sentence in bad("repeat", saved)


def test_force_needs_a_folder(saved, monkeypatch):
    monkeypatch.setattr(
        "heedmap.drawing.repeating.load_for", raising(AssertionError("it loads a model"))
    )
    assert "--force replaces a folder, and none is named" in bad("repeat", saved, "--force")


def test_what_is_opened_needs_a_folder_and_is_its_page(model, saved, desk, monkeypatch):
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    assert "--open opens what is saved, and nothing is" in bad("repeat", saved, "--open")
    good("repeat", saved, "--out", "again")
    assert addresses == []
    good("repeat", saved, "--out", "again", "--force", "--open")
    assert addresses == [(desk / "again" / "index.html").as_uri()]


def test_the_model_is_loaded_as_it_is_asked_for_or_as_the_run_was(model, saved, monkeypatch):
    loads: list[tuple] = []
    monkeypatch.setattr(pipelines, "load", lambda name, **how: loads.append((name, how)) or model)
    noted = json.loads((saved / "run.json").read_text())["settings"]
    good("repeat", saved, "--quiet")
    monkeypatch.setattr(OutputFlags, "hidden", False)  # as at a terminal
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    call("repeat", saved, "--model", "other", "--device", "cuda", "--dtype", "bfloat16")
    assert "TQDM_DISABLE" not in os.environ  # a hub shows bars of its own
    assert loads == [
        (noted["model"], {"device": noted["device"], "dtype": noted["dtype"]}),
        ("other", {"device": "cuda", "dtype": "bfloat16"}),
    ]


def test_an_interrupt_in_the_moment_of_saving_tells_what_was_saved(model, saved, interrupted):
    result = call("repeat", saved, "--out", "again")
    told = "Interrupted: what was saved before is whole, again.\n"
    assert (result.exit_code, result.stderr) == (130, told)


def test_what_an_older_version_did_not_note_is_told(model, saved):
    path = saved / "run.json"
    about = json.loads(path.read_text("utf-8"))
    for name in ("threads", "schedulers"):
        del about["settings"][name]
    about["settings"]["scheduler"] = "EulerDiscreteScheduler"  # which is not set up: it is a name
    path.write_text(json.dumps(about), "utf-8")
    lines = good("repeat", saved).splitlines()
    told = "  not noted, since an older version wrote this run: "
    (said,) = [line.removeprefix(told) for line in lines if line.startswith(told)]
    assert said == "schedulers, threads"
    assert "  scheduler: EulerDiscreteScheduler, here DDIMScheduler (not as noted)" in lines
    assert told not in json.dumps(json.loads(good("repeat", saved, "--json")))


def test_settings_are_told_to_60_characters_as_they_are_written():
    assert _short(None) == "nothing" and _short("None") == "None"
    assert _short("é" * 60) == "é" * 60 and _short("é" * 61) == "é" * 59 + "…"
    assert _short({"name": "é", "of": [1, None]}) == '{"name": "é", "of": [1, null]}'


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no space left on device"),
        (MemoryError(), "memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
    ],
)
def test_a_full_disk_or_memory_is_told_as_everywhere(model, saved, monkeypatch, error, said):
    """And not as what a run's settings have brought about."""
    monkeypatch.setattr("heedmap.drawing.repeating.repeat", raising(error))
    told = bad("repeat", saved)
    assert said in told.lower() and "could not be drawn again" not in told


def test_no_folder_and_no_model(saved):
    assert "there is no folder nothing: expected" in bad("repeat", "nothing")
    assert "there is no model nonsense" in bad("repeat", saved, "--model", "nonsense")
    spoil(saved, model="no-such")
    assert "(--model) to draw with another" in bad("repeat", saved)


def test_a_crash_is_no_difference(model, saved, monkeypatch):
    """The exit code 1 says that the picture differs, and nothing else."""

    def crash(*args, **kwargs):
        raise KeyError("memory format")

    monkeypatch.setattr("heedmap.drawing.repeating.repeat", crash)
    assert bad("repeat", saved).count("could not be drawn again (KeyError") == 1


def test_what_the_run_warned_of_is_told_again(model, desk):
    asked = ("--steps", 1, "--negative", "sea", "--guidance", 1, "--seed", 1, "--out", "x")
    first = call("generate", "a house", *asked)
    assert first.stderr.startswith("Warning: the negative prompt 'sea' changed nothing")
    again = call("repeat", "x", "--json")
    assert again.exit_code == 0 and again.stderr == first.stderr
    (told,) = json.loads(again.stdout)["warnings"]
    assert first.stderr == f"Warning: {told}\n"
