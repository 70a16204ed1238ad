"""`heedmap inspect`: what it saves and prints, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import heedmap as hm
from cli.calling import FILES, PROMPT, error_of, files, quiet, run_command, run_json, usage_error_of
from heedmap.figures.plots import encode
from heedmap.maps import word_figures
from heedmap.maps.heatmaps import common_range
from heedmap.pipelines import generation
from heedmap.results.runs import Run


def test_all_words_of_a_run_without_overlays_are_drawn(saved: Path, run: Run):
    run.save("plain", overlays=False)
    run_command("inspect", "plain", "--scale", "shared")
    folder = Path("plain/inspect/all")
    overlays = {name for name in FILES if name.startswith("words/")}
    assert files(folder) == {"sheet.png", *overlays}
    for name in ("sheet.png", *overlays):
        assert (folder / name).read_bytes() == (saved / name).read_bytes()


def test_words_are_chosen_by_text_phrase_or_number(saved: Path, run: Run):
    found = run_json("inspect", saved, "-w", "HOUSE", "-w", "red house", "-w", "#0")
    assert [word["word"] for word in found["words"]] == ["HOUSE", "red house", "a"]
    heats = [run.maps["house"], run.maps["red house"], run.maps.at(0)]
    for word, heat in zip(found["words"], heats, strict=True):
        assert word["most"] == pytest.approx(heat.values.max(), abs=1e-6)
        assert tuple(word["peak"]) == heat.peak
        with Image.open(Path(found["folder"]) / word["file"]) as picture:
            expected = heat.render(*common_range(heats, "shared"))
            assert np.array_equal(np.asarray(picture), np.asarray(expected))


def test_layers_steps_and_heads_are_selected(saved: Path, run: Run):
    selected = ("--layers", "up,mid", "--steps", "0:2", "--heads", "1", "--scale", "word")
    found = run_json("inspect", saved, *selected, "--out", "part")
    part = run.maps.select(layers=["up", "mid"], steps=slice(0, 2), heads=[1])
    assert found["layers"] == [layer.name for layer in part.layers]
    for word, heat in zip(found["words"], part.values(), strict=True):
        assert word["most"] == pytest.approx(heat.values.max(), abs=1e-6)
        with Image.open(Path(found["folder"]) / word["file"]) as picture:
            assert np.array_equal(np.asarray(picture), np.asarray(heat.overlay(scale="word")))


def test_over_steps_writes_a_timeline(saved: Path, run: Run):
    found = run_json("inspect", saved, "-w", "house", "--over", "steps")
    folder = saved / "inspect" / "house"
    assert "timeline.png" in found["files"]
    expected = encode(word_figures.timeline(run.maps, "house", scale="word"))
    assert (folder / "timeline.png").read_bytes() == expected


def test_refined_maps_are_written(saved: Path, run: Run):
    asked = ("--refined", "-w", "house", "--scale", "word", "-o", "x")
    about = run_json("inspect", saved, *asked)
    heat = run.maps.refined["house"]
    with Image.open("x/words/0-house.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(heat.overlay(scale="word")))
    assert about["layers"] == ["refined"]


def test_places_are_recorded_repeated_and_shown(model, desk: Path):
    asked = ("--place", "40,80", "--place", "0,0,64,128", "--place", "house")
    run_command("generate", PROMPT, "--seed", 3, "--steps", 1, *asked, "--out", "made")
    made = Run.load("made")
    assert made.settings.places == ((40, 80), (0, 0, 64, 128), "house")
    found = run_json("inspect", "made", "--place", "house", "--place", "40,80")
    for word, number in zip(found["words"], (2, 0), strict=True):
        heat = made.places[number]
        assert (word["word"], tuple(word["peak"])) == (heat.label, heat.peak)
        assert word["most"] == pytest.approx(heat.values.max(), abs=1e-6)
        with Image.open(Path(found["folder"]) / word["file"]) as picture:
            expected = heat.overlay(scale="word")
            assert np.array_equal(np.asarray(picture), np.asarray(expected))
    error_of("inspect", "made", "--place", "9,9")
    run_command("repeat", "made", "--place", "9,9", "--out", "again")
    assert run_json("inspect", "again", "--place", "9,9")["words"][0]["word"] == "9,9"
    error_of("inspect", "again", "--place", "house")
    run_command("repeat", "made", "--budget", "--out", "more")
    assert Run.load("more").budget.rows()
    error_of("repeat", "made", "--budget")
    usage_error_of("inspect", "again", "--place", "9,")
    error_of("repeat", "made", "--place", "2000,9")


def test_what_words_read_is_shown(desk: Path):
    asked = ("--model", "joint", "--seed", 3, "--steps", 1, "--reads", "--out", "made")
    run_command("generate", PROMPT, *asked)
    made = Run.load("made")
    found = run_json("inspect", "made", "--reads", "-w", "house", "--out", "x")
    (word,) = found["words"]
    heat = made.maps.reads["house"]
    assert word["most"] == pytest.approx(heat.values.max(), abs=1e-6)
    with Image.open(Path("x") / word["file"]) as picture:
        expected = heat.render(*common_range([heat], "shared"))
        assert np.array_equal(np.asarray(picture), np.asarray(expected))
    assert Path("x/text.png").read_bytes() == encode(made.text_attention.figure())


def test_words_that_read_nothing_are_refused(saved: Path):
    error_of("inspect", saved, "--reads")


def test_maps_of_concepts_are_written(model, saved: Path):
    run = generation.generate(model, PROMPT, seed=3, steps=1, concepts=["sky"], progress=quiet)
    run.save("sought")
    found = run_json("inspect", "sought", "--concepts")
    assert [word["word"] for word in found["words"]] == ["sky"]
    error_of("inspect", saved, "--concepts")
    made = run.concepts.recording
    similar = replace(made, outputs=tuple(a[:, :1] / 3 for a in made.arrays))
    replace(run, concepts=replace(run.concepts, recording=similar)).save("similar")
    part = ("--outputs", "-w", "sky", "--layers", "up")
    found = run_json("inspect", "similar", *part)["words"][0]
    values = hm.HeatMaps(similar).outputs.select("up")["sky"].values
    assert found["most"] == pytest.approx(values.max(), abs=1e-6)


def test_the_budget_is_generated_and_drawn(model, saved: Path):
    run_command("generate", PROMPT, "--seed", 3, "--steps", 1, "--budget", "-o", "kept")
    budget = Run.load("kept").budget
    found = run_json("inspect", "kept", "--budget")
    assert found["budget"] == budget.rows()
    assert found["sinks"] == budget.sink_rows()
    expected = encode(budget.figure())
    assert (Path(found["folder"]) / "budget.png").read_bytes() == expected
    assert "budget=True" in error_of("inspect", saved, "--budget")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-w", "#9"],
        ["--steps", "9"],
        ["--refined", "--layers", "up"],
    ],
)
def test_refused_selections_write_nothing(saved: Path, arguments):
    before = files(saved)
    assert "slice" not in error_of("inspect", saved, *arguments)
    assert files(saved) == before


@pytest.mark.parametrize(
    "option", [["--steps", "a:b"], ["--heads", "0;2"], ["-w", "#x"], ["--over", "time"]]
)
def test_wrong_usage_is_refused(saved: Path, option):
    usage_error_of("inspect", saved, *option)
