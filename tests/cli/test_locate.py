"""`heedmap locate`: what it saves and prints, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.calling import FILES, PROMPT, as_json, bad, files, good, misused
from heedmap.maps.selections import stability_said
from heedmap.pipelines import input_images
from heedmap.pipelines.input_images import locate
from heedmap.results.runs import Run


@pytest.fixture
def photo(desk: Path, monkeypatch) -> Path:
    """A photo, of a model that is not asked how well it gives one back."""
    monkeypatch.setattr(input_images, "LEAST_PSNR", 0.0)
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(desk / "My Cat!.png")
    return desk / "My Cat!.png"


def test_saves_the_run_of_the_library(model, desk: Path, photo: Path):
    printed = good("locate", photo, PROMPT, "--seed", 7, "--steps", 2)
    folder = desk / "outputs" / "my-cat-a-red-house-7"
    assert files(folder) == FILES
    found, same = Run.load(folder), locate(model, photo, PROMPT, seed=7, steps=2)
    assert found.settings == same.settings and found.stability == same.stability
    assert np.array_equal(found.maps["house"].values, same.maps["house"].values)
    stability = stability_said(same.stability[2]).removeprefix("stability ")
    (line,) = [line for line in printed.splitlines() if line.startswith("house")]
    assert stability in line
    assert good("repeat", folder).startswith(f"{folder}: ")


def test_json_and_options(model, desk: Path, photo: Path, opened: list[str]):
    asked = ("--size", "96x96", "--keep", "layer,step", "--num-inference-steps", 2, "--seed", 1)
    (found,) = as_json("locate", photo, "a house", *asked, "--concept", "sky", "-o", "x", "--open")[
        "runs"
    ]
    run = Run.load("x")
    assert (found["size"], found["steps"], found["folder"]) == ([96, 96], 2, "x")
    assert run.settings.keep == ("layer", "step") and run.settings.concepts == ("sky",)
    assert {one["number"]: one["stability"] for one in found["words"]} == run.stability
    assert run.concepts is not None and run.concepts.stability is not None
    assert [one["stability"] for one in found["concepts"]] == [run.concepts.stability[0]]
    assert opened == [(desk / "x" / "index.html").as_uri()]


def test_maps_of_a_located_run_show_their_stability(model, photo: Path):
    good("locate", photo, PROMPT, "--concept", "sky", "--steps", 2, "--seed", 1, "-o", "out")
    run = Run.load("out")
    words = {word.text: run.stability[word.number] for word in run.maps.words}
    phrase = min(words["red"], words["house"])
    (found,) = as_json("segment", "out", "-o", "s")["phrases"]
    assert found["stability"] == phrase
    assert stability_said(phrase).removeprefix("stability ") in good("segment", "out", "-o", "t")
    found = as_json("inspect", "out", "-o", "i", "-w", "red house", "-w", "a")
    assert [one.get("stability") for one in found["words"]] == [None, words["a"]]
    found = as_json("inspect", "out", "--concepts", "-o", "c")
    assert [one["stability"] for one in found["words"]] == [run.concepts.stability[0]]


def test_what_cannot_be_located_leaves_nothing(model, desk: Path, photo: Path):
    (desk / "text.png").write_text("no image")
    bad("locate", "none.png", PROMPT)
    bad("locate", "text.png", PROMPT)
    bad("locate", photo, " ")
    bad("locate", photo, PROMPT, "--concept", "(sky:2)")
    misused("locate", photo, PROMPT, "--guidance", 2)
    misused("locate", photo)
    assert files(desk) == {"text.png", photo.name}


@pytest.mark.parametrize("option", [["--steps", 1001], ["--size", "63x64"]])
def test_refused_by_the_model(model, desk: Path, photo: Path, option):
    bad("locate", photo, PROMPT, *option)
    assert files(desk) == {photo.name}
