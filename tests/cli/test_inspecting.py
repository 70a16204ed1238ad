"""`heedmap inspect`: what it saves and prints, and one sentence for whatever goes wrong."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cli.calling import FILES, PROMPT, bad, files, good, quiet, raising
from heedmap.cli.inspecting import numbered
from heedmap.drawing import generation
from heedmap.errors import ArgumentError, HeedmapWarning
from heedmap.maps import layer_heads
from heedmap.maps.heatmaps import HeatMap
from heedmap.maps.word_map import span_of
from heedmap.results.runs import Run


def test_inspect_writes_where_its_user_says_and_not_where_a_stranger_does(saved: Path, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (saved / "inspect").symlink_to(home)
    assert "inspect is a link: name a folder with --out" in bad("inspect", saved)
    assert os.listdir(home) == []
    good("inspect", saved, "--out", home / "mine")
    assert (home / "mine" / "sheet.png").exists()


def test_inspect_shows_every_word(saved: Path, run: Run):
    said = good("inspect", saved)
    folder = saved / "inspect" / "all"
    overlays = {name for name in FILES if name.startswith("words/")}
    assert files(folder) == {"sheet.png", "inspect.json", *overlays}
    assert said.splitlines()[0] == str(folder)
    assert all(name in said for name in overlays)
    for word in run.maps.words:
        file = f"words/{word.number}-{word.text}.png"
        assert (folder / file).read_bytes() == (saved / file).read_bytes()
    assert (folder / "sheet.png").read_bytes() == (saved / "sheet.png").read_bytes()
    assert Run.load(saved).settings == run.settings


def test_inspect_finds_words_phrases_and_numbers(saved: Path, run: Run):
    arguments = ("-w", "HOUSE", "-w", "red house", "-w", "#0", "--json")
    about = json.loads(good("inspect", saved, *arguments))
    assert [word["word"] for word in about["words"]] == ["HOUSE", "red house", "a"]
    heats = [run.maps["house"], run.maps["red house"], run.maps.at(0)]
    for word, heat in zip(about["words"], heats, strict=True):
        assert word["most"] == pytest.approx(heat.values.max(), abs=1e-6)
        assert word["mean"] == pytest.approx(heat.values.mean(), abs=1e-6)
        told = (word["most"], word["mean"])
        assert told == tuple(round(one, 6) for one in told)  # six digits, not noise
        assert tuple(word["peak"]) == heat.peak
        with Image.open(word["file"]) as picture:
            expected = heat.drawn(*span_of(heats, "shared"))  # one scale for all that is shown
            assert np.array_equal(np.asarray(picture), np.asarray(expected))


def test_a_word_of_weight_0_is_hottest_nowhere(pipe: Any, tmp_path: Path):
    run = generation.generate(pipe, "a (red:0) house", seed=1, steps=1)
    assert not run.maps["red"].values.any()
    saved = run.save(tmp_path / "without")
    said = good("inspect", saved, "-w", "red")
    assert said.splitlines()[2].split()[:4] == ["red", "0.000", "0.000", "nowhere"]
    compared = good("compare", saved, saved, "-w", "red", "--out", tmp_path / "both.png")
    assert sum("nowhere" in line for line in compared.splitlines()) == 2
    about = json.loads(good("inspect", saved, "-w", "red", "-w", "house", "--json"))
    assert [word["peak"] for word in about["words"]] == [None, list(run.maps["house"].peak)]


def test_inspect_of_a_word_that_was_not_read(pipe: Any, tmp_path: Path):
    """A second occurrence past the limit has no map, and none is drawn of it."""
    prompt = "house " + "x" * 90 + " house"
    with pytest.warns(HeedmapWarning, match=r"'xxx.* \(in part\) and 'house', from word 1 on"):
        drawn = generation.generate(pipe, prompt, seed=1, steps=1)
    long = drawn.save(tmp_path / "long")
    said = bad("inspect", long, "--word", "#2")
    assert "'house' (word 2) was not read by the model" in " ".join(said.split())
    assert not (long / "inspect").exists()
    assert json.loads(good("inspect", long, "--word", "#0", "--json"))["words"]


def test_inspect_of_a_prompt_without_words(pipe: Any, tmp_path: Path):
    run = generation.generate(pipe, "!!!", seed=1, steps=1)
    folder = run.save(tmp_path / "signs")
    about = json.loads(good("inspect", folder, "--json"))
    assert about["words"] == []
    assert Path(about["sheet"]).read_bytes() == (folder / "sheet.png").read_bytes()
    assert "the prompt has no words" in bad("inspect", folder, "--word", "house")


def test_inspect_selects_layers_steps_and_heads(saved: Path, run: Run):
    arguments = ("--layers", "up,mid", "--steps", "0:2", "--heads", "1", "--scale", "word")
    about = json.loads(good("inspect", saved, *arguments, "--json", "--out", "part"))
    part = run.maps.select(layers=["up", "mid"], steps=slice(0, 2), heads=[1])
    assert about["layers"] == [layer.name for layer in part.layers]
    assert about["selection"] == {
        "layers": ["up", "mid"],
        "steps": "0:2",
        "heads": [1],
        "scale": "word",
    }
    for word, heat in zip(about["words"], part, strict=True):
        assert word["most"] == pytest.approx(heat.values.max(), abs=1e-6)
        with Image.open(word["file"]) as picture:
            assert np.array_equal(np.asarray(picture), np.asarray(heat.overlay(scale="word")))
    assert json.loads(Path("part/inspect.json").read_text()) == about


def test_inspect_names_its_folders_by_the_selection(saved: Path):
    arguments = ("--layers", "up", "--steps", "0:2", "--heads", "0,1", "-w", "red", "-q")
    folder = good("inspect", saved, *arguments).strip()
    assert folder == str(saved / "inspect" / "red-layers-up-steps-0-2-heads-0-1")
    assert good("inspect", saved, *arguments).strip() == f"{folder}-2"
    assert {p.name for p in (saved / "inspect").iterdir()} == {
        Path(folder).name,
        f"{Path(folder).name}-2",
    }


@pytest.mark.parametrize(("typed", "found"), [("1:99", "1:3"), (":2", "0:2"), ("-1", "2:3")])
def test_inspect_tells_the_steps_that_there_were(saved: Path, typed: str, found: str):
    about = json.loads(good("inspect", saved, "--steps", typed, "--json"))
    assert about["selection"]["steps"] == found
    assert about["folder"].endswith(f"steps-{found.replace(':', '-')}")


def test_inspect_over_the_steps(saved: Path, run: Run):
    said = good("inspect", saved, "-w", "house", "--over", "steps")
    assert "Over its steps: timeline.png, timeline.gif" in said
    folder = saved / "inspect" / "house-over-steps"
    assert files(folder) == {
        "inspect.json", "sheet.png", "words/house.png", "timeline.png", "timeline.gif",
    }  # fmt: skip
    with Image.open(folder / "timeline.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(run.timeline("house").image()))
    assert (folder / "timeline.gif").read_bytes() == run.animation("house").gif()
    with Image.open(folder / "words" / "house.png") as picture:
        expected = run.maps["house"].overlay(scale="word")
        assert np.array_equal(np.asarray(picture), np.asarray(expected))


@pytest.mark.parametrize(
    ("over", "file", "axes"),
    [
        ("layers", "layers.png", ["layer"]),
        ("heads", "heads.png", ["head"]),
        ("heads,layers", "layers-heads.png", ["layer", "head"]),
    ],
)
def test_inspect_over_layers_and_heads(saved: Path, run: Run, over, file, axes):
    arguments = ("-w", "#2", "--layers", "up", "--scale", "shared", "--over", over, "--json")
    about = json.loads(good("inspect", saved, *arguments))
    (path,) = about["over"]
    name = Path(file).stem
    assert path == str(saved / "inspect" / f"2-layers-up-over-{name}-shared-scale" / file)
    part = run.maps.select("up")
    expected = layer_heads.layers_by_heads(part, "house", axes=axes, scale="shared")
    with Image.open(path) as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(expected.image()))


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_inspect_saves_figures_for_papers(saved: Path, run: Run, kind):
    arguments = ("-w", "house", "--over", "steps", "--format", kind)
    about = json.loads(good("inspect", saved, *arguments, "--json"))
    folder = saved / "inspect" / f"house-over-steps-{kind}"
    assert about["selection"]["format"] == kind
    assert files(folder) == {
        *("inspect.json", f"sheet.{kind}", "words/house.png"),
        *(f"timeline.{kind}", "timeline.gif"),
    }
    assert (folder / f"timeline.{kind}").read_bytes() == run.timeline("house").data(kind)
    said = good("inspect", saved, *arguments)
    assert f"The words together: sheet.{kind}" in said and f"timeline.{kind}" in said


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "--over shows one word, not 3: name one with --word"),
        (["-w", "red", "-w", "house"], "--over shows one word, not 2"),
        (["-w", "hose"], "'hose' is not in the prompt"),
    ],
)
def test_inspect_over_one_word_only(saved: Path, arguments, part):
    before = files(saved)
    assert part in bad("inspect", saved, *arguments, "--over", "steps")
    assert files(saved) == before
    assert not (saved / "inspect").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-w", "hose"], "; did you mean 'house'?"),
        (["-w", "#9"], "there is no word number 9"),
        (["-w", "#one"], "'#one' names no word: expected '#' and its number, as in #2"),
        (["-w", ""], "no word to look for"),
        (
            ["--layers", "sideways,dwon"],
            "no layer fits --layers sideways,dwon: expected down, mid, up or ",
        ),
        (["--steps", "7:9"], "no step fits --steps 7:9: the run has 3 steps, 0 to 2\n"),
        (["--steps", "9"], "no step fits --steps 9: the run has 3 steps, 0 to 2\n"),
        (["--heads", "99"], "head 99 is not there: expected whole numbers from 0 to 1\n"),
    ],
)
def test_inspect_says_what_is_wrong_and_writes_nothing(saved: Path, arguments, part):
    before = files(saved)
    assert part in bad("inspect", saved, *arguments)
    assert files(saved) == before


def test_words_without_letters_keep_files_of_their_own(random_model, desk: Path):
    drawn = generation.generate(random_model, "🏠 🌳 house", seed=3, steps=1, progress=quiet)
    drawn.save(desk / "drawn")
    words = ("-w", "🏠", "-w", "🌳", "-w", "🏠")
    about = json.loads(good("inspect", "drawn", *words, "--json"))
    assert [word["word"] for word in about["words"]] == ["🏠", "🌳"]
    names = [Path(word["file"]).name for word in about["words"]]
    assert names == ["u1f3e0.png", "u1f333.png"]
    assert (desk / "drawn" / "words" / "0-u1f3e0.png").is_file()
    assert all(Path(word["file"]).is_file() for word in about["words"])


def test_inspect_of_what_was_not_kept(random_model, desk: Path):
    bare = generation.generate(random_model, PROMPT, seed=3, steps=1, keep=(), progress=quiet)
    bare.save(desk / "bare")
    assert "averaged over all layers. The words" in good("inspect", "bare", "--out", "seen")
    for axis, value in (("layer", "up"), ("step", "0:1"), ("head", "0")):
        said = bad("inspect", "bare", f"--{axis}s", value)
        assert said.endswith(f": make the run again with --keep {axis}\n")
        said = bad("inspect", "bare", "-w", "red", "--over", f"{axis}s")
        assert said.endswith(f": make the run again with --keep {axis}\n")


def test_inspect_of_what_is_no_run(desk: Path):
    assert "nowhere/run.json is missing" in bad("inspect", "nowhere")
    (desk / "run.json").write_text("{")
    assert "run.json is not what heedmap writes" in bad("inspect", desk)
    assert files(desk) == {"run.json"}


def test_inspect_writes_whole_or_not_at_all(saved: Path, desk: Path, monkeypatch):
    good("inspect", saved, "--out", "seen", "--scale", "word")
    before = {name: (desk / "seen" / name).read_bytes() for name in files(desk / "seen")}
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(HeatMap, "drawn", raising(full))
        said = "cannot be written (no space left on device)"
        assert f"new {said}" in bad("inspect", saved, "--out", "new")
    assert {p.name for p in desk.iterdir()} == {"saved", "seen"}
    assert {name: (desk / "seen" / name).read_bytes() for name in files(desk / "seen")} == before
    assert "seen is not empty" in bad("inspect", saved, "--out", "seen")


@pytest.mark.parametrize("odd", ["#\u0663", "#", "#-1", "#1_0", "#1234567890", "#\u00b2"])
def test_numbers_of_words_are_plain_digits(odd):
    assert numbered(" #3".strip()) == 3 and numbered("# 12") == 12 and numbered("cat") == "cat"
    with pytest.raises(ArgumentError, match="'#' and its number, as in #2"):
        numbered(odd)


def test_inspect_shows_refined_maps_and_names_them(saved: Path, run: Run):
    said = good("inspect", saved, "--refined", "-w", "house", "--scale", "word")
    folder = saved / "inspect" / "house-refined-word-scale"
    assert said.splitlines()[0] == str(folder)
    assert "of all layers, steps and heads, refined by self-attention." in said
    heat = run.maps.refined["house"]
    with Image.open(folder / "words" / "house.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(heat.overlay(scale="word")))
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.tobytes() == run.maps.refined.sheet([heat], scale="word").tobytes()
    about = json.loads((folder / "inspect.json").read_text(encoding="utf-8"))
    assert about["selection"] == {"words": ["house"], "refined": True, "scale": "word"}
    assert about["layers"] == ["refined"]
    assert about["words"][0]["peak"] == list(heat.peak)
    about = json.loads(good("inspect", saved, "--refined", "--json"))
    assert Path(about["folder"]).name == "all-refined"
    about = json.loads(good("inspect", saved, "--json"))
    assert "refined" not in about["selection"]


@pytest.mark.parametrize(
    "option", [("--layers", "up"), ("--steps", "0:1"), ("--heads", "0"), ("--over", "layers")]
)
def test_inspect_refuses_a_part_of_refined_maps(saved: Path, option: tuple[str, str]):
    said = bad("inspect", saved, "--refined", "-w", "house", *option)
    assert f"{option[0]} is given with --refined: expected one of them" in said
    assert not (saved / "inspect").exists()


def test_inspect_of_a_run_without_refined_maps(saved: Path, run: Run, tmp_path: Path):
    older = replace(
        run, maps=replace(run.maps, recording=replace(run.maps.recording, refined=None))
    )
    folder = older.save(tmp_path / "older")
    assert "there are no refined maps" in bad("inspect", folder, "--refined")
    assert not (folder / "inspect").exists()
