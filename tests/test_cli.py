"""The command line: what it prints, where it writes, and one sentence for whatever goes wrong."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from conftest import random_pipeline
from PIL import Image
from typer.testing import CliRunner

import heedmap
from heedmap import cli, dimensions, models, recordings, sheets, studio
from heedmap.cli import options
from heedmap.maps import HeatMap, HeatMaps
from heedmap.runs import Run
from heedmap.tokens import tokenize

PROMPT = "a red house"
FILES = {
    "image.png",
    "index.html",
    "sheet.png",
    "words/0-a.png",
    "words/1-red.png",
    "words/2-house.png",
    "maps.safetensors",
    "run.json",
}


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")  # set by the verbs, and so put back afterwards
    return tmp_path


@pytest.fixture(scope="module")
def random_model():
    return random_pipeline()


@pytest.fixture
def model(random_model, monkeypatch: pytest.MonkeyPatch):
    """The random model in place of every model."""
    monkeypatch.setattr(models, "load", lambda *_, **__: random_model)
    monkeypatch.setattr(models, "tokenizer", lambda _=None: random_model.tokenizer)
    return random_model


@pytest.fixture(scope="module")
def run(random_model) -> Run:
    return studio.generate(
        random_model, PROMPT, seed=3, steps=3, keep=("layer", "step", "head"), progress=quiet
    )


@pytest.fixture
def saved(run: Run, desk: Path) -> Path:
    return run.save(desk / "saved")


def quiet(step: int, total: int) -> None:
    """No progress bar."""


def call(*arguments: object):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def good(*arguments: object) -> str:
    """What a verb prints that goes well; nothing may be on stderr."""
    result = call(*arguments)
    assert result.exception is None, (result.output, result.exception)
    assert result.stderr == ""
    return result.stdout


def bad(*arguments: object) -> str:
    """The sentence of a verb that fails; nothing may be on stdout."""
    result = call(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def in_a_process(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heedmap.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [("512x768", (512, 768)), ("64X32", (64, 32)), ("8×16", (8, 16))]
)
def test_sizes(text: str, size: tuple[int, int]):
    assert options.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "512", "512x", "5.5x4", "-8x8", "8x8x8", "8 by 8"])
def test_what_is_no_size(text: str):
    with pytest.raises(typer.BadParameter, match="is not WxH in pixels"):
        options.parse_size(text)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("0:3", [0, 1, 2]),
        ("7:", [7, 8, 9]),
        (":2", [0, 1]),
        ("4", [4]),
        ("-1", [9]),
        ("-3:-1", [7, 8]),
    ],
)
def test_ranges(text: str, taken: list[int]):
    assert list(range(10))[options.parse_range(text)] == taken
    assert options.parse_range(
        options.show_range(options.parse_range(text))
    ) == options.parse_range(text)


@pytest.mark.parametrize("text", ["", ":", "a:b", "1:2:3", "1.5"])
def test_what_is_no_range(text: str):
    with pytest.raises(typer.BadParameter, match="is not a range"):
        options.parse_range(text)


def test_lists():
    assert options.AXES == recordings.AXES
    assert options.parse_numbers("0, 2") == [0, 2]
    assert options.parse_names("up, mid,") == ["up", "mid"]
    assert options.parse_axes("step,layer") == {"step", "layer"}
    assert options.parse_over("heads, layers") == ["layers", "heads"]
    assert options.parse_over("steps") == ["steps"]
    with pytest.raises(typer.BadParameter, match="is not a list of whole numbers"):
        options.parse_numbers("0;2")
    with pytest.raises(typer.BadParameter, match="'time' is no axis; there are layer, step, head"):
        options.parse_axes("layer,time")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate"], "Missing argument 'PROMPT'"),
        (["generate", "a", "--size", "12"], "'12' is not WxH in pixels, such as 512x768"),
        (["generate", "a", "--steps", "0"], "greater than or equal to 1"),
        (["generate", "a", "--count", "0"], "greater than or equal to 1"),
        (["generate", "a", "--guidance", "nan"], "greater than or equal to 0"),
        (["generate", "a", "--seed", "-1"], "greater than or equal to 0"),
        (["generate", "a", "--device", "tpu"], "'tpu' is not one of"),
        (["generate", "a", "--keep", "time"], "'time' is no axis"),
        (["generate", "a", "--confine", "a"], "'a' is not a word and its box"),
        (["generate", "a", "--confine", "a=1,2,3"], "'1,2,3' is no box; write LEFT,TOP,RIGHT"),
        (["inspect", "x", "--steps", "late"], "'late' is not a range of steps"),
        (["inspect", "x", "--heads", "all"], "'all' is not a list of whole numbers"),
        (["inspect", "x", "--over", "steps,heads"], "'steps,heads' is no sheet; there are steps"),
        (["compare"], "Missing argument 'RUN"),
        (["paint"], "No such command 'paint'"),
        (["generate", "a", "--sedd", "1"], "No such option"),
    ],
)
def test_usage_errors(arguments: list[str], sentence: str):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in " ".join(result.stderr.split())


@pytest.mark.parametrize("verb", ["generate", "edit", "inspect", "compare", "words", "layers"])
def test_every_option_is_explained(verb: str):
    page = " ".join(good(verb, "--help").split())
    for command in typer.main.get_command(cli.app).commands[verb].params:
        assert command.help, f"{verb} {command.name} has no help"
        assert " ".join(command.help.split()) in page


def test_version():
    assert good("--version") == f"heedmap {heedmap.__version__}\n"


# --- generate ---------------------------------------------------------------------------------


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


def test_generate_passes_the_options_on(model, desk: Path):
    good(
        *("generate", PROMPT, "--seed", 5, "--steps", 2, "--guidance", 3.5, "--size", "64x96"),
        *("--negative", "blue", "--keep", "step,head", "--out", "deep/down", "--quiet"),
        *("--confine", "house=0,0,32,96"),
    )
    settings = Run.load(desk / "deep" / "down").settings
    (edit,) = settings["edits"]
    assert (edit["kind"], edit["word"], edit["where"]) == ("confine", "house", [0, 0, 32, 96])
    expected = {
        "prompt": PROMPT, "seed": 5, "steps": 2, "guidance": 3.5, "size": [64, 96],
        "negative": "blue", "keep": ["head", "step"],
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected


def test_generate_without_a_seed_tells_the_one_it_took(model, desk: Path):
    first, second = (good("generate", PROMPT, "--steps", 1, "--quiet").strip() for _ in "ab")
    assert first != second
    seed = Run.load(first).settings["seed"]
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


def test_out_replaces_a_run_but_nothing_else(model, desk: Path):
    for seed in (1, 2):
        good("generate", PROMPT, "--seed", seed, "--steps", 1, "--out", "mine", "-q")
    assert Run.load("mine").settings["seed"] == 2
    assert list(desk.iterdir()) == [desk / "mine"]


def no_model(*_, **__):
    raise AssertionError("loaded before it was clear that the run can be saved")


def test_out_is_checked_before_anything_is_computed(desk: Path, monkeypatch):
    monkeypatch.setattr(models, "load", no_model)
    (desk / "letters").mkdir()
    (desk / "letters" / "mother.txt").write_text("Dear …")
    said = bad("generate", PROMPT, "--out", "letters")
    assert "letters exists and is not a run of heedmap" in said
    for count in (1, 2):
        file = "letters/mother.txt"
        said = bad("generate", PROMPT, "--out", f"{file}/run", "--count", count)
        assert f"{file}; choose another --out" in said
    assert "mother.txt; choose" in bad("generate", PROMPT, "--out", file, "--count", 2)
    assert files(desk) == {"letters/mother.txt"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_out_that_is_read_only(desk: Path, monkeypatch):
    monkeypatch.setattr(models, "load", no_model)
    (desk / "locked").mkdir(mode=0o500)
    assert "Nothing can be written to" in bad("generate", PROMPT, "--out", "locked/run")


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
        ("nowhere/at/all", "there is no model folder nowhere/at/all"),
        ("empty", "no model_index.json"),
    ],
)
def test_models_that_are_not_there(desk: Path, model: str, part: str):
    (desk / "empty").mkdir()
    assert part in bad("generate", PROMPT, "--model", model)
    assert part in bad("words", PROMPT, "--model", model)
    assert part in bad("layers", "--model", model)
    assert files(desk) == set()


def raising(error: BaseException):
    def function(*_, **__):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x.png"),
            "No space left on device: x.png",
        ),
        (MemoryError(), "Out of memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "Out of memory"),
    ],
)
def test_what_the_machine_refuses_is_a_sentence_too(model, desk, monkeypatch, error, sentence):
    monkeypatch.setattr(HeatMap, "overlay", raising(error))
    assert sentence in bad("generate", PROMPT, "--steps", 1)
    assert files(desk) == set()


def test_a_bug_of_ours_is_not_dressed_up(model, monkeypatch):
    monkeypatch.setattr(studio, "generate", raising(RuntimeError("a bug")))
    result = call("generate", PROMPT)
    assert isinstance(result.exception, RuntimeError)
    assert result.exit_code == 1


def test_interrupt_leaves_nothing_and_exits_with_130(model, desk: Path, monkeypatch):
    monkeypatch.setattr(HeatMap, "overlay", raising(KeyboardInterrupt()))
    assert call("generate", PROMPT, "--steps", 1).exit_code == 130
    assert files(desk) == set()


# --- inspect ----------------------------------------------------------------------------------


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
        assert tuple(word["peak"]) == heat.peak
        with Image.open(word["file"]) as picture:
            expected = heat.overlay(scale="shared")
            assert np.array_equal(np.asarray(picture), np.asarray(expected))


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
    assert good("inspect", saved, *arguments).strip() == folder
    assert [p.name for p in (saved / "inspect").iterdir()] == [Path(folder).name]


def test_inspect_over_the_steps(saved: Path, run: Run):
    said = good("inspect", saved, "-w", "house", "--over", "steps")
    assert "Over its steps: timeline.png, timeline.gif" in said
    folder = saved / "inspect" / "house-over-steps"
    assert files(folder) == {
        "inspect.json", "sheet.png", "words/house.png", "timeline.png", "timeline.gif",
    }  # fmt: skip
    with Image.open(folder / "timeline.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(run.timeline("house")))
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
    expected = sheets.layers_by_heads(part, "house", axes=axes, scale="shared")
    with Image.open(path) as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(expected))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "--over shows one word; got 3: name one with --word"),
        (["-w", "red", "-w", "house"], "--over shows one word; got 2"),
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
        (["-w", "hose"], "'hose' is not in the prompt. Did you mean 'house'?"),
        (["-w", "#9"], "There is no word number 9"),
        (["-w", "#one"], "'#' is followed by the number of a word; got '#one'"),
        (["-w", ""], "no word to look for"),
        (["--layers", "sideways"], "no layer fits"),
        (["--steps", "7:9"], "no step fits"),
        (["--heads", "99"], "head 99 is not there"),
    ],
)
def test_inspect_says_what_is_wrong_and_writes_nothing(saved: Path, arguments, part):
    before = files(saved)
    assert part in bad("inspect", saved, *arguments)
    assert files(saved) == before


def test_words_without_letters_keep_files_of_their_own(random_model, desk: Path):
    drawn = studio.generate(random_model, "🏠 🌳 house", seed=3, steps=1, progress=quiet)
    drawn.save(desk / "drawn")
    words = ("-w", "🏠", "-w", "🌳", "-w", "🏠")
    about = json.loads(good("inspect", "drawn", *words, "--json"))
    assert [word["word"] for word in about["words"]] == ["🏠", "🌳"]
    assert len({word["file"] for word in about["words"]}) == 2
    assert all(Path(word["file"]).is_file() for word in about["words"])


def test_inspect_of_what_was_not_kept(random_model, desk: Path):
    bare = studio.generate(random_model, PROMPT, seed=3, steps=1, keep=(), progress=quiet)
    bare.save(desk / "bare")
    for axis, value in (("layer", "up"), ("step", "0:1"), ("head", "0")):
        said = bad("inspect", "bare", f"--{axis}s", value)
        assert f"record again with keep including '{axis}'" in said
        said = bad("inspect", "bare", "-w", "red", "--over", f"{axis}s")
        assert f"record again with keep including '{axis}'" in said


def test_inspect_of_what_is_no_run(desk: Path):
    assert "nowhere is not a run" in bad("inspect", "nowhere")
    (desk / "run.json").write_text("{")
    assert "is not JSON" in bad("inspect", desk)
    assert files(desk) == {"run.json"}


def test_inspect_writes_whole_or_not_at_all(saved: Path, desk: Path, monkeypatch):
    good("inspect", saved, "--out", "seen", "--scale", "word")
    before = {name: (desk / "seen" / name).read_bytes() for name in files(desk / "seen")}
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(HeatMap, "overlay", raising(full))
        assert "No space left" in bad("inspect", saved, "--out", "seen")
        assert "No space left" in bad("inspect", saved, "--out", "new")
    assert {p.name for p in desk.iterdir()} == {"saved", "seen"}
    assert {name: (desk / "seen" / name).read_bytes() for name in files(desk / "seen")} == before
    good("inspect", saved, "--out", "seen", "--scale", "raw")
    assert json.loads((desk / "seen" / "inspect.json").read_text())["selection"]["scale"] == "raw"
    (desk / "letters").mkdir()
    said = bad("inspect", saved, "--out", "letters")
    assert "letters exists and is not a selection of a run" in said


def test_inspect_loads_no_model_and_no_torch(saved: Path):
    code = f"""
import sys
from heedmap.cli import app
try:
    app(["inspect", {str(saved)!r}, "-w", "house", "-q"])
except SystemExit as stop:
    assert not stop.code, stop.code
assert not {{"torch", "diffusers", "transformers"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- compare ----------------------------------------------------------------------------------


@pytest.fixture
def other(random_model, saved: Path, desk: Path) -> Path:
    drawn = studio.generate(random_model, "a blue house", seed=4, steps=1, progress=quiet)
    return drawn.save(desk / "other")


def test_compare_draws_one_sheet(saved: Path, other: Path, desk: Path):
    lines = good("compare", saved, other).splitlines()
    assert lines[0] == "outputs/compare-saved-other.png"
    assert [line.split()[0] for line in lines[2:4]] == ["a", "a"]
    assert lines[2].startswith("a red house, seed 3, 3 steps  a  ")
    assert lines[-1] == "Shares of attention, averaged over all layers, heads and steps of a run."
    expected = heedmap.compare([Run.load(saved), Run.load(other)])
    with Image.open(lines[0]) as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(expected))
    assert good("compare", saved, other, "-q") == "outputs/compare-saved-other-2.png\n"
    assert {p.name for p in desk.iterdir()} == {"saved", "other", "outputs"}


def test_compare_chosen_words(saved: Path, other: Path, run: Run):
    arguments = ("-w", "red", "-w", "house", "--scale", "word", "--out", "deep/sheet.png")
    about = json.loads(good("compare", saved, other, *arguments, "--json"))
    assert (about["file"], about["scale"]) == ("deep/sheet.png", "word")
    assert about["words"] == ["red", "house"]
    first, second = about["runs"]
    assert (first["run"], second["run"]) == (str(saved), str(other))
    assert second["label"] == "a blue house, seed 4, 1 step"
    assert second["words"]["red"] is None
    heat = run.maps["house"]
    assert first["words"]["house"]["most"] == pytest.approx(heat.values.max(), abs=1e-6)
    assert tuple(first["words"]["house"]["peak"]) == heat.peak
    expected = heedmap.compare([Run.load(saved), Run.load(other)], ["red", "house"], scale="word")
    with Image.open("deep/sheet.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(expected))
    good("compare", other, saved, "--out", "deep/sheet.png")  # named, so replaced
    said = good("compare", saved, other, "-w", "red")
    (missing,) = (line for line in said.splitlines() if line.startswith("a blue house"))
    assert missing.split()[-4:] == ["red", "-", "-", "-"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["saved"], "a comparison needs two runs or more; got 1"),
        (["saved", "nowhere"], "nowhere is not a run"),
        (["saved", "other", "-w", "dog"], "'dog' is not in the prompt"),
        (["saved", "other", "--out", "x.jpg"], "x.jpg is no name for the sheet: expected a file"),
        (["saved", "other", "--out", "saved"], "saved is no name for the sheet"),
        (["saved", "other", "--out", "saved/run.json/x.png"], "saved/run.json"),
    ],
)
def test_compare_says_what_is_wrong_and_writes_nothing(saved, other, desk: Path, arguments, part):
    before = files(desk)
    assert part in bad("compare", *arguments)
    assert files(desk) == before


def test_compare_writes_whole_or_not_at_all(saved: Path, other: Path, desk: Path, monkeypatch):
    good("compare", saved, other, "--out", "sheet.png")
    before = Path("sheet.png").read_bytes()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "replace", raising(full))
    assert "No space left" in bad("compare", saved, other, "-w", "a", "--out", "sheet.png")
    assert Path("sheet.png").read_bytes() == before
    assert {p.name for p in desk.iterdir()} == {"saved", "other", "sheet.png"}


def test_compare_loads_no_model_and_no_torch(saved: Path, other: Path):
    code = f"""
import sys
from heedmap.cli import app
for arguments in (
    ["compare", {str(saved)!r}, {str(other)!r}, "-q"],
    ["inspect", {str(saved)!r}, "-w", "red", "--over", "steps", "-q"],
):
    try:
        app(arguments)
    except SystemExit as stop:
        assert not stop.code, stop.code
assert not {{"torch", "diffusers", "transformers", "matplotlib.pyplot"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- words ------------------------------------------------------------------------------------


def test_words_prints_the_table(model):
    said = good("words", "a red house")
    rows = [line.split() for line in said.splitlines()]
    assert rows[0] == ["#", "word", "tokens", "positions", "read"]
    assert rows[1] == ["0", "a", "a", "1", "yes"]
    assert rows[2] == ["1", "red", "r", "e", "d", "2,", "3,", "4", "yes"]
    assert rows[3] == ["2", "house", "house", "5", "yes"]
    assert said.splitlines()[4] == "5 tokens of the 75 that the model can read."
    assert len(rows) == 5


def test_words_says_what_is_not_read(model):
    said = good("words", "house " * 74 + "red tree")
    lines = said.splitlines()
    assert lines[75].split() == ["74", "red", "r", "75", "in", "part"]
    assert lines[76].split() == ["75", "tree", "-", "-", "no"]
    assert lines[-1] == "6 more tokens are not read: all from 'red' (word 74) on."


def test_words_json_is_the_table(model):
    prompt = 'a "red" house, 집 🏠'
    assert (
        json.loads(good("words", prompt, "--json")) == tokenize(prompt, model.tokenizer).to_dict()
    )


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "   ",
        "\n\n",
        "🏠",
        "빨간 집",
        "house " * 1000,
        "'\"`$(rm)",
        "[red]a[/red]",
        "\x1b[31mred\x07",
    ],
)
def test_words_of_hostile_prompts(model, prompt: str):
    said = good("words", prompt)
    assert set(said) - {"\n"} <= {c for c in said if c.isprintable()}
    assert json.loads(good("words", prompt, "--json"))["prompt"] == prompt


def test_markup_in_a_prompt_is_text(model):
    said = good("generate", "[red] house [/]", "--steps", 1, "--seed", 1, "--out", "[red]")
    assert said.startswith("[red]\n")
    assert "where “red” acted" in said
    assert "\x1b" not in good("words", "[bold]house[/bold] \x1b[31m")


# --- layers -----------------------------------------------------------------------------------

CROSS = "{}.attentions.{}.transformer_blocks.0.attn2".format
NAMES = [
    CROSS("down_blocks.0", 0),
    CROSS("down_blocks.1", 0),
    CROSS("mid_block", 0),
    CROSS("up_blocks.1", 0),
    CROSS("up_blocks.1", 1),
    CROSS("up_blocks.2", 0),
    CROSS("up_blocks.2", 1),
]


def test_layers_prints_every_layer_and_follows_the_first(model):
    lines = good("layers").splitlines()
    assert lines[0].endswith(", 128×128 pixels: 7 layers of cross-attention")
    assert lines[1].split() == ["layer", "grid", "heads", "Q,", "output", "K,", "V", "scores"]
    rows = [line.split() for line in lines[2:9]]
    assert [row[0] for row in rows] == NAMES
    assert rows[0][1:] == ["16×16", "2×8", "256×16", "77×16", "256×77"]
    assert rows[2][1:] == ["4×4", "2×16", "16×32", "77×32", "16×77"]
    assert lines[11] == NAMES[0]
    followed = [" ".join(line.split()) for line in lines[12:]]
    assert followed[0] == "made of shape"
    assert followed[3] == "Q = X·W_q (256 × 16) · (16 × 16) 256 × 16"
    assert followed[4] == "K = E·W_k (77 × 32) · (32 × 16) 77 × 16"
    assert followed[9] == "S_h = Q_h·K_hᵀ/√8 (256 × 8) · (8 × 77) 256 × 77"
    assert followed[13] == "Y = O·W_o + b (256 × 16) · (16 × 16) 256 × 16"
    assert len(followed) == 14


def test_layers_of_another_size(model):
    lines = good("layers", "--size", "104x176", "--layer", "mid").splitlines()
    assert ", 104×176 pixels: " in lines[0]
    assert [line.split()[1] for line in lines[2:5]] == ["22×13", "11×7", "6×4"]
    assert lines[11] == NAMES[2]
    assert "hidden states of 6 × 4 places" in lines[13]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("up", NAMES[3:]), (NAMES[1], NAMES[1:2]), ("*attentions.1*", NAMES[4::2])],
)
def test_layers_follows_those_that_are_asked_for(model, wanted, found):
    lines = good("layers", "--layer", wanted).splitlines()
    assert [line for line in lines[9:] if line in NAMES] == found
    about = json.loads(good("layers", "--layer", wanted, "--json"))
    assert [layer["name"] for layer in about["layers"]] == found


def test_layers_json_is_one_object(model):
    about = json.loads(good("layers", "--json"))
    assert about["size"] == [128, 128]
    shapes = dimensions.layer_shapes(model)
    assert about["layers"] == json.loads(json.dumps([layer.to_dict() for layer in shapes]))


@pytest.mark.parametrize("columns", [80, 100])
def test_layers_at_a_terminal_folds_nothing(model, monkeypatch, columns: int):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", good("layers", "--layer", "*")).splitlines()
    assert max(map(len, lines)) <= columns
    rows = [line.split()[0] for line in lines if "256×77" in line or "×77 " in line]
    assert rows == (NAMES if columns == 100 else dimensions.short_names(NAMES))
    assert [line for line in lines if line in NAMES] == NAMES  # the headings are whole


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--layer", "sideways"], f"no layer fits 'sideways': the layers are {NAMES[0]}, "),
        (["--size", "100x100"], "multiples of 8"),
    ],
)
def test_layers_says_what_is_wrong(model, arguments, part):
    assert part in bad("layers", *arguments)


# --- in a process of its own ------------------------------------------------------------------


def test_errors_show_no_traceback(desk: Path):
    done = in_a_process("inspect", "nowhere")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: nowhere is not a run")
    assert "Traceback" not in done.stderr


@pytest.fixture
def tokenizer_folder(random_model, desk: Path) -> Path:
    """A model of which nothing but the tokenizer is there."""
    folder = desk / "model"
    random_model.tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "model_index.json").write_text("{}")
    return folder


def test_words_reads_no_weights(tokenizer_folder: Path):
    done = in_a_process("words", PROMPT, "--model", tokenizer_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "house" in done.stdout


def test_prompt_that_is_not_text(tokenizer_folder: Path):
    command = [sys.executable.encode(), b"-m", b"heedmap.cli", b"words", b"a \xff"]
    done = subprocess.run([*command, b"--model", b"model"], capture_output=True)
    assert done.returncode == 2
    assert b"is not valid Unicode" in done.stderr


def test_a_terminal_that_knows_no_unicode(tokenizer_folder: Path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = in_a_process("words", "집 🏠", "--model", "model", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\uc9d1" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_reader_that_leaves_early(saved: Path):
    command = f"'{sys.executable}' -m heedmap.cli inspect '{saved}' | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c(desk: Path):
    code = """
import os, signal
from heedmap import cli, models
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where it runs in the background
models.tokenizer = lambda model: os.kill(os.getpid(), signal.SIGINT)
cli.main()
"""
    command = [sys.executable, "-c", code, "words", "a"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_colour_and_frames_only_at_a_terminal(saved: Path):
    import pty

    command = [sys.executable, "-m", "heedmap.cli", "inspect", str(saved)]
    seen = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 1024)
        seen.extend(data)
        return data

    environment = ["env", "-u", "NO_COLOR", "TERM=xterm", "COLUMNS=80"]
    assert pty.spawn([*environment, *command], read) == 0
    assert b"\x1b[1m" in seen
    plain = in_a_process("inspect", saved).stdout
    assert "\x1b" not in plain


# --- with the embedded model ------------------------------------------------------------------


@pytest.mark.slow
def test_first_light(desk: Path):
    """What the README promises, but for the installation: offline, from any folder."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(desk / "hub")}
    prompt = "a red house next to a blue tree"
    done = in_a_process("generate", prompt, "--seed", 7, "--json", env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (about,) = json.loads(done.stdout)["runs"]
    assert about["folder"] == "outputs/a-red-house-next-to-a-blue-tree-7"
    assert [word["word"] for word in about["words"]] == prompt.split()
    loaded = Run.load(about["folder"])
    assert loaded.image.size == (128, 128)
    assert loaded.settings["model"] == models.EMBEDDED
    assert isinstance(loaded.maps, HeatMaps)
    done = in_a_process("inspect", about["folder"], "--word", "blue tree", "--layers", "up")
    assert done.returncode == 0, done.stderr


def test_words_of_the_embedded_model(embedded):
    """The tokenizer that `words` uses alone is the pipeline's."""
    prompt = "a red house next to a blue tree"
    about = json.loads(good("words", prompt, "--json"))
    assert about == tokenize(prompt, embedded.tokenizer).to_dict()
    assert [word["text"] for word in about["words"]] == prompt.split()
