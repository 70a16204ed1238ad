"""Run folders: what is in them, read back equal."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from making import (
    noise,
    random_run,
    recording,
    run_with_steps,
    same_pixels,
    with_settings,
)
from PIL import Image

from heedmap.errors import RunError
from heedmap.figures import plots
from heedmap.io.writing import digest_of
from heedmap.maps.heatmaps import HeatMaps
from heedmap.results.runs import Run
from heedmap.text.words import TokenTable


def test_a_saved_run_is_read_back_equal(tmp_path):
    run = random_run()
    folder = run.save(tmp_path / "outputs" / "x")
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} == {
        "image.png",
        "index.html",
        "sheet.png",
        "maps.safetensors",
        "run.json",
        "words/0-at.png",
        "words/1-house.png",
        "words/2-at.png",
        "words/3-sea.png",
    }
    back = Run.load(folder)
    assert back.settings == run.settings
    assert np.array_equal(np.asarray(back.image), np.asarray(run.image))
    for a, b in zip(run.maps.values(), back.maps.values(), strict=True):
        np.testing.assert_array_equal(a.values, b.values)
    assert back.maps.tokens == run.maps.tokens
    assert list(tmp_path.glob("outputs/.*")) == []


def test_maps_of_the_negative_prompt_are_saved(tmp_path):
    run = random_run()
    run = replace(run, negative_maps=HeatMaps(recording("at dogs"), run.image))
    folder = run.save(tmp_path / "x", overlays=False)
    back = Run.load(folder)
    assert back.negative_maps.tokens.prompt == "at dogs"
    np.testing.assert_array_equal(
        back.negative_maps["dogs"].values, run.negative_maps["dogs"].values
    )
    (folder / "negative.safetensors").unlink()
    with pytest.raises(RunError):  # not as if there were none
        Run.load(folder)


def with_concepts(run: Run, *concepts: str) -> Run:
    """The same run with what was looked for: numbers by chance."""
    whole = recording("x y", seed=5)
    table = TokenTable.of_texts(concepts)
    some = replace(
        whole,
        table=table,
        positions=tuple(range(len(concepts))),
        arrays=tuple(array[..., : len(concepts)] for array in whole.arrays),
    )
    return replace(with_settings(run, concepts=[*concepts]), concepts=HeatMaps(some, run.image))


def test_concepts_are_saved(tmp_path):
    run = with_concepts(random_run(), "sky", "red house")
    folder = run.save(tmp_path / "x")
    back = Run.load(folder)
    assert back.settings.concepts == ("sky", "red house")
    assert [word.text for word in back.concepts.words] == ["sky", "red house"]
    for name in ("sky", "red house"):
        np.testing.assert_array_equal(back.concepts[name].values, run.concepts[name].values)
        assert back.concepts[name].overlay() == run.concepts[name].overlay()
    title = f"{run.settings.prompt} · concepts"
    expected = plots.render(run.concepts.figure(title=title))
    with Image.open(folder / "concepts.png") as sheet:
        assert same_pixels(sheet, expected)


def test_the_box_of_a_confined_word_is_drawn_on_the_image_of_the_sheet():
    box = {"kind": "confine", "word": "house", "where": [32, 16, 128, 96]}
    plain = random_run()
    run = with_settings(plain, edits=[box])
    figure = run.figure()
    found, bare = (np.asarray(one.sheet(), int) for one in (run, plain))
    where = figure.axes[0].get_window_extent()
    width = where.width
    changed = np.abs(found - bare).max(-1) > 32
    beside_label = int(where.x0 + 3 * width / 4)
    rows, _ = np.nonzero(changed[:, beside_label:])
    _, columns = np.nonzero(changed)
    top = found.shape[0] - where.y1
    expected = [where.x0 + width / 4, where.x1, top + width / 8, top + width * 3 / 4]
    ends = [columns.min(), columns.max(), rows.min(), rows.max()]
    np.testing.assert_allclose(ends, expected, atol=4)
    thin = with_settings(plain, edits=[box | {"where": [8.6, 16, 9.4, 96]}])  # no whole pixel
    assert thin.sheet() != plain.sheet()


def test_step_images_are_saved(tmp_path):
    run = run_with_steps()
    folder = run.save(tmp_path / "x", overlays=False)
    back = Run.load(folder).step_pictures
    assert back.shows == "latents" and back.size == (6, 4)
    for one, other in zip(back.frames, run.step_pictures.frames, strict=True):
        assert same_pixels(one, other)
    assert "steps.png" in json.loads((folder / "run.json").read_text())["files"]
    assert Run.load(random_run().save(tmp_path / "y", overlays=False)).step_pictures is None


def test_the_input_image_is_saved(tmp_path):
    picture = noise(5)
    noted = {"size": [300, 200], "sha256": digest_of(picture)}
    run = replace(
        with_settings(random_run(), input_image=noted, batch_place=[0, 2]), input_image=picture
    )
    folder = run.save(tmp_path / "x", overlays=False)
    assert same_pixels(Run.load(folder).input_image, picture)
    with Image.open(folder / "image.png") as image:
        assert "parameters" not in image.text  # settings alone do not make it
    picture.resize((64, 64)).save(folder / "input.png")
    with pytest.raises(RunError):
        Run.load(folder)


def test_parts_of_different_runs_are_refused(tmp_path):
    run = random_run().save(tmp_path / "run", overlays=False)
    other = random_run("at sea").save(tmp_path / "other", overlays=False)
    (run / "maps.safetensors").write_bytes((other / "maps.safetensors").read_bytes())
    with pytest.raises(RunError):
        Run.load(run)


def test_the_png_holds_its_settings(tmp_path):
    folder = random_run("수박 at <b> “house”").save(tmp_path / "x", overlays=False)
    with Image.open(folder / "image.png") as image:
        text = image.text["parameters"]
    assert text == (
        "수박 at <b> “house”\nNegative prompt: dogs\nSteps: 3, Sampler: DDIMScheduler, "
        "CFG scale: 4.0, Seed: 7, Size: 128x128, Model: heedmap-tiny, Version: heedmap 0.1.0"
    )


def test_a_notebook_shows_the_sheet_of_a_run():
    run = random_run()
    with Image.open(io.BytesIO(run._repr_png_())) as shown:
        assert same_pixels(shown, run.sheet())
