"""Run folders: written whole or not at all, read back equal, never trusted."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from making import letter_tokenizer, made_run, noise, noting, recording, same_pixels, settings_of
from PIL import Image
from safetensors import SafetensorError

from heedmap.drawing.generation import generate
from heedmap.errors import ArgumentError, HeedmapWarning, RunError
from heedmap.figures.step_pictures import StepPictures
from heedmap.files import kinds
from heedmap.files.destinations import check_folder
from heedmap.files.writing import slug
from heedmap.maps import heatmaps
from heedmap.maps.heatmaps import HeatMaps
from heedmap.results.runs import Run, parameters_text, word_file
from heedmap.text.concepts import concept_table
from heedmap.text.tokens import tokenize


def test_written_whole_and_read_back_equal(tmp_path):
    run = made_run()
    folder = run.save(tmp_path / "outputs" / "x")
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} == {
        "image.png", "index.html", "sheet.png", "maps.safetensors", "run.json",
        "words/0-at.png", "words/1-house.png", "words/2-at.png", "words/3-sea.png",
    }  # fmt: skip
    back = Run.load(folder)
    assert back.settings == run.settings
    assert np.array_equal(np.asarray(back.image), np.asarray(run.image))
    for a, b in zip(run.maps, back.maps, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
    assert back.maps.tokens == run.maps.tokens
    about = json.loads((folder / "run.json").read_text())
    assert [w["file"] for w in about["words"]][1] == "words/1-house.png"
    assert list(tmp_path.glob("outputs/.*")) == []


def test_the_maps_of_the_negative_prompt_come_along(tmp_path):
    run = made_run()
    run = replace(run, negative_maps=HeatMaps(recording("at dogs"), run.image))
    folder = run.save(tmp_path / "x")
    back = Run.load(folder)
    assert back.negative_maps.tokens.prompt == "at dogs"
    np.testing.assert_array_equal(
        back.negative_maps["dogs"].values, run.negative_maps["dogs"].values
    )
    (folder / "negative.safetensors").write_bytes(b"no")
    with pytest.raises(RunError, match="is not a recording that heedmap wrote"):
        Run.load(folder)


def sought(run: Run, *concepts: str) -> Run:
    """The same run with what was looked for: numbers by chance."""
    whole = recording("x y", seed=5)
    table = concept_table(concepts)
    some = replace(
        whole,
        table=table,
        positions=tuple(range(len(concepts))),
        arrays=tuple(array[..., : len(concepts)] for array in whole.arrays),
    )
    return replace(noting(run, concepts=[*concepts]), concepts=HeatMaps(some, run.image))


def test_what_was_looked_for_comes_along(tmp_path):
    run = sought(made_run(), "sky", "red house")
    folder = run.save(tmp_path / "x")
    back = Run.load(folder)
    assert back.settings.concepts == ("sky", "red house")
    assert [word.text for word in back.concepts.words] == ["sky", "red house"]
    for name in ("sky", "red house"):
        np.testing.assert_array_equal(back.concepts[name].values, run.concepts[name].values)
        assert back.concepts[name].overlay() == run.concepts[name].overlay()
    for number, name in enumerate(("sky", "red-house")):
        overlay = Image.open(folder / "words" / f"concept-{number}-{name}.png")
        said = run.concepts.at(number).overlay(scale="shared")
        assert np.array_equal(np.asarray(overlay), np.asarray(said))
    sheet = Image.open(folder / "concepts.png")
    title = "at house, at sea · looked for beside the prompt"
    assert np.array_equal(np.asarray(sheet), np.asarray(run.concepts.sheet(title=title)))
    # All of it is heedmap's own, and replaced as a whole.
    made_run("at sea").save(folder, force=True)
    assert Run.load(folder).concepts is None
    assert not [*folder.glob("**/*concept*")]


def test_what_was_looked_for_is_never_trusted(tmp_path):
    run = sought(made_run(), "sky", "red house")
    folder = run.save(tmp_path / "x", overlays=False)
    assert not (folder / "concepts.png").exists()
    file = folder / "concepts.safetensors"
    held = file.read_bytes()
    file.write_bytes(b"no")
    with pytest.raises(RunError, match="is not a recording that heedmap wrote"):
        Run.load(folder)
    file.unlink()
    with pytest.raises(RunError, match=r"lacks concepts\.safetensors, which it lists: make"):
        Run.load(folder)
    # Of other words than the settings say, or of another picture.
    others = sought(made_run(), "sky", "sea").concepts.recording
    small = replace(run.concepts.recording, latent=(8, 8), size=(64, 64), layers=tuple(
        replace(layer, grid=(8, 8)) for layer in others.layers
    ), arrays=tuple(array[..., :64, :] for array in others.arrays))  # fmt: skip
    for odd in (others, small, run.maps.recording):
        odd.save(file)
        with pytest.raises(RunError, match="its picture, maps and settings are of different runs"):
            Run.load(folder)
    file.write_bytes(held)
    assert Run.load(folder).concepts is not None
    # A file of that name in a folder that does not list it is a user's.
    plain = made_run().save(tmp_path / "plain")
    (plain / "concepts.safetensors").write_bytes(b"mine")
    assert Run.load(plain).concepts is None
    about = json.loads((plain / "run.json").read_text())
    del about["files"]  # as older versions wrote it, which looked for nothing
    (plain / "run.json").write_text(json.dumps(about))
    assert Run.load(plain).concepts is None


def held_run() -> Run:
    """A run that was located, two of whose four words and one of whose concepts are held."""
    run = noting(sought(made_run(), "sky", "red house"), located={"size": [9, 9], "sha256": ""})
    maps = replace(run.maps, stability={0: 0.25, 3: -0.5})
    return replace(run, maps=maps, concepts=replace(run.concepts, stability={1: 1.0}))


def test_how_stable_maps_are_stands_beside_each_word_and_is_read_back(tmp_path):
    run = held_run()
    folder = run.save(tmp_path / "x", overlays=False)
    about = json.loads((folder / "run.json").read_text())
    assert [one.get("stability") for one in about["words"]] == [0.25, None, None, -0.5]
    assert [one.get("stability") for one in about["concepts"]] == [None, 1.0]
    assert "stability" not in about["words"][1]  # left out, not null
    back = Run.load(folder)
    assert back.stability == {0: 0.25, 3: -0.5} and back.concepts.stability == {1: 1.0}
    with pytest.raises(TypeError):
        back.stability[0] = 1.0
    back.save(tmp_path / "y", overlays=False)
    assert (tmp_path / "y" / "run.json").read_text() == (folder / "run.json").read_text()
    assert made_run().stability is None


@pytest.mark.parametrize("name", ["words", "concepts"])
def test_how_stable_maps_are_is_never_trusted(tmp_path, name):
    folder = held_run().save(tmp_path / "x", overlays=False)
    file = folder / "run.json"
    plain = json.loads(file.read_text())

    def load(change, text=None):
        about = json.loads(json.dumps(plain))
        change(about)
        file.write_text(json.dumps(about) if text is None else text(json.dumps(about)))
        return Run.load(folder)

    def stable(value):
        return lambda about: about[name][1].update(stability=value)

    for value, said in (
        (1.01, "expected a number of at most 1.0"),
        (-1.01, "expected a number of at least -1.0"),
        ("0.5", "expected a number, got text"),
        (True, "expected a number, got true or false"),
        (None, "expected a number, got null"),
        ([0.5], "expected a number, got a list"),
    ):
        with pytest.raises(RunError) as caught:
            load(stable(value))
        assert str(caught.value).startswith(
            f"what {file} says of its {name} is not what heedmap writes"
        )
        assert f"{said} at [1].stability" in str(caught.value)
    for odd in ("NaN", "Infinity", "1e999"):
        with pytest.raises(RunError, match="is not what heedmap w"):
            load(stable("@"), lambda text, odd=odd: text.replace('"@"', odd))
    for change in (
        lambda about: about.update({name: {"0": 1}}),
        lambda about: about[name].append("odd"),
        lambda about: about[name][1].pop("number"),
        lambda about: about[name][1].update(number=-1),
    ):
        with pytest.raises(
            RunError, match=rf"^what .* says of its {name} is not what heedmap writes"
        ):
            load(change)
    with pytest.raises(RunError, match="expected each number once"):
        load(lambda about: about[name].append(about[name][0]))
    with pytest.raises(RunError, match="its words and its maps are of different runs"):
        load(lambda about: about[name].append({"number": 9, "stability": 0.5}))
    # Older versions said nothing of it, and runs that were drawn have none, whatever they say.
    for one in plain[name]:
        one.pop("stability", None)
    older = load(lambda about: None)
    assert (older.maps if name == "words" else older.concepts).stability is None
    assert load(lambda about: about.pop(name)).settings == older.settings
    drawn = load(lambda about: (stable(7)(about), about["settings"].pop("located")))
    assert drawn.stability is None


def stepped(shows="latents"):
    """A run with a picture for each of its steps."""
    run = made_run()
    count = len(run.maps.recording.timesteps)
    return replace(
        run, step_pictures=StepPictures(tuple(noise(n, (6, 4)) for n in range(count)), shows)
    )


def test_the_pictures_of_the_steps_come_along(tmp_path):
    run = stepped()
    folder = run.save(tmp_path / "x")
    back = Run.load(folder).step_pictures
    assert back.shows == "latents" and back.size == (6, 4)
    for one, other in zip(back.frames, run.step_pictures.frames, strict=True):
        assert same_pixels(one, other)
    assert "steps.png" in json.loads((folder / "run.json").read_text())["files"]
    run.save(folder, force=True)  # it is heedmap's own, and replaced
    made_run().save(folder, force=True)
    assert Run.load(folder).step_pictures is None and not (folder / "steps.png").exists()


def test_a_picture_of_steps_that_a_run_does_not_tell_of_is_the_users(tmp_path):
    folder = made_run().save(tmp_path / "x")
    noise(1).save(folder / "steps.png")
    assert Run.load(folder).step_pictures is None


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"count": 9}, "does not hold together: its maps and the pictures of its steps"),
        ({"size": [7, 4]}, "steps.png has .* pixels: expected .*, as its folder tells"),
        ({"size": [60, 4]}, "does not hold together: its picture and the pictures of its steps"),
        ({"size": [6, 5000]}, "is not what heedmap wrote: expected a whole number of at most 4096"),
        ({"shows": "dreams"}, "is not what heedmap wrote: expected another value than 'dreams'"),
        ({"count": "all"}, "heedmap wrote: expected a whole number, got text at steps.count"),
    ],
)
def test_pictures_of_steps_that_do_not_fit_are_refused(tmp_path, steps, said):
    folder = stepped().save(tmp_path / "x")
    path = folder / "run.json"
    told = json.loads(path.read_text())
    told["steps"] |= steps
    path.write_text(json.dumps(told))
    with pytest.raises(RunError, match=said):
        Run.load(folder)


@pytest.mark.parametrize("spoil", [os.remove, lambda path: path.write_bytes(b"no"), "large"])
def test_a_missing_or_hostile_picture_of_steps_is_refused(tmp_path, spoil):
    folder = stepped().save(tmp_path / "x")
    if spoil == "large":
        noise(1, (3000, 3000)).save(folder / "steps.png")
    else:
        spoil(folder / "steps.png")
    with pytest.raises(RunError, match=r"steps\.png (is missing or broken|has 3000×3000 pixels)"):
        Run.load(folder)


def test_same_run_same_bytes(tmp_path):
    a, b = made_run().save(tmp_path / "a"), made_run().save(tmp_path / "b")
    for path in a.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (b / path.relative_to(a)).read_bytes()


def test_all_that_is_written_is_known_to_be_heedmaps(tmp_path):
    for name, overlays in {"a": True, "b": False}.items():
        folder = made_run("“house” 수박 <b>").save(tmp_path / name, overlays=overlays)
        files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        assert check_folder(folder, kinds.RUN, force=True) == files


def test_the_picture_tells_its_settings(tmp_path):
    folder = made_run("수박 at <b> “house”").save(tmp_path / "x")
    with Image.open(folder / "image.png") as image:
        text = image.text["parameters"]
    assert text == (
        "수박 at <b> “house”\nNegative prompt: dogs\nSteps: 3, Sampler: DDIMScheduler, "
        "CFG scale: 4.0, Seed: 7, Size: 128x128, Model: heedmap-tiny, Version: heedmap 0.1.0"
    )
    assert "Negative" not in parameters_text(settings_of(negative=None))


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    run = made_run()
    folder = run.save(tmp_path / "x")
    before = (folder / "run.json").read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("heedmap.maps.heatmaps.Recording.save", full)
    for name, force in (("x", True), ("y", False)):
        with pytest.raises(RunError, match=rf"{name} could not be written \(no space left on devi"):
            run.save(tmp_path / name, force=force)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (folder / "run.json").read_bytes() == before


TOO_LARGE = """
import resource, sys
from heedmap.errors import HeedmapError
from heedmap.results.folders import load_result
made = load_result(sys.argv[1])
for most in sys.argv[3:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), -1))
    try:
        made.save(sys.argv[2])
    except HeedmapError as error:
        print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_files_that_the_system_takes_no_more_of(tmp_path):
    """Whichever is too large, a text, a picture or the maps, it is one sentence and leaves naught.

    Only the system knows when it refuses, and safetensors tells it in words of its own.
    """
    folder, place = made_run().save(tmp_path / "whole"), tmp_path / "deep" / "x"
    names = ("image.png", "index.html", "words/1-house.png", "maps.safetensors")
    most = [(folder / name).stat().st_size // 2 for name in names]
    command = [sys.executable, "-c", TOO_LARGE, folder, place, "0", *map(str, most)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused, *told = done.stdout.splitlines()
    reason = "(file too large): make room there, or choose another place"
    assert refused == f"nothing can be written to {place.parent} {reason}"
    said = reason.replace(": ", ": nothing was saved; ")
    assert told == [f"{place} could not be written {said}"] * len(names)
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]


def test_maps_that_cannot_be_written(tmp_path, monkeypatch):
    maps = made_run().maps.recording
    with pytest.raises(RunError, match=r"no/x could not be written \(no such file or directory\)"):
        maps.save(tmp_path / "no" / "x")
    maps.save(tmp_path / "older")
    before = (tmp_path / "older").read_bytes()

    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: whatever it is (os error 28)")

    monkeypatch.setattr("heedmap.maps.recordings.save_file", full)
    for name in ("older", "new"):
        with pytest.raises(RunError, match=rf"{name} could not be written \(no space left on dev"):
            maps.save(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["older"]
    assert (tmp_path / "older").read_bytes() == before


def test_maps_that_lie_in_a_folder_by_chance_are_no_part_of_it(tmp_path):
    folder = made_run().save(tmp_path / "x")
    (folder / "negative.safetensors").write_bytes(b"mine")
    assert Run.load(folder).negative_maps is None
    about = json.loads((folder / "run.json").read_text())
    del about["files"]  # as older versions wrote it
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match="is not a recording that heedmap wrote"):
        Run.load(folder)


def test_overlays_are_asked_for_by_true_or_false(tmp_path):
    for options in ({"overlays": "no"}, {"force": "x"}):
        with pytest.raises(ArgumentError, match=r"is '.*': expected True or False"):
            made_run().save(tmp_path / "x", **options)
    assert list(tmp_path.iterdir()) == []


def test_only_runs_are_replaced_by_force_and_what_is_not_of_heedmap_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("five years")
    for force in (False, True):
        with pytest.raises(RunError, match="is not a run of heedmap: nothing was written"):
            made_run().save(tmp_path / "mine", force=force)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "five years"
    folder = made_run().save(tmp_path / "x")
    (folder / "notes.txt").write_text("five years")
    with pytest.raises(RunError, match=r"x exists and holds a run of heedmap: nothing was written"):
        made_run("at sea").save(folder)
    made_run("at sea").save(folder, force=True)
    assert Run.load(folder).settings.prompt == "at sea"
    assert (folder / "notes.txt").read_text() == "five years"
    assert sorted(p.name for p in (folder / "words").iterdir()) == ["0-at.png", "1-sea.png"]


def test_what_was_made_of_the_run_that_was_replaced_is_told(tmp_path):
    folder = made_run().save(tmp_path / "x")
    (folder / "explain" / "house").mkdir(parents=True)
    with pytest.warns(HeedmapWarning) as told:
        made_run("at sea").save(folder, force=True)
    first = "x/explain is of what was replaced: delete what is of no use"
    assert [str(one.message).partition(str(tmp_path))[2] for one in told] == [f"/{first}"]
    (folder / "inspect").mkdir()
    with pytest.warns(HeedmapWarning, match=r"x/(explain and|inspect and) .* are of what was"):
        made_run().save(folder, force=True)
    assert (folder / "explain" / "house").is_dir()
    (folder / "inspect").rmdir()
    (folder / "explain" / "house").rmdir()
    (folder / "explain").rename(folder / "mine")
    made_run().save(folder, force=True)  # of which nobody knows


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("run.json", b"{", r"is not what heedmap wrote: it is not JSON; make it again"),
        ("run.json", b"[1]", "expected an object, got a list"),
        ("run.json", b'{"settings": {}, "format": 99}', "has format 99"),
        ("run.json", b"[" * 100_000, "is not JSON"),
        ("run.json", b" " * 5_000_000, "larger than 4 MiB"),
        ("image.png", b"GIF89a", "missing or broken"),
        ("image.png", b"", "missing or broken"),
        ("maps.safetensors", b"\x80\x04", "is not a recording"),
    ],
)
def test_broken_runs_are_refused(tmp_path, file, content, sentence):
    folder = made_run().save(tmp_path / "x")
    (folder / file).write_bytes(content)
    with pytest.raises(RunError, match=sentence):
        Run.load(folder)


def test_parts_of_different_runs_are_refused(tmp_path):
    one, other = made_run().save(tmp_path / "a"), made_run("at sea").save(tmp_path / "b")
    (one / "maps.safetensors").write_bytes((other / "maps.safetensors").read_bytes())
    with pytest.raises(RunError, match="does not hold together"):
        Run.load(one)
    with pytest.raises(RunError, match=r"is not a run: expected a folder with run\.json"):
        Run.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A red house!", "a-red-house"),
        ("../../etc/passwd", "etc-passwd"),
        ("", "word"),
        (" \n", "word"),
        ("🦒", "u1f992"),
        ("👩‍💻", "u1f469-u200d-u1f4bb"),
        ("!?", "u0021-u003f"),
        ("🦒" * 99, "-".join(["u1f992"] * 99)[:40].strip("-")),
        ("🦒 cat", "cat"),
        ("수박", "수박"),
        ("x" * 99, "x" * 40),
        ("a/b\\c:d\0e\nf", "a-b-c-d-e-f"),
    ],
)
def test_names_of_files(text, expected):
    assert slug(text, 40) == expected


def test_word_files_stay_within_the_folder(tmp_path):
    table = tokenize("../up <i>x</i> c:\\d", letter_tokenizer())
    for word in table.words:
        assert (tmp_path / word_file(word)).resolve().parent == (tmp_path / "words").resolve()


def test_sheet_of_many_words():
    run = made_run(" ".join(["at house"] * 20))
    width, height = run.sheet().size
    assert width <= 2400
    assert height <= 3000


def test_of_very_many_words_the_first_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(heatmaps, "MOST_SHOWN", 5)
    run = made_run(" ".join(["at"] * 12))
    folder = run.save(tmp_path / "x")
    assert {p.name for p in (folder / "words").iterdir()} == {f"{n}-at.png" for n in range(5)}
    told = json.loads((folder / "run.json").read_text())["words"]
    assert [word["file"] for word in told] == [f"words/{n}-at.png" for n in range(5)] + [None] * 7
    back = Run.load(folder)
    assert len(back.maps) == 12 and back.maps.at(11).values.shape == (64, 64)
    assert run.figure().image() == run.sheet() == run.maps.figure(title=run.settings.prompt).image()
    few = run.maps.sheet([run.maps.at(n) for n in range(5)], title="x · the first 5 words")
    assert np.array_equal(np.asarray(run.maps.sheet(title="x")), np.asarray(few))


@pytest.mark.parametrize("name", ["index.html", "sheet.png", "negative.safetensors"])
def test_a_name_that_was_not_written_is_a_users(tmp_path, name):
    folder = made_run().save(tmp_path / "x", overlays=False)
    (folder / name).write_text("mine")
    with pytest.raises(RunError, match=f"holds {name}, which heedmap did not write"):
        made_run("at sea").save(folder, overlays=False, force=True)
    assert (folder / name).read_text() == "mine"


def test_runs_of_older_versions_are_replaced_too(tmp_path):
    """They list no files: those with names of heedmap's are its own."""
    folder = made_run().save(tmp_path / "x")
    about = json.loads((folder / "run.json").read_text())
    assert set(about.pop("files")) == {
        "image.png", "index.html", "maps.safetensors", "run.json", "sheet.png",
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(about))
    made_run("at sea").save(folder, force=True)
    assert Run.load(folder).settings.prompt == "at sea"


def test_a_header_that_says_too_much(tmp_path):
    folder = made_run().save(tmp_path / "x", overlays=False)
    held = (folder / "maps.safetensors").read_bytes()
    (folder / "maps.safetensors").write_bytes((2**24 + 1).to_bytes(8, "little") + held[8:])
    with pytest.raises(RunError, match="it says too much of itself"):
        Run.load(folder)


def test_titles_have_an_end():
    run = made_run()
    usual = run.sheet().height
    assert run.maps.sheet(title="a sea " * 20_000).height < 2 * usual


def test_in_a_notebook_a_run_is_its_sheet_and_small(embedded):
    pictured = generate(embedded, "a red house, a blue tree", seed=7, steps=2, keep="all")
    many = replace(pictured, maps=HeatMaps(recording("at house, " * 18), noise(1)))
    for run in (pictured, many):
        shown = run._repr_html_()
        assert shown.startswith("<img") and len(shown) <= 200_000
