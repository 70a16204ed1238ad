"""`heedmap locate`: what it saves and prints, and one sentence for whatever goes wrong."""

import errno
import json
import webbrowser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.calling import FILES, PROMPT, bad, call, files, good, raising
from heedmap.drawing import given_pictures
from heedmap.drawing.locating import locate
from heedmap.maps.stability import stability_said
from heedmap.models import pipelines
from heedmap.options import LocateOptions
from heedmap.results.runs import Run


@pytest.fixture
def photo(desk: Path, monkeypatch) -> Path:
    """A photo, of a model that is not asked how well it gives one back."""
    monkeypatch.setattr(given_pictures, "LEAST_RETURNED", 0.0)
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(desk / "My Cat!.png")
    return desk / "My Cat!.png"


def test_locate_saves_a_run_and_says_what(model, desk: Path, photo: Path):
    said = good("locate", photo, PROMPT, "--seed", 7, "--steps", 2)
    folder = desk / "outputs" / "my-cat-a-red-house-7"
    assert files(folder) == FILES
    assert "the picture as the model saw it: 128×96, seed 7, 2 looks" in said
    assert "where “house” is seen" in said and "all that is needed to look again" in said
    found, same = Run.load(folder), locate(model, photo, PROMPT, seed=7, steps=2)
    assert found.settings == same.settings and found.stability == same.stability
    assert f"where “house” is seen, {stability_said(same.maps['house'].stability)} " in said
    assert np.array_equal(found.maps["house"].values, same.maps["house"].values)
    assert good("repeat", folder) == (
        f"{folder}: looked at again, its maps are the same to the byte.\n"
    )


def test_its_options_are_those_of_python(model, desk: Path, photo: Path, monkeypatch):
    some = ("--size", "96x96", "--keep", "layer,step", "--steps", 1, "--json", "-o", "out")
    about = json.loads(good("locate", photo, "house", *some))
    (run,) = about["runs"]
    assert (run["size"], run["steps"], run["folder"]) == ([96, 96], 1, "out")
    assert "stability" not in run["words"][0]  # there is none of one look
    settings = Run.load("out").settings
    assert settings.keep == ("layer", "step") and settings.seed == run["seed"]
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    again = good("locate", photo, "a", "--open", "--quiet", "--force", "-o", "out", "--seed", 1)
    assert again == "out\n"
    assert Run.load("out").settings.steps == LocateOptions.steps
    assert addresses == [(desk / "out" / "index.html").as_uri()]


def test_mistakes_are_one_sentence_and_nothing_is_left(model, desk: Path, photo: Path, monkeypatch):
    (desk / "text.png").write_text("no picture")
    monkeypatch.setattr(pipelines, "load", raising(AssertionError("no model is needed")))
    assert bad("locate", "none.png", PROMPT) == (
        "Error: there is no file none.png: expected a picture (PNG, JPEG, WebP or BMP)\n"
    )
    assert bad("locate", "text.png", PROMPT) == (
        "Error: text.png is no picture that can be read: expected a PNG, JPEG, WebP or BMP file\n"
    )
    assert "is no picture that can be read" in bad("locate", desk, PROMPT)
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: model)
    assert bad("locate", photo, "a (red:2) house").startswith(
        "Error: the prompt 'a (red:2) house' has weights"
    )
    assert "--steps" in bad("locate", photo, PROMPT, "--steps", 1000)
    assert "--size" in bad("locate", photo, PROMPT, "--size", "63x64")
    assert "has no words" in bad("locate", photo, " ")
    assert call("locate", photo, PROMPT, "--guidance", 2).exit_code == 2
    assert sorted(path.name for path in desk.iterdir()) == ["My Cat!.png", "text.png"]


def test_a_full_disk_leaves_nothing(model, desk: Path, photo: Path, monkeypatch):
    monkeypatch.setattr(Run, "_write", raising(OSError(errno.ENOSPC, "No space left on device")))
    assert "no space left on device" in bad("locate", photo, PROMPT, "--steps", 1, "-o", "out")
    assert not (desk / "out").exists()


def test_what_is_looked_for_beside_the_prompt_is_told_and_saved(model, desk: Path, photo: Path):
    sought = ("--concept", "sky", "--concept", "blue tree", "--steps", 1, "--seed", 1)
    said = good("locate", photo, "house", *sought, "-o", "out")
    assert "where “house” is seen" in said and "where “blue tree” is seen" in said
    run = Run.load("out")
    assert run.settings.concepts == ("sky", "blue tree")
    twice = ("--concept", "sky", "--steps", 2, "--seed", 1, "--json", "-o", "twice")
    (told,) = json.loads(good("locate", photo, "a house", *twice))["runs"]
    same = locate(model, photo, "a house", seed=1, steps=2, concepts=["sky"])
    assert {one["number"]: one["stability"] for one in told["words"]} == same.stability
    assert [one["stability"] for one in told["concepts"]] == [same.concepts.stability[0]]
    assert {path for path in files(desk / "out") if "concept" in path} == {
        "concepts.safetensors",
        "concepts.png",
        "words/concept-0-sky.png",
        "words/concept-1-blue-tree.png",
    }
    assert "looked at again, its maps are the same to the byte" in good("repeat", "out")
    assert "sky" in good("inspect", "out", "--concepts")


def test_what_is_made_of_a_located_run_says_how_stable_it_is(model, desk: Path, photo: Path):
    """The maps of a model of random weights are unsteady, or nearly so; which, the run tells."""
    good("locate", photo, PROMPT, "--concept", "sky", "--steps", 2, "--seed", 1, "-o", "out")
    run = Run.load("out")
    words = {word.text: run.stability[word.number] for word in run.maps.words}
    phrase = min(words["red"], words["house"])
    (told,) = json.loads(good("segment", "out", "--json", "-o", "s"))["phrases"]
    assert told["stability"] == phrase
    said = good("segment", "out", "-o", "t")
    assert "stability" in said and stability_said(phrase).removeprefix("stability ") in said
    of = json.loads(good("inspect", "out", "--json", "-o", "i", "-w", "red house", "-w", "a"))
    assert [one["stability"] for one in of["words"]] == [phrase, words["a"]]
    sought = run.concepts.stability[0]
    of = json.loads(good("inspect", "out", "--concepts", "--json", "-o", "c"))
    assert [one["stability"] for one in of["words"]] == [sought]
    said = good("inspect", "out", "--concepts", "-o", "d")
    assert stability_said(sought).removeprefix("stability ") in said
    assert stability_said(words["a"]).removeprefix("stability ") in good(
        "inspect", "out", "-o", "e"
    )


def test_a_single_look_says_that_nothing_is_known_of_its_stability(model, desk: Path, photo: Path):
    told = "from --steps 2 on it is told how stable the maps are"
    assert told in good("locate", photo, PROMPT, "--steps", 1, "-o", "one")
    assert told not in good("locate", photo, PROMPT, "--steps", 2, "-o", "two")
    assert "stability" not in good("segment", "one") + good("inspect", "one")


@pytest.mark.parametrize(
    ("concepts", "said"),
    [
        (["sky", "sky"], "the concept 'sky' is asked for twice: expected each once"),
        (["(sky:2)"], "the concept '(sky:2)' has a weight: expected plain words"),
        (["..."], "the concept '...' has no word: expected one to look for"),
    ],
)
def test_concepts_are_refused_before_a_picture_is_read_or_a_model_is_loaded(
    desk: Path, photo: Path, monkeypatch, concepts, said
):
    monkeypatch.setattr(pipelines, "load", raising(AssertionError("no model is needed")))
    asked = [part for one in concepts for part in ("--concept", one)]
    assert said in bad("locate", photo, PROMPT, *asked)
    assert said in bad("locate", "none.png", PROMPT, *asked)
    assert files(desk) == {photo.name}


def test_every_file_that_is_saved_is_told_with_what_it_is(model, desk: Path, photo: Path):
    sought = ("--concept", "sky", "--keep", "layer,step", "--steps", 2, "--seed", 1)
    said = good("locate", photo, "house", *sought, "-o", "out")
    title, columns, *rows = (line.strip().split(maxsplit=1) for line in said.splitlines())
    told = dict(rows)
    assert (title, columns) == (["out"], ["file", "what it is"])
    assert told.keys() == files(desk / "out")
    assert len(set(told.values())) == len(told)
