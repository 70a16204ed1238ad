"""`heedmap generate`: what it saves and prints, and one sentence for whatever goes wrong."""

import errno
import json
import os
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from making import MARKS
from PIL import Image

from cli.calling import FILES, PROMPT, bad, call, files, good, raising
from heedmap.drawing import generation
from heedmap.files.settings import Confined
from heedmap.maps.heatmaps import HeatMap
from heedmap.models import pipelines
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run


def test_generate_saves_a_run_and_says_what(model, desk: Path):
    said = good("generate", PROMPT, "--seed", 7, "--steps", 2)
    folder = desk / "outputs" / "a-red-house-7"
    assert files(folder) == FILES
    assert list(desk.iterdir()) == [desk / "outputs"]
    lines = [line.split()[0] for line in said.splitlines()]
    assert lines[:2] == [str(folder.relative_to(desk)), "file"]
    assert set(lines[2:]) == FILES
    assert "128×128, seed 7, 2 steps" in said
    assert Run.load(folder).maps["house"].values.shape == (64, 64)


def test_every_file_that_is_written_is_listed(model, desk: Path):
    more = ("--keep", "layer,step", "--concept", "sky")
    said = good("generate", PROMPT, *more, "--steps", 2, "-o", "x")
    found = files(desk / "x")
    assert {"steps.png", "concepts.png", "concepts.safetensors"} < found
    assert {line.split()[0] for line in said.splitlines()[2:]} == found
    about = json.loads(good("generate", PROMPT, *more, "--steps", 2, "--json", "-o", "y"))
    (run,) = about["runs"]
    assert run["step_pictures"] == "y/steps.png"
    plain = json.loads(good("generate", PROMPT, "--steps", 1, "--json", "-o", "z"))
    assert not {"step_pictures", "concept_sheet", "concept_maps"} & plain["runs"][0].keys()


def test_generate_json_is_one_object(model, desk: Path):
    about = json.loads(good("generate", PROMPT, "--seed", 7, "--steps", 1, "--json"))
    (run,) = about["runs"]
    assert (run["prompt"], run["seed"]) == (PROMPT, 7)
    assert [word["word"] for word in run["words"]] == ["a", "red", "house"]
    for file in (run["image"], run["sheet"], *(word["file"] for word in run["words"])):
        with Image.open(file) as picture:
            picture.load()
    assert Path(run["maps"]).is_file()
    assert Path(run["settings"]).is_file()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser was asked to open."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or True)
    return asked


def test_the_page_is_opened_once_it_is_there(model, desk: Path, opened: list[str]):
    some = ("--steps", 1, "--seed", 1, "--quiet", "--open")
    assert good("generate", "a 100% red #house?", *some, "--count", 2, "-o", "x y") == (
        "x y/a-100-red-house-1\nx y/a-100-red-house-2\n"
    )
    good("edit", "a house", "a tree", *some, "-o", "e")
    good("grid", "a house", "a tree", *some, "--cross", "0,1", "-o", "g")
    good("repeat", "e", "-o", "r", "--quiet", "--open")
    pages = ["x y/a-100-red-house-1", "e", "g", "r"]
    assert opened == [(desk / page / "index.html").as_uri() for page in pages]
    for address in opened:
        assert Path(unquote(urlparse(address).path)).is_file()
    assert "name a folder with --out" in bad("repeat", "e", "--open")
    assert len(opened) == 4


def test_without_a_browser_the_run_stays_saved(model, desk: Path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    result = call("generate", PROMPT, "--steps", 1, "-o", "x", "--open")
    told = (0, "No browser was found: open x/index.html in one yourself.\n")
    assert (result.exit_code, result.stderr) == told
    assert files(desk / "x") == FILES


def test_a_prompt_that_is_cut_is_a_warning(model, desk: Path):
    asked = ("generate", "house " * 74 + "red tree", "--seed", 1, "--steps", 1)
    said = (
        "are not read, since the model takes 77 tokens: 'red' (in part) and 'tree', from word 74 "
        "on; shorten the prompt, or move the word towards its start"
    )
    result = call(*asked, "--count", 2, "--json")
    assert result.exit_code == 0
    (warned,) = json.loads(result.stdout)["warnings"]
    assert warned.startswith("2 words of 'house house ") and warned.endswith(said)
    assert result.stderr == f"Warning: {warned}\n"
    result = call(*asked)
    assert result.stderr == f"Warning: {warned}\n" and "not read" not in result.stdout


def test_generate_passes_the_options_on(model, desk: Path):
    good(
        *("generate", PROMPT, "--seed", 5, "--steps", 2, "--guidance", 3.5, "--size", "96x128"),
        *("--negative", "blue", "--keep", "step,head", "--out", "deep/down", "--quiet"),
        *("--confine", "house=0,0,32,96"),
    )
    settings = Run.load(desk / "deep" / "down").settings
    assert settings.edits == (Confined(word="house", where=(0, 0, 32, 96)),)
    expected = {
        "prompt": PROMPT, "seed": 5, "steps": 2, "guidance": 3.5, "size": (96, 128),
        "negative": "blue", "keep": ("head", "step"),
    }  # fmt: skip
    assert {name: getattr(settings, name) for name in expected} == expected


def test_generate_without_a_seed_tells_the_one_it_took(model, desk: Path):
    first, second = (good("generate", PROMPT, "--steps", 1, "--quiet").strip() for _ in "ab")
    assert first != second
    seed = Run.load(first).settings.seed
    assert first == f"outputs/a-red-house-{seed}"


def test_generate_again_takes_a_fresh_folder(model):
    options = ("generate", PROMPT, "--seed", 7, "--steps", 1, "--quiet")
    first, second = good(*options).strip(), good(*options).strip()
    assert (first, second) == ("outputs/a-red-house-7", "outputs/a-red-house-7-2")
    for name in FILES - {"run.json"}:
        assert (Path(first) / name).read_bytes() == (Path(second) / name).read_bytes(), name


def test_count_draws_the_pictures_of_the_seeds_alone(model, desk: Path):
    folders = good(
        "generate", PROMPT, "--seed", 7, "--steps", 2, "--count", 3, "--out", "many", "-q"
    ).split()
    assert folders == [f"many/a-red-house-{seed}" for seed in (7, 8, 9)]
    alone = good("generate", PROMPT, "--seed", 8, "--steps", 2, "--out", "one", "-q").strip()
    for name in ("image.png", "maps.safetensors"):
        assert (Path(alone) / name).read_bytes() == (Path(folders[1]) / name).read_bytes()


def test_the_last_seed_of_a_count_is_looked_at_before_any_is_drawn(model, desk: Path):
    said = bad("generate", PROMPT, "--steps", 1, "--seed", 2**63 - 1, "--count", 2)
    assert f"--count 2 from seed {2**63 - 1} on leads beyond the largest seed" in said
    assert files(desk) == set()
    good("generate", PROMPT, "--steps", 1, "--seed", 2**63 - 2, "--count", 2, "-q")


def test_out_replaces_a_run_by_force_but_nothing_else(model, desk: Path, monkeypatch):
    options = ("generate", PROMPT, "--steps", 1, "--out", "mine", "-q", "--seed")
    (desk / "mine").mkdir()  # an empty folder is as good as none
    good(*options, 1)
    good("inspect", "mine", "-w", "red", "-q")
    (desk / "mine" / "notes.txt").write_text("five years")
    mine = {name: (desk / "mine" / name).read_bytes() for name in files(desk / "mine") - FILES}
    assert {"notes.txt", "inspect/red/sheet.png"} < mine.keys()
    result = call(*options, 2, "--force")
    assert (result.exception, result.stdout) == (None, "mine\n")
    assert (
        result.stderr == "Warning: mine/inspect is of what was replaced: delete what is of no use\n"
    )
    assert Run.load("mine").settings.seed == 2
    assert mine == {n: (desk / "mine" / n).read_bytes() for n in files(desk / "mine") - FILES}
    assert list(desk.iterdir()) == [desk / "mine"]
    monkeypatch.setattr(pipelines, "load", no_model)
    assert "mine exists and holds a run of heedmap: nothing was written" in bad(*options, 3)
    assert Run.load("mine").settings.seed == 2


def test_force_replaces_under_the_default_name(model, desk: Path):
    options = ("generate", PROMPT, "--seed", 7, "--steps", 1, "--quiet")
    first = good(*options).strip()
    (desk / first / "notes.txt").write_text("five years")
    assert good(*options, "--force").strip() == first == "outputs/a-red-house-7"
    assert (desk / first / "notes.txt").read_text() == "five years"
    (desk / first / "run.json").write_text("mine")  # now it is somebody else's
    assert good(*options, "--force").strip() == f"{first}-2"


def no_model(*_, **__):
    raise AssertionError("loaded before it was clear that the run can be saved")


def test_out_is_checked_before_anything_is_computed(desk: Path, monkeypatch):
    monkeypatch.setattr(pipelines, "load", no_model)
    (desk / "letters").mkdir()
    (desk / "letters" / "mother.txt").write_text("Dear …")
    said = bad("generate", PROMPT, "--out", "letters")
    assert "letters exists and is not a run of heedmap: nothing was written" in said
    assert said == bad("generate", PROMPT, "--out", "letters", "--force")
    for count in (1, 2):
        file = "letters/mother.txt"
        said = bad("generate", PROMPT, "--out", f"{file}/run", "--count", count)
        assert f"{file} is not a folder: name one that is" in said
    assert "mother.txt is not a folder" in bad("generate", PROMPT, "--out", file, "--count", 2)
    assert "mother.txt is a file" in bad("generate", PROMPT, "--out", file)
    assert files(desk) == {"letters/mother.txt"}


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc and links")
@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize(
    ("out", "part"),
    [
        ("dangling", "dangling is a link"),
        ("linked", "linked is a link"),
        ("/proc/x", "nothing can be written to /proc (no such file or directory)"),
        ("x" * 256, "(file name too long: a name has 256 bytes"),
        (".", ". exists and is not a"),
    ],
)
def test_out_that_cannot_be_written_to_is_told_before_a_model_is_loaded(
    saved, desk: Path, monkeypatch, out, part, force
):
    monkeypatch.setattr(pipelines, "load", no_model)
    (desk / "dangling").symlink_to("nowhere")
    (desk / "linked").symlink_to(saved, target_is_directory=True)
    before = files(desk)
    for verb in (
        ("generate", PROMPT),
        ("edit", PROMPT, "a blue house"),
        ("grid", PROMPT, "a blue house", "--count", 2),
        ("repeat", saved),
        ("inspect", saved),
    ):
        assert part in bad(*verb, "--out", out, *force)
    assert files(desk) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_out_that_is_read_only(desk: Path, monkeypatch):
    monkeypatch.setattr(pipelines, "load", no_model)
    (desk / "locked").mkdir(mode=0o500)
    assert "nothing can be written to" in bad("generate", PROMPT, "--out", "locked/run")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["", "--steps", "1"], "the prompt '' has no words"),
        (["  ", "--steps", "1"], "has no words"),
        ([PROMPT, "--size", "100x100"], "multiples of 8"),
        ([PROMPT, "--steps", "5000"], "1 to 999"),
        ([PROMPT, "--guidance", "1e9"], "0 to 100"),
        ([PROMPT, "--confine", "cat=0,0,9,9"], "'cat' is not in the prompt"),
        ([PROMPT, "--confine", "house=0,0,9999,9"], "does not lie in the picture"),
    ],
)
def test_generate_says_what_is_wrong_and_writes_nothing(model, desk, arguments, part):
    assert part in bad("generate", *arguments)
    assert list(desk.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("nowhere/at/all", "there is no model nowhere/at/all"),
        ("a" * 1900, "there is no model aaa"),
        ("empty", "no model_index.json"),
    ],
)
def test_models_that_are_not_there(desk: Path, model: str, part: str):
    (desk / "empty").mkdir()
    assert part in bad("generate", PROMPT, "--model", model)
    assert part in bad("words", PROMPT, "--model", model)
    assert part in bad("layers", "--model", model)
    assert files(desk) == set()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x.png"),
            "house-7 could not be written (no space left on device): nothing was saved; make room",
        ),
        (MemoryError(), "out of memory: try a smaller --size"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory: try a"),
    ],
)
def test_what_the_machine_refuses_is_a_sentence_too(model, desk, monkeypatch, error, sentence):
    monkeypatch.setattr(HeatMap, "drawn", raising(error))
    assert sentence in bad("generate", PROMPT, "--steps", 1, "--seed", 7)
    assert list(desk.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("x" * 300, "(file name too long: a name has 300 bytes, and a disk takes 255): choose a"),
        ("mine", "mine holds words, a link where heedmap writes a folder: nothing was written"),
    ],
)
@pytest.mark.parametrize("option", ["-o", "--out"])
def test_a_place_that_will_not_do_is_told_before_anything_is_drawn(
    model, desk, monkeypatch, option, place, sentence
):
    (desk / "mine").mkdir()
    (desk / "mine" / "run.json").write_text(json.dumps(MARKS["run.json"]))
    (desk / "mine" / "words").symlink_to(desk)
    monkeypatch.setattr(generation, "generate", raising(AssertionError("it draws")))
    assert sentence in bad("generate", PROMPT, option, place, "--force")
    assert files(desk) == {"mine/run.json"}


def test_an_empty_folder_one_is_in_is_filled(model, desk: Path):
    assert "image.png" in good("generate", PROMPT, "--steps", 1, "--seed", 7, "-o", ".")
    assert files(desk) == FILES
    assert ". exists and holds a run of heedmap" in bad("generate", PROMPT, "-o", ".")
    again = bad("generate", PROMPT, "-o", ".", "--force")
    assert "cannot be replaced as a whole (it is the folder you are in, or holds that)" in again


def test_a_bug_of_ours_is_not_dressed_up(model, monkeypatch):
    monkeypatch.setattr(generation, "generate", raising(RuntimeError("a bug")))
    result = call("generate", PROMPT)
    assert isinstance(result.exception, RuntimeError)
    assert result.exit_code == 1


def test_interrupt_leaves_nothing_and_exits_with_130(model, desk: Path, monkeypatch):
    monkeypatch.setattr(HeatMap, "drawn", raising(KeyboardInterrupt()))
    assert call("generate", PROMPT, "--steps", 1).exit_code == 130
    assert files(desk) == set()


def test_words_that_are_looked_for(model, desk: Path):
    some = ("--seed", 7, "--steps", 1, "--concept", "sky", "--concept", "red house")
    about = json.loads(good("generate", "a cat", *some, "-o", "x", "--json"))
    (run,) = about["runs"]
    assert [one["concept"] for one in run["concepts"]] == ["sky", "red house"]
    for one in run["concepts"]:
        assert Path(one["file"]).is_file()
    saved = Run.load(desk / "x")
    assert [word.text for word in saved.concepts.words] == ["sky", "red house"]
    plain = json.loads(good("generate", "a cat", *some[:4], "-o", "y", "--json"))
    assert plain["runs"][0]["concepts"] == []
    pictures = [Image.open(desk / name / "image.png").tobytes() for name in ("x", "y")]
    assert pictures[0] == pictures[1]
    said = good("generate", "a cat", *some, "-o", "z")
    assert "words/concept-1-red-house.png" in said and "where “red house” would act" in said
    assert "the concept '(sky:2)' has a weight: expected plain words" in bad(
        "generate", "a cat", "--concept", "(sky:2)"
    )
    # Looked at again, with no model.
    seen = json.loads(good("inspect", "x", "--concepts", "-w", "red house", "--refined", "--json"))
    assert [word["word"] for word in seen["words"]] == ["red house"]
    assert seen["selection"]["concepts"] is True and "concepts-refined" in seen["folder"]
    masks = json.loads(good("segment", "x", "--concepts", "--json"))
    assert [one["name"] for one in masks["phrases"]] == ["sky", "red house"]
    for verb in ("inspect", "segment"):
        assert bad(verb, "y", "--concepts") == (
            "Error: --concepts is given, and this run looked for none: expected one that was made "
            "with --concept WORD\n"
        )


def test_options_under_the_names_of_diffusers(model, desk: Path):
    theirs = ("--num_inference_steps", 2, "--guidance-scale=3", "--negative-prompt", "no-cat_dog")
    good("generate", PROMPT, "--seed", 1, "--size", 96, "--keep", "all", "-o", "a", *theirs)
    about = Run.load("a").settings
    assert (about.steps, about.guidance, about.negative) == (2, 3, "no-cat_dog")
    assert about.size == (96, 96) and set(about.keep) == {"layer", "step", "head"}
    ours = ("--blend_from", 0.5, "--only", "house->sea", "--num-inference-steps", 2)
    good("edit", PROMPT, "a red sea", "--seed", 1, "-o", "b", *ours)
    assert Pair.load("b").about.blend_from == 0.5
