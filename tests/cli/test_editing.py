"""`heedmap edit`: what it saves and prints, and one sentence for whatever goes wrong."""

import json

import numpy as np
import pytest
from PIL import Image

from cli.calling import bad, call, files, good
from heedmap.files.notes import to_json
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair

SWAP = ("edit", "a red house", "a red sea", "--seed", 7, "--steps", 2)


def test_saves_a_pair_and_says_what(model, desk):
    said = good(*SWAP)
    folder = desk / "outputs" / "a-red-sea-7"
    assert list((desk / "outputs").iterdir()) == [folder]
    pair = Pair.load(folder)
    assert pair.about.cross == (0.0, 0.8)
    assert {"sheet.png", "difference.png", "pair.json", "source/image.png"} <= files(folder)
    for line in (
        "outputs/a-red-sea-7",
        "“a red house”: 128×128, seed 7, 2 steps",
        "inside of the changed words",
        "Replace: 'house' became 'sea'",
        "of the attention: it acted 14 times (each layer at each step counts), and took over",
    ):
        assert line in said


def test_what_was_not_taken_over_is_told_so(model, desk):
    said = good(*SWAP, "--self", "0").splitlines()
    assert said[-1].endswith("and took over none of the source's self-attention.")


def test_one_object_of_json_and_several_targets(model, desk):
    targets = ("a blue house", "a (red:2) house")
    said = json.loads(
        good(
            *("edit", "a red house", *targets, "--seed", 3, "--steps", 2, "--size", "128x96"),
            *("--cross", "0:0.5", "--self", "0", "--out", "mine", "--json"),
        )
    )
    assert [one["edited"] for one in said["edits"]] == list(targets)
    for one in said["edits"]:
        assert one["about"]["cross"] == [0, 0.5]
        assert one["about"]["self_sites"] == 0
        assert one["size"] == [128, 96]
        assert to_json(Pair.load(desk / one["folder"]).about) == one["about"]
        assert (desk / one["files"]["sheet"]).is_file()
    assert len(list((desk / "mine").iterdir())) == 2


def test_blend_and_weights(model, desk):
    assert good(*SWAP, "--only", "house->sea", "--out", "x", "--quiet") == "x\n"
    assert Pair.load("x").blend is not None
    asked = "--kind", "refine", "--only", "house->sea", "--protect", "red", "--out", "y"
    assert "The mask is where these act: red house→red sea.\n" in good(*SWAP, *asked)
    assert Pair.load("y").about.protect == ("red",)
    good("edit", "a (red:3) house", "--seed", 1, "--steps", 2, "--out", "z")
    assert Pair.load("z").about.kind == "reweight"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["edit", "a red house"], "the same words and the same weights"),
        ([*SWAP, "--only", "dog->sea"], "'dog'"),
        ([*SWAP, "--only", "house"], "--only is 'house': expected a word, an arrow and a word"),
        ([*SWAP, "--protect", "red"], "pass --only as well, as in --only 'cat->dog'"),
        (["edit", "a house", "a red sea", "--kind", "replace"], "use --kind refine"),
        (["edit", "a (house:2", "a sea"], "is not closed"),
        (["edit", "", "a sea"], "has no words"),
        ([*SWAP, "--out", "thesis"], "thesis is not empty"),
    ],
)
def test_one_sentence_and_nothing_written(model, desk, arguments, sentence):
    (desk / "thesis").mkdir()
    (desk / "thesis" / "one.txt").write_text("Since …")
    assert sentence in bad(*arguments)
    assert [p.name for p in desk.iterdir()] == ["thesis"]


def test_usage_errors():
    result = call("edit", "a house", "a sea", "--cross", "2")
    assert result.exit_code == 2
    assert "--cross is '2': expected a part of the run" in " ".join(result.stderr.split())


def test_an_only_that_never_acted_is_told(model, desk):
    result = call("edit", *SWAP[1:], "--only", "house->sea", "--blend-from", 0.9, "-o", "w", "-q")
    assert (result.exit_code, result.stdout) == (0, "w\n")
    assert result.stderr.startswith("Warning: the blend of 'house->sea' kept nothing in place")
    result = call("generate", "a house", "--steps", 1, "--negative", "sea", "--guidance", 1, "-q")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: the negative prompt 'sea' changed nothing, since gui")


def test_a_warning_is_told(model, desk):
    result = call(
        "edit", "a (red:1.000001) house", "--seed", "1", "--steps", "1", "--out", "z", "-q"
    )
    assert (result.exit_code, result.stdout) == (0, "z\n")
    assert result.stderr.startswith("Warning: the edit")
    assert "changed nothing" in result.stderr


def test_every_option_of_the_library(model, desk):
    arguments = ("--words", "sea=0.2", "--words", "a red=0:1", "--only", "house->sea")
    more = ("--threshold", 0.5, "--blend-from", 0, "--keep", "layer,step", "--batch", 2)
    good(*SWAP, *arguments, *more, "--out", "x")
    about = Pair.load("x").about
    assert about.windows == {"sea": (0.0, 0.2), "a red": (0.0, 1.0)}
    assert (about.threshold, about.blend_from) == (0.5, 0.0)
    assert Pair.load("x").edited.settings.keep == ("layer", "step")
    free = ("--cross", 0, "--self", 0, "--seed", 2, "--steps", 2)
    good("edit", "a (red:3) house", "--renormalize", *free, "--out", "y")
    assert Pair.load("y").about.renormalize is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--cross", "0,0.5"],
            "--cross is '0,0.5': expected one part of the run, such as 0.8; `heedmap grid`",
        ),
        (["--self", "0,0.2,…,1"], "--self is '0,0.2,…,1': expected one part of the run"),
        (["--weight", "red=0,1"], "no option --weight: `heedmap grid` has one"),
        (["--count", "3"], "`heedmap generate` and `heedmap grid` have one"),
        (["--words", "red=0.2", "--words", "red=0.3"], "--words has 'red' twice"),
        (["--blend-from", "1"], "from 0 to below 1"),
        (["--threshold", "0.5"], "Error: --threshold is 0.5, but nothing is blended: pass --only"),
        (["--blend-from", "0.5"], "Error: --blend-from is 0.5, but nothing is blended"),
        (
            ["--threshold", "0.5", "--protect", "red"],
            "Error: --threshold is 0.5, but nothing is blended",
        ),
        (
            ["--threshold", "0.5", "--blend-from", "0.5"],
            "Error: --blend-from is 0.5 and --threshold is 0.5, but nothing is blended",
        ),
    ],
)
def test_edits_in_one_sentence_and_nothing_written(model, desk, arguments, sentence):
    assert sentence in bad(*SWAP, *arguments)
    assert list(desk.iterdir()) == []


def test_warnings_are_listed_and_told_once(model, desk):
    result = call(*SWAP, "--cross", "0.1:0.2", "--json")
    (told,) = json.loads(result.stdout)["warnings"]
    assert told.startswith("the edit 'a red sea' took no cross-attention from its source in its ")
    assert result.stderr == f"Warning: {told}\n"


def told_badly(*arguments: object) -> str:
    """What is printed where a model of random weights gives a picture back: not well."""
    result = call(*arguments)
    assert result.exception is None, (result.output, result.exception)
    assert "Warning: the picture comes back at " in result.stderr
    return result.stdout


def test_a_picture_of_ones_own(model, desk):
    Image.fromarray(np.full((96, 200, 3), 90, np.uint8)).save("photo.png")
    said = told_badly(*SWAP, "--image", "photo.png", "--out", "mine")
    pair = Pair.load("mine")
    back = pair.about.reconstruction
    assert back is not None and pair.edited.settings.given is not None
    assert pair.edited.settings.given.size == (200, 96)
    assert f"Your picture comes back at {back.psnr_db:.1f} dB (PSNR)." in said
    assert "your picture, as the model saw it" in said
    assert "your picture, as it comes back: " in said
    assert "“a red sea”, made of your picture" in said and "“a red house”: " not in said
    asked = (*SWAP, "--image", "photo.png", "--out", "again", "--json")
    (one,) = json.loads(told_badly(*asked))["edits"]
    assert (desk / one["files"]["given_image"]).is_file()
    (drawn,) = json.loads(good(*SWAP, "--out", "drawn", "--json"))["edits"]
    assert "given_image" not in drawn["files"]
    weighed = ("grid", "a red house", "--weight", "red=1,2", "--steps", 1)
    said = told_badly(*weighed, "--image", "photo.png", "--out", "g")
    made = Grid.load("g").cells[0].pair
    back = made.about.reconstruction
    assert made.source.given is not None and back is not None
    assert said.count(f"Your picture comes back at {back.psnr_db:.1f} dB (PSNR).") == 1
    asked = (*weighed, "--image", "photo.png", "--seed", made.source.settings.seed, "--json")
    told = json.loads(told_badly(*asked, "--out", "j"))["grid"]
    assert told["reconstruction"] == to_json(back)
    drawn = (*weighed, "--seed", 7, "--out", "d", "--json")
    assert "reconstruction" not in json.loads(good(*drawn))["grid"]


@pytest.mark.parametrize("verb", [SWAP, ("grid", "a red house", "--weight", "red=1,2")])
def test_a_picture_that_is_none_is_told_before_a_model_is_loaded(desk, verb):
    (desk / "text.png").write_text("no picture")
    assert "is not a picture that can be read" in bad(*verb, "--image", "text.png")
    assert "none.png is missing" in bad(*verb, "--image", "none.png")
    assert not (desk / "outputs").exists()
