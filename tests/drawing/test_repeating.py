"""A saved run drawn again: the same to the byte, or told how far it is from it."""

import base64
import hashlib
import json
import resource
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    HeunDiscreteScheduler,
    PNDMScheduler,
)
from making import random_pipeline, settings_of
from msgspec import structs
from PIL import Image

import heedmap
from heedmap import Confine, Grid, Pair, Reweight, Run, edit, generate, grid, repeat
from heedmap.drawing import generation
from heedmap.drawing.schedulers import set_up
from heedmap.errors import ArgumentError, HeedmapError, ModelError, RunError
from heedmap.models import batches

PROMPT = "a red house"


@pytest.fixture(scope="module")
def pipe():
    """One for all: whatever is repeated leaves it as it was."""
    return random_pipeline()


@pytest.fixture(scope="module")
def run(pipe) -> Run:
    return generate(pipe, PROMPT, seed=1, steps=1)


def again(pipe, made: Run | Pair | Grid, folder: Path, **given):
    """A thing saved and repeated from its folder."""
    return repeat(pipe, made.save(folder), **given)


def assert_same(found) -> None:
    assert found.same, str(found)
    assert (found.largest, found.differing) == (0, 0)
    assert str(found) == "Drawn again, it is the same to the byte."


# --- the same to the byte -----------------------------------------------------------------------

SCHEDULERS = [
    (DPMSolverMultistepScheduler, {"use_karras_sigmas": True}),
    (DPMSolverMultistepScheduler, {"algorithm_type": "sde-dpmsolver++"}),
    (PNDMScheduler, {"skip_prk_steps": True}),
    (EulerAncestralDiscreteScheduler, {}),
    (HeunDiscreteScheduler, {"use_karras_sigmas": True}),
]


def drawn_by(scheduler: Any, pipe: Any) -> Run:
    """What a pipeline draws with another scheduler; it has its own again."""
    own = pipe.scheduler
    pipe.scheduler = scheduler
    try:
        return generate(pipe, PROMPT, seed=1, steps=4)
    finally:
        pipe.scheduler = own


@pytest.mark.parametrize(("kind", "options"), SCHEDULERS)
def test_any_scheduler_on_the_embedded_model(embedded, tmp_path, kind, options):
    own, config = embedded.scheduler, dict(embedded.config)
    run = drawn_by(kind.from_config(own.config, **options), embedded)
    found = again(embedded, run, tmp_path / "run")
    assert_same(found)
    assert found.changed["schedulers.scheduler.class"] == (kind.__name__, type(own).__name__)
    assert embedded.scheduler is own
    assert dict(embedded.config) == config
    assert found.run.settings.scheduler == kind.__name__


def test_settings_of_a_scheduler_of_the_same_class(embedded, tmp_path):
    own = embedded.scheduler
    run = drawn_by(DDIMScheduler.from_config(own.config, timestep_spacing="leading"), embedded)
    found = again(embedded, run, tmp_path / "run")
    assert_same(found)
    assert found.changed == {
        "schedulers.scheduler.config.timestep_spacing": ("leading", "trailing")
    }


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"guidance": 3.25, "steps": 3, "negative": "at sea", "size": (144, 96)},
        {"negative": ""},
        {"prompt": "a (red:2.5) house (at:-0.3)"},
        {"keep": ("step", "head"), "tokens": "all", "branches": ["negative"], "negative": "sea"},
        {"concepts": ["sky", "red house"], "keep": ("layer", "step")},
        {"eta": 0.5},
        {"guidance_rescale": 0.7, "callback_on_step_end_tensor_inputs": ["latents"]},
        {"edits": [Reweight("red", 2.1, renormalize=True), Confine("house", (0, 0, 64, 128))]},
        {"edits": [Confine("red", np.eye(128, dtype=bool), strength=1.7, end=0.9, tail=False)]},
        {"edits": [Confine("house", (3.5, 0, 64, 128), along=["red"], start=0.25)]},
    ],
)
def test_a_run(pipe, tmp_path, asked):
    asked = {"prompt": PROMPT, "seed": 7, "steps": 2, **asked}
    run = generate(pipe, **asked)
    assert_same(again(pipe, run, tmp_path / "run"))
    assert_same(repeat(pipe, run))  # that was never saved
    found = repeat(random_pipeline(), str(tmp_path / "run"))
    assert_same(found)
    assert found.changed == {} and found.unknown == ()
    assert found.run.settings == run.settings


def test_what_nobody_said_is_the_pipelines_own(pipe, tmp_path):
    run = generate(pipe, PROMPT, seed=1, steps=2)
    assert_same(found := again(pipe, run, tmp_path / "run"))
    assert found.run.settings.defaults == {"guidance": "pipeline", "size": "pipeline"}


def test_timesteps_that_are_given_are_the_steps(pipe, tmp_path):
    own = pipe.scheduler
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(own.config)
    try:
        run = generate(pipe, PROMPT, seed=1, timesteps=[900, 600, 200])
    finally:
        pipe.scheduler = own
    assert run.settings.steps == 3
    assert run.settings.defaults["steps"] == "timesteps"
    assert_same(found := again(pipe, run, tmp_path / "run"))
    assert found.run.settings == run.settings


def test_an_interrupted_run_goes_where_it_was_to_go(pipe, tmp_path):
    def stop(pipe, step, timestep, tensors):
        pipe._interrupt = step == 1
        return tensors

    run = generate(pipe, PROMPT, seed=1, steps=5, callback_on_step_end=stop)
    folder = run.save(tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"function stop.*repeat\(pipe, run, callback_on"):
        repeat(pipe, folder)
    assert_same(repeat(pipe, folder, callback_on_step_end=stop))


def test_one_of_a_batch(pipe, tmp_path):
    runs = generation.generate_batch(pipe, [PROMPT, "at sea", "a house"], seeds=[1, 2, 3], steps=2)
    for number, run in enumerate(runs):
        assert run.settings.batch_place == (number, 3)
        assert_same(again(pipe, run, tmp_path / str(number)))


EDITS = [
    {"target": "a blue house"},
    {"target": "a red house at sea", "kind": "refine", "guidance": 3.0},
    {"source": "a (red:3) house", "target": "a blue (house:0.5)", "renormalize": True},
    {"source": r"a \(red\) (house:2.5)"},
    {"target": "a red sea", "cross": (0.2, 0.9), "self_attention": 0.6, "self_cells": 64},
    {
        "target": "a red sea", "only": "house->sea", "protect": ["red"], "threshold": 0.55,
        "blend_from": 0.3, "words": {"red": (0.1, 0.5)}, "negative": "",
    },
]  # fmt: skip


@pytest.mark.parametrize("asked", EDITS)
@pytest.mark.filterwarnings("ignore:the edit")
def test_an_edit(pipe, tmp_path, asked):
    pair = edit(pipe, **{"source": PROMPT, "seed": 7, "steps": 5, **asked})
    folder = pair.save(tmp_path / "pair")
    found = repeat(pipe, folder)
    assert_same(found)
    assert isinstance(found.run, Pair)
    assert found.pixels == 2 * 128 * 128
    for side in ("source", "edited"):
        assert_same(alone := repeat(pipe, folder / side))
        assert isinstance(alone.run, Run)


def test_one_of_several_edits(pipe, tmp_path):
    targets = ["a blue house", "a red sea", "a (red:2) house", "at sea"]
    for batch in (None, 4):
        pairs = edit(pipe, PROMPT, targets, seed=7, steps=2, batch=batch)
        for number, pair in enumerate(pairs):
            assert_same(again(pipe, pair, tmp_path / f"{batch}-{number}"))


@pytest.mark.filterwarnings("ignore:the edit")
def test_a_grid(pipe, tmp_path):
    made = grid(
        pipe, PROMPT, weights={"red": [1, 2.5]}, cross=[0.3, (0.2, 0.8)], seeds=[5, 6], steps=3,
        batch=4,
    )  # fmt: skip
    told: list[tuple[int, int]] = []
    folder = made.save(tmp_path / "grid")
    found = repeat(pipe, folder, progress=lambda *now: told.append(now))
    assert_same(found)
    assert told[-1] == (12, 12)
    assert found.pixels == (2 + 8) * 128 * 128
    assert [cell.row() for cell in found.run] == [cell.row() for cell in made]
    assert_same(repeat(pipe, folder / "cells" / "002"))
    assert_same(repeat(pipe, folder / "sources" / "6"))


def test_a_blended_grid(pipe, tmp_path):
    made = grid(
        pipe, PROMPT, "a red sea", self_attention=[0.2, 0.7], only="house->sea", protect="red",
        words={"red": 0.5}, threshold=0.5, seeds=[5], steps=3, kind="replace",
    )  # fmt: skip
    assert_same(again(pipe, made, tmp_path / "grid"))


# --- what is not the same -----------------------------------------------------------------------


def test_another_seed_is_told_by_how_much(pipe, tmp_path):
    run = generate(pipe, PROMPT, seed=1, steps=2)
    other = generate(pipe, PROMPT, seed=2, steps=2)
    found = repeat(pipe, replace(run, settings=other.settings))
    apart = np.abs(np.asarray(run.image, int) - np.asarray(other.image, int)).max(axis=-1)
    assert not found.same
    assert (found.largest, found.differing) == (apart.max(), (apart > 0).sum())
    assert str(found) == (
        f"Drawn again, it differs: {(apart > 0).sum()} of 16384 pixels, by up to {apart.max()} of "
        "255; the settings do not tell why (are the weights others?)."
    )
    about = json.loads(json.dumps(found.to_dict()))
    assert about["same"] is False and about["differing"] == found.differing


def test_a_picture_of_another_size_differs_throughout(pipe):
    run = generate(pipe, PROMPT, seed=1, steps=1)
    small = replace(run, image=run.image.resize((64, 64)))
    found = repeat(pipe, small)
    assert (found.same, found.largest, found.differing) == (False, 255, 64 * 64)


def test_what_is_another_now_is_listed(pipe):
    run = generate(pipe, PROMPT, seed=1, steps=1)
    noted = structs.replace(
        run.settings, versions=structs.replace(run.settings.versions, torch="1.0"), threads=64,
        loras=({"name": "style"},), model="org/name",
    )  # fmt: skip
    found = repeat(pipe, replace(run, settings=noted))
    assert_same(found)
    assert found.changed == {
        "versions.torch": ("1.0", run.settings.versions.torch),
        "threads": (64, 1),
        "loras": ([{"name": "style"}], []),
        "model": ("org/name", "StableDiffusionPipeline"),
    }


# --- what the file does not hold ----------------------------------------------------------------


def test_tensors_must_be_the_very_ones(pipe, tmp_path):
    latents = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(3))
    run = generate(pipe, PROMPT, seed=1, steps=2, latents=latents)
    folder = run.save(tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"tensor of 1×4×16×16\) is not in its settings"):
        repeat(pipe, folder)
    with pytest.raises(ArgumentError, match="the latents that was passed is not the one"):
        repeat(pipe, folder, latents=latents + 1)
    with pytest.raises(ArgumentError, match="image was passed, but this run had no such"):
        repeat(pipe, folder, latents=latents, image=Image.new("RGB", (8, 8)))
    assert_same(repeat(pipe, folder, latents=latents))


def fade(p, site):
    p[..., 2] *= 0.5
    return p


def test_rules_of_a_users_own_must_be_given(pipe, tmp_path):
    edits = [Reweight("house", 2), fade]
    folder = generate(pipe, PROMPT, seed=1, steps=2, edits=edits).save(tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"'fade' of this run.*repeat\(pipe, run, edits="):
        repeat(pipe, folder)
    with pytest.raises(ArgumentError, match="not those that the settings of this run tell of"):
        repeat(pipe, folder, edits=[fade])
    assert_same(repeat(pipe, folder, edits=edits))


def test_a_mask_too_large_for_the_file_must_be_given(pipe, tmp_path, monkeypatch):
    monkeypatch.setattr("heedmap.maps.regions._MOST_PACKED", 10)
    edits = [Confine("house", np.eye(128, dtype=bool))]
    folder = generate(pipe, PROMPT, seed=1, steps=1, edits=edits).save(tmp_path / "run")
    with pytest.raises(ArgumentError, match="'the mask of house' of this run is not in its set"):
        repeat(pipe, folder)
    with pytest.raises(ArgumentError, match="not those that"):
        repeat(pipe, folder, edits=[Confine("house", ~np.eye(128, dtype=bool))])
    assert_same(repeat(pipe, folder, edits=edits))


# --- older and hostile folders ------------------------------------------------------------------

NEW = (
    *("defaults", "tokens", "branches", "revision", "schedulers", "parts", "attention", "loras"),
    *("adapters", "hardware", "threads", "batch_place"),
)


def older(folder: Path) -> None:
    """Make a run's folder one that the first version wrote."""
    path = folder / "run.json"
    about = json.loads(path.read_text("utf-8"))
    about["settings"] = {k: v for k, v in about["settings"].items() if k not in NEW}
    about["settings"].get("edit", {}).pop("kind_asked", None)
    path.write_text(json.dumps(about), "utf-8")


def test_folders_of_an_older_version_load_and_repeat(pipe, tmp_path):
    run = generate(pipe, PROMPT, seed=1, steps=2, eta=0.5)
    older(folder := run.save(tmp_path / "run"))
    found = repeat(pipe, folder)
    assert_same(found)
    assert "schedulers" in found.unknown and "threads" in found.unknown
    pair = edit(pipe, PROMPT, "a blue house", seed=1, steps=2)
    folder = pair.save(tmp_path / "pair")
    older(folder / "source")
    older(folder / "edited")
    found = repeat(pipe, folder / "edited")
    assert_same(found)
    assert Pair.load(folder).edited.explorer()


def test_pictures_that_an_older_version_noted_by_type_must_be_given(pipe, tmp_path):
    latents = torch.zeros(1, 4, 16, 16)
    run = generate(pipe, PROMPT, seed=1, steps=1, latents=latents)
    noted = structs.replace(run.settings, arguments={"latents": "<Tensor>"})
    older(folder := replace(run, settings=noted).save(tmp_path / "run"))
    with pytest.raises(ArgumentError, match=r"latents of this run \(Tensor\) is not in its"):
        repeat(pipe, folder)
    assert_same(repeat(pipe, folder, latents=latents))


HOSTILE = [
    *({"prompt": odd} for odd in (None, 3, "", [], {"a": 1})),
    *({"seed": odd} for odd in (None, -1, 2**63, 1.5, "7", True, [])),
    *({"steps": odd} for odd in (0, 10**9, "3", 2.5, True, [3])),
    *({"guidance": odd} for odd in ("4", [], float("nan"), -1, 1e9)),
    *({"size": odd} for odd in (None, [1], [2**30, 2**30], [-8, 8], ["a", "b"], 3)),
    *({"size": odd, "defaults": {}} for odd in ([9, 9], [0, 8])),
    *({"negative": odd} for odd in (3, ["a"])),
    *({"keep": odd} for odd in ("layer", ["colour"], [3], None)),
    *({"tokens": odd} for odd in (None, "few")),
    *({"branches": odd} for odd in (3, ["x"])),
    *({"defaults": odd} for odd in (3, "steps", ["steps"])),
    *({"batch_place": odd} for odd in (3, [1], [1, 1], [-1, 2], [0, 10**9], ["a", 2])),
    *({"edits": odd} for odd in (3, ["x"], [{"kind": "confine", "word": "sky"}], [{}], None)),
    {"edits": [{"kind": "confine", "word": "house", "where": [0, 0, 9999, 9]}]},
    {"edits": [{"kind": "reweight", "word": "sky", "weight": 2}]},
    *({"arguments": odd} for odd in (3, [1], {"prompt": "x"}, {"seeds": [1]})),
    *({"arguments": odd} for odd in ({"eta": "x"}, {"eta": [1, 2]}, {"clip_skip": 99})),
    {"arguments": {"latents": {"object": "tensor"}}},
    {"arguments": {"callback_on_step_end": "print"}},
    {"arguments": {"guidance_rescale": {"object": "tuple", "items": [1]}}},
    *({"schedulers": odd} for odd in (3, {"scheduler": 3}, {"unet": {}}, {"scheduler": {}})),
    *(
        {"schedulers": {"scheduler": {"class": name, "config": {}}}}
        for name in ("NoScheduler", "DiffusionPipeline", "utils", "__path__", 3, None)
    ),
    *(
        {"schedulers": {"scheduler": {"class": "DDIMScheduler", "config": config}}}
        for config in (
            {"num_train_timesteps": 10**12}, {"num_train_timesteps": "x"}, {"beta_start": "x"},
            {"num_train_timesteps": 10**9}, {"num_train_timesteps": 1e9},
            {"beta_schedule": "x"}, {"trained_betas": "x"}, {"prediction_type": "x"}, [],
        )
    ),
    *({"edit": odd} for odd in (3, {}, {"source": 3}, {"source": PROMPT, "cross": [3, 4]})),
    *(
        {"edit": {"source": "a blue house", **odd}}
        for odd in (
            {"kind": "x"}, {"self": "x"}, {"windows": 3}, {"windows": {"sky": [0, 1]}},
            {"renormalize": 3}, {"only": 3}, {"only": "sky->sea"}, {"protect": "red"},
            {"self_cells": "x"}, {"blend_from": 3}, {"threshold": float("nan")},
        )
    ),
    {"edit": {"source": "a blue house", "cross": [0, 0.8], "self": [0, 0.4],
              "protect": ["house\n" * 9999] * 180}},
    {"arguments": {"latents": {"object": "\n" * 17, "name": "x\n" * 9}}},
    {"arguments": {"latents": {"object": "tensor", "shape": ["\n" * 9] * 9999}}},
    {"arguments": {"timesteps": [1] * 10_001}},
    {"edit": {"source": "a blue house"}, "batch_place": [0, 2]},
]  # fmt: skip


@pytest.mark.parametrize("odd", HOSTILE, ids=lambda odd: json.dumps(odd)[:60])
def test_hostile_settings_end_in_a_sentence(pipe, run, odd):
    """And leave the pipeline as it was."""
    own, config = pipe.scheduler, dict(pipe.config)
    noted = structs.replace(run.settings, **odd)
    with pytest.raises(HeedmapError) as error:
        repeat(pipe, replace(run, settings=noted))
    assert len(str(error.value)) < 600 and "\n" not in str(error.value)
    assert pipe.scheduler is own and dict(pipe.config) == config


# --- what a file may ask for ------------------------------------------------------------------


def assert_refused_at_once(pipe, run, settings: dict, said: str) -> None:
    """In a second, and in as little memory."""
    noted = replace(run, settings=structs.replace(run.settings, **settings))
    held, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(HeedmapError, match=said) as error:
        repeat(pipe, noted)
    assert time.process_time() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 100 * 1024  # KiB
    assert len(str(error.value)) < 600 and "\n" not in str(error.value)


def hostile_mask(side: int) -> dict:
    """A mask of so many pixels on a side that says what it holds, in a few KB."""
    bits = np.full(-(-side * side // 8), 255, dtype=np.uint8).tobytes()
    held = base64.b64encode(zlib.compress(bits, 9)).decode()
    where = {"mask": [side, side], "sha256": hashlib.sha256(bits).hexdigest(), "packed": held}
    return {"kind": "confine", "word": "house", "where": where}


def test_masks_of_another_size_are_not_unpacked(pipe, run):
    """Twelve of 11585² took 31 s and 2.9 GB."""
    masks = [hostile_mask(11585)] * 12
    assert_refused_at_once(
        pipe, run, {"edits": masks, "defaults": {}},
        r"mask of 'house' .* is 11585×11585 pixels: expected 128×128.*make it again",
    )  # fmt: skip
    assert_refused_at_once(  # whose size the pipeline chose, maybe from a picture
        pipe, run, {"edits": masks}, r"the 12 masks of this run have 1,610,546,700 pixels together"
    )


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("DPMSolverMultistepScheduler", {"solver_order": 5 * 10**7}),
        ("UniPCMultistepScheduler", {"solver_order": 10**5}),
        ("DEISMultistepScheduler", {"solver_order": 101}),
        ("SASolverScheduler", {"predictor_order": 10**6}),
        ("DDIMScheduler", {"num_train_timesteps": 10**9}),
        ("DDIMScheduler", {"num_train_timesteps": 100_001}),
        ("LCMScheduler", {"original_inference_steps": 10**9}),
        ("EulerDiscreteScheduler", {"sigma_max": 1e9}),
        ("DDIMScheduler", {"trained_betas": [0.1] * 100_001}),
        ("DDIMScheduler", {"beta_end": [[10**9]]}),
        ("DDIMScheduler", {"steps\n" * 500: 10**9}),
    ],
)
def test_schedulers_are_asked_for_what_they_have_use_for(pipe, run, kind, config):
    noted = {"scheduler": {"class": kind, "config": config}}
    said = "the scheduler of this run has .*: expected .*; make the run again"
    assert_refused_at_once(pipe, run, {"schedulers": noted}, said)


def test_a_scheduler_of_the_largest_numbers_is_quick(pipe, run):
    config = {"num_train_timesteps": 100_000, "solver_order": 3, "lambda_min_clipped": {
        "object": "float", "value": "-inf"}, "beta_schedule": "squaredcos_cap_v2"}  # fmt: skip
    noted = {"scheduler": {"class": "DPMSolverMultistepScheduler", "config": config}}
    began = time.process_time()
    with set_up(pipe, settings_of(schedulers=noted)):
        assert pipe.scheduler.config.num_train_timesteps == 100_000
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            [1, 1024],
            r"batch of 1024 pictures of 128×128, which take about .* [MGT]iB, and .*more memo",
        ),
        ([0, 4096], r"batch_place=\(0, 4096\): expected a number and .* at most 1024"),
    ],
)
def test_a_batch_that_no_memory_holds(pipe, run, monkeypatch, place, said):
    monkeypatch.setattr(batches, "free_bytes", lambda device: 2**30)
    edited = {"edit": {"source": "a blue house", "cross": [0, 0.8], "self": [0, 0.4]}}
    for more in ({}, edited):
        assert_refused_at_once(pipe, run, {"batch_place": place, **more}, said)


def test_the_model_that_the_settings_name(pipe, run, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    loaded = heedmap.load(tmp_path / "model", device="cpu")
    mine = generate(loaded, PROMPT, seed=1, steps=1)
    found = repeat(None, mine.save(tmp_path / "mine"))
    assert_same(found)
    assert found.changed == {}
    for odd in (None, 3, "", []):
        with pytest.raises(RunError, match=r"pass a pipeline"):
            repeat(None, replace(run, settings=structs.replace(run.settings, model=odd)))
    with pytest.raises(ModelError, match=r"there is no model.*pass a pipeline"):
        repeat(None, run)


def test_what_is_no_folder_of_heedmaps(pipe, tmp_path):
    with pytest.raises(RunError, match="is not a run, edit or grid: expected a folder"):
        repeat(pipe, tmp_path)
    assert list(tmp_path.iterdir()) == []
