"""`heedmap inspect`, `words` and `layers`: what they show of a run, a prompt and a model."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import random_pixart
from PIL import Image

from cli.calling import FILES, PROMPT, bad, files, good, in_a_process, quiet, raising
from heedmap.drawing import generation
from heedmap.errors import RunError
from heedmap.files import kinds
from heedmap.files.targets import check_folder
from heedmap.maps import timelines
from heedmap.maps.heatmaps import HeatMap
from heedmap.models import dimensions
from heedmap.results.runs import Run
from heedmap.text.tokens import tokenize

# --- inspect ----------------------------------------------------------------------------------


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
        assert tuple(word["peak"]) == heat.peak
        with Image.open(word["file"]) as picture:
            expected = heat.overlay(scale="shared")
            assert np.array_equal(np.asarray(picture), np.asarray(expected))


def test_inspect_of_a_word_that_was_not_read(pipe: Any, tmp_path: Path):
    """A second occurrence past the limit has no map, and none is drawn of it."""
    prompt = "house " + "x" * 90 + " house"
    long = generation.generate(pipe, prompt, seed=1, steps=1).save(tmp_path / "long")
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
    assert "The prompt has no words" in bad("inspect", folder, "--word", "house")


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
    (Path(folder) / "notes.txt").write_text("here it is")
    assert good("inspect", saved, *arguments).strip() == f"{folder}-2"
    assert good("inspect", saved, *arguments, "--force").strip() == folder
    assert {p.name for p in (saved / "inspect").iterdir()} == {
        Path(folder).name,
        f"{Path(folder).name}-2",
    }
    assert (Path(folder) / "notes.txt").read_text() == "here it is"


def test_inspect_over_the_steps(saved: Path, run: Run):
    said = good("inspect", saved, "-w", "house", "--over", "steps")
    assert "Over its steps: timeline.png, timeline.gif" in said
    folder = saved / "inspect" / "house-over-steps"
    assert check_folder(folder, kinds.SELECTION, force=True) == files(folder)
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
    expected = timelines.layers_by_heads(part, "house", axes=axes, scale="shared")
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
    assert check_folder(folder, kinds.SELECTION, force=True) == files(folder)
    assert (folder / f"timeline.{kind}").read_bytes() == run.timeline("house").data(kind)
    said = good("inspect", saved, *arguments, "--force")
    assert f"The words together: sheet.{kind}" in said and f"timeline.{kind}" in said
    # A file of this name is the user's where another was written.
    (folder / "sheet.png").write_bytes(b"mine")
    before = files(folder)
    assert good("inspect", saved, *arguments, "--force", "-q").strip() != str(folder)
    with pytest.raises(RunError, match=r"holds sheet\.png, which heedmap did not write"):
        check_folder(folder, kinds.SELECTION, force=True)
    assert files(folder) == before and (folder / "sheet.png").read_bytes() == b"mine"


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
    drawn = generation.generate(random_model, "🏠 🌳 house", seed=3, steps=1, progress=quiet)
    drawn.save(desk / "drawn")
    words = ("-w", "🏠", "-w", "🌳", "-w", "🏠")
    about = json.loads(good("inspect", "drawn", *words, "--json"))
    assert [word["word"] for word in about["words"]] == ["🏠", "🌳"]
    assert len({word["file"] for word in about["words"]}) == 2
    assert all(Path(word["file"]).is_file() for word in about["words"])


def test_inspect_of_what_was_not_kept(random_model, desk: Path):
    bare = generation.generate(random_model, PROMPT, seed=3, steps=1, keep=(), progress=quiet)
    bare.save(desk / "bare")
    for axis, value in (("layer", "up"), ("step", "0:1"), ("head", "0")):
        said = bad("inspect", "bare", f"--{axis}s", value)
        assert f"record again with keep including '{axis}'" in said
        said = bad("inspect", "bare", "-w", "red", "--over", f"{axis}s")
        assert f"record again with keep including '{axis}'" in said


def test_inspect_of_what_is_no_run(desk: Path):
    assert "nowhere is not a run" in bad("inspect", "nowhere")
    (desk / "run.json").write_text("{")
    assert "is no JSON" in bad("inspect", desk)
    assert files(desk) == {"run.json"}


def test_inspect_writes_whole_or_not_at_all(saved: Path, desk: Path, monkeypatch):
    good("inspect", saved, "--out", "seen", "--scale", "word")
    before = {name: (desk / "seen" / name).read_bytes() for name in files(desk / "seen")}
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(HeatMap, "overlay", raising(full))
        said = "could not be written (no space left on device): nothing was saved; make room"
        assert f"seen {said}" in bad("inspect", saved, "--out", "seen", "--force")
        assert f"new {said}" in bad("inspect", saved, "--out", "new")
    assert {p.name for p in desk.iterdir()} == {"saved", "seen"}
    assert {name: (desk / "seen" / name).read_bytes() for name in files(desk / "seen")} == before
    assert "seen exists and holds a selection of a run" in bad("inspect", saved, "--out", "seen")
    assert check_folder(desk / "seen", kinds.SELECTION, force=True) == files(desk / "seen")
    raw = ("inspect", saved, "--out", "seen", "--scale", "raw", "--force")
    (desk / "seen" / "words" / "mine.png").write_bytes(b"")
    assert "seen holds words/mine.png, which heedmap did not write and might write" in bad(*raw)
    (desk / "seen" / "words" / "mine.png").rename(desk / "seen" / "words" / "mine.gif")
    good(*raw)
    assert (desk / "seen" / "words" / "mine.gif").is_file()
    assert json.loads((desk / "seen" / "inspect.json").read_text())["selection"]["scale"] == "raw"
    (desk / "letters").mkdir()
    (desk / "letters" / "mother.txt").write_text("Dear …")
    said = bad("inspect", saved, "--out", "letters", "--force")
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


def test_words_of_the_embedded_model(embedded):
    """The tokenizer that `words` uses alone is the pipeline's."""
    prompt = "a red house next to a blue tree"
    about = json.loads(good("words", prompt, "--json"))
    assert about == tokenize(prompt, embedded.tokenizer).to_dict()
    assert [word["text"] for word in about["words"]] == prompt.split()


def test_words_and_layers_of_a_transformer(desk: Path):
    model = str(desk / "patches")
    random_pixart().save_pretrained(model)

    def said(*arguments: str) -> str:
        done = in_a_process(*arguments, "--model", model)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    rows = [line.split() for line in said("words", "a Red house").splitlines()]
    assert rows[1] == ["0", "a", "a", "a", "0,", "1", "yes"]
    assert rows[2] == ["1", "Red", "R", "e", "d", "2,", "3,", "4", "yes"]
    assert rows[4][:5] == ["6", "tokens", "of", "the", "299"]
    found = json.loads(said("layers", "--size", "64x48", "--json"))["layers"]
    assert [layer["name"] for layer in found] == [f"transformer_blocks.{n}.attn2" for n in range(3)]
    assert {tuple(layer["grid"]) for layer in found} == {(3, 4)}
    assert {tuple(layer["masked"]) for layer in found} == {(299, 294)}


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
