"""`heedmap generate` and `heedmap locate`: what they save and print, and what they refuse."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cli.calling import (
    FILES,
    PROMPT,
    error_of,
    fail_with,
    files,
    invoke,
    run_command,
    run_json,
    usage_error_of,
)
from heedmap.errors import HeedmapWarning
from heedmap.io.guides import Excite, Inside
from heedmap.io.schemas import to_json
from heedmap.io.word_edits import Confine
from heedmap.pipelines.generation import generate
from heedmap.pipelines.input_images import locate
from heedmap.results.runs import Run


def test_generate_saves_a_run_and_prints_its_folder_and_page(model, desk: Path):
    printed = run_command("generate", PROMPT, "--seed", 7, "--steps", 2)
    folder = desk / "outputs" / "a-red-house-7"
    assert files(folder) == FILES
    first, *_, last = printed.splitlines()
    assert first == "outputs/a-red-house-7" and last == f"{first}/index.html"


def test_guides_are_flags(model, desk: Path):
    words = ("--excite", "red", "--excite", "house", "--inside", "house=0,0,32,96")
    printed = run_command("generate", PROMPT, "--seed", 7, "--steps", 2, *words, "--out", "guided")
    run = Run.load(desk / "guided")
    kinds = [(type(one), one.word) for one in run.settings.guide]
    assert kinds == [(Excite, "red"), (Excite, "house"), (Inside, "house")]
    assert run.settings.guide[2].where == (0, 0, 32, 96)
    assert len(run.guide_report.before) == 3
    assert all(f"{losses[0]:.2f} at first" in printed for losses in run.guide_report.before)


def test_json_has_the_settings(model):
    asked = ("generate", PROMPT, "--seed", 7, "--steps", 2, "--concepts", "sky,dog", "-o", "x")
    (found,) = run_json(*asked)["runs"]
    assert found == {"folder": "x", "settings": to_json(Run.load("x").settings)}


def test_options_reach_the_library(model, desk: Path):
    numbers = ("--seed", 5, "--num-inference-steps", 2, "--guidance", 3.5, "--size", "96x128")
    texts = ("--negative_prompt", "blue", "--keep", "step,head", "--confine", "house=0,0,32,96")
    run_command("generate", PROMPT, *numbers, *texts, "--out", "deep/down")
    settings = Run.load(desk / "deep" / "down").settings
    assert settings.edits == (Confine("house", (0, 0, 32, 96)),)
    expected = {
        "prompt": PROMPT,
        "seed": 5,
        "steps": 2,
        "guidance": 3.5,
        "size": (96, 128),
        "negative": "blue",
        "keep": ("head", "step"),
    }
    assert {name: getattr(settings, name) for name in expected} == expected


def test_arguments_of_the_pipeline_are_set_saved_and_repeated(model, desk: Path):
    given = ("--set", "eta=0.5", "--set", "guidance_rescale=0.7", "--set", "clip_skip=None")
    run_command("generate", PROMPT, "--seed", 5, "--steps", 2, *given, "-o", "x")
    arguments = {"eta": 0.5, "guidance_rescale": 0.7, "clip_skip": None}
    run = generate(model, PROMPT, seed=5, steps=2, **arguments)
    saved = Run.load("x")
    assert saved.settings.arguments == arguments == run.settings.arguments
    assert saved.image.tobytes() == run.image.tobytes()
    run_command("repeat", "x")


def test_set_takes_no_option_of_the_command(desk: Path):
    assert "seed" in usage_error_of("generate", PROMPT, "--set", "seed=3")


def test_a_count_gives_the_images_that_each_seed_gives(model, desk: Path):
    asked = ("generate", PROMPT, "--steps", 2, "-q", "--seed")
    folders = run_command(*asked, 7, "--count", 2, "--out", "many").split()
    assert folders == [f"many/a-red-house-{seed}" for seed in (7, 8)]
    alone = Path(run_command(*asked, 8, "--out", "one").strip())
    for name in ("image.png", "maps.safetensors"):
        assert (alone / name).read_bytes() == (Path(folders[1]) / name).read_bytes()


def test_a_random_seed_is_printed_and_a_taken_name_counts_up(model):
    asked = ("generate", PROMPT, "--steps", 1, "--quiet")
    first, second = (run_command(*asked).strip() for _ in "ab")
    seed = Run.load(first).settings.seed
    assert first != second and first == f"outputs/a-red-house-{seed}"
    assert run_command(*asked, "--seed", seed).strip() == f"{first}-2"


def test_options_are_refused_before_a_model_is_loaded(desk: Path):
    absent = ("generate", PROMPT, "--model", "absent")
    assert "absent" in error_of(*absent)
    (desk / "letters").mkdir()
    (desk / "letters" / "mother.txt").write_text("Dear …")
    for option in (["--out", "letters"], ["--steps", 0]):
        assert "absent" not in error_of(*absent, *option)
    assert files(desk) == {"letters/mother.txt"}


@pytest.mark.parametrize(
    "option",
    [
        *(["--size", "big"], ["--keep", "time"], ["--confine", "house=1,2"]),
        *(["--stpes", "3"], ["another"]),
    ],
)
def test_wrong_usage_is_refused(desk: Path, option: list[str]):
    assert usage_error_of("generate", PROMPT, *option).startswith("Error: ")
    assert files(desk) == set()


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("error", "code"), [(FULL, 2), (KeyboardInterrupt(), 130)], ids=str)
def test_a_failure_while_saving_leaves_nothing(model, desk: Path, monkeypatch, error, code):
    monkeypatch.setattr(Path, "write_bytes", fail_with(error))
    assert invoke("generate", PROMPT, "--steps", 1, "-o", "x").exit_code == code
    assert files(desk) == set()


def test_running_out_of_memory_is_one_sentence(model, monkeypatch):
    error = RuntimeError("CUDA out of memory. Tried 2 GiB")
    monkeypatch.setattr(torch.nn.Conv2d, "forward", fail_with(error))
    assert "memory" in error_of("generate", PROMPT)


def test_warnings_are_printed_and_in_the_json(model):
    result = invoke(
        "generate", PROMPT, "--negative", "sea", "--guidance", 1, "--steps", 1, "--json"
    )
    (warning,) = json.loads(result.stdout)["warnings"]
    assert result.stderr == f"Warning: {warning}\n" and "'sea'" in warning


@pytest.fixture
def photo(desk: Path) -> Path:
    """A photo, which a model of random weights distorts: a warning says so."""
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(desk / "My Cat!.png")
    return desk / "My Cat!.png"


def test_locate_saves_the_librarys_run(model, desk: Path, photo: Path):
    invoke("locate", photo, PROMPT, "--seed", 7, "--steps", 2)
    folder = desk / "outputs" / "my-cat-a-red-house-7"
    assert files(folder) == FILES
    with pytest.warns(HeedmapWarning):
        found = Run.load(folder)
        same = locate(model, photo, PROMPT, seed=7, steps=2)
    assert found.settings == same.settings
    assert np.array_equal(found.maps["house"].values, same.maps["house"].values)


def test_a_refused_locate_writes_nothing(model, desk: Path, photo: Path):
    (desk / "text.png").write_text("no image")
    usage_error_of("locate", "none.png", PROMPT)
    error_of("locate", "text.png", PROMPT)
    usage_error_of("locate", photo, PROMPT, "--guidance", 2)
    assert files(desk) == {"text.png", photo.name}
