"""Where a model sees words in a picture: beside what diffusers itself has for the same end."""

import warnings
from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler
from families.checking import assert_restored, state_of
from PIL import Image

from heedmap import generate, locate, repeat, trace
from heedmap.errors import ArgumentError, HeedmapError, HeedmapWarning
from heedmap.io.writing import digest_of
from heedmap.results.runs import Run

PROMPT = "a red house"


def paint(width: int = 128, height: int = 128, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@torch.no_grad()
def locate_by_diffusers(pipe, picture: Image.Image, prompt: str, seed: int, steps: int, concepts):
    """A trace of the same maps by a scheduler, a callback and an encoder of diffusers alone."""
    noise = torch.Generator().manual_seed(seed)
    own = pipe.scheduler
    pixels = pipe.image_processor.preprocess(picture)
    clean = pipe.vae.encode(pixels).latent_dist.mode() * pipe.vae.config.scaling_factor
    pipe.scheduler = DDPMScheduler.from_config(own.config)
    timesteps = [floor(1000 * (1 - Fraction(2 * i + 1, 2 * steps))) for i in range(steps)]

    def add_noise(t: int) -> torch.Tensor:
        fresh = torch.randn(clean.shape, generator=noise)
        return pipe.scheduler.add_noise(clean, fresh, torch.tensor([t]))

    def again(pipe, step, timestep, given):
        if step + 1 < steps:
            given["latents"] = add_noise(timesteps[step + 1])
        return given

    try:
        with trace(pipe, concepts=concepts) as traced:
            pipe(
                prompt,
                timesteps=timesteps,
                latents=add_noise(timesteps[0]),
                guidance_scale=1.0,
                callback_on_step_end=again,
                output_type="latent",
            )
    finally:
        pipe.scheduler = own
    return traced


def test_locate_returns_a_run_with_its_settings(pipe, tmp_path: Path):
    picture = paint()
    found = locate(pipe, picture, PROMPT, seed=4, steps=2)
    assert np.array_equal(np.asarray(found.image), np.asarray(picture))
    about = found.settings
    assert (about.seed, about.steps, about.guidance, about.size) == (4, 2, 1.0, (128, 128))
    assert about.scheduler == type(pipe.scheduler).__name__ and about.located is not None
    assert about.located.size == (128, 128) and about.located.sha256 == digest_of(picture)
    saved = Run.load(found.save(tmp_path / "run", overlays=False))
    assert saved.settings == about
    assert np.array_equal(saved.maps["house"].values, found.maps["house"].values)
    with Image.open(tmp_path / "run" / "image.png") as image:
        assert "parameters" not in image.info  # no settings make this picture
        assert np.array_equal(np.asarray(image), np.asarray(picture))


def test_the_pipeline_is_restored(pipe):
    generate(pipe, PROMPT, seed=1, steps=1)  # some attributes are there after the first call
    before = state_of(pipe)
    scheduler = pipe.scheduler
    with pytest.raises(HeedmapError, match="size"):
        locate(pipe, paint(), PROMPT, steps=2, size=(7, 7))
    assert_restored(pipe, before)
    assert pipe.scheduler is scheduler


def test_wrong_images_and_options_are_refused(pipe, tmp_path: Path):
    (tmp_path / "text.png").write_text("no picture")
    for given in (tmp_path / "text.png", tmp_path / "none.png"):
        with pytest.raises(ArgumentError, match="png"):
            locate(pipe, given, PROMPT)
    with pytest.raises(ArgumentError, match="weights"):
        locate(pipe, paint(), "a (red:2) house")
    for given in ({"steps": 1000}, {"guidance": 2}):
        with pytest.raises(ArgumentError, match=r"steps|guidance"):
            locate(pipe, paint(), PROMPT, **given)


def test_a_located_run_is_repeated(pipe, tmp_path: Path):
    found = locate(pipe, paint(300, 200), PROMPT, seed=4, steps=3, tokens="all")
    saved = found.save(tmp_path / "run", overlays=False)
    again = repeat(pipe, saved)
    assert again.same and again.changed == {} and again.run.settings == found.settings
    first, *rest = found.maps.recording.arrays
    first = first.copy()
    first[0, 0, 0, :2] += 0.25
    recording = replace(found.maps.recording, arrays=(first, *rest))
    changed = repeat(pipe, replace(found, maps=replace(found.maps, recording=recording)))
    assert not changed.same
    assert changed.largest == pytest.approx(0.25, abs=1e-6)


def test_maps_and_concepts_equal_those_of_the_noised_image(pipe):
    """As `trace` has them around a call of the same latents; and are repeated and saved."""
    picture = paint()
    sought = ["sky", "blue tree"]
    alone = locate(pipe, picture, PROMPT, seed=4, steps=3)
    found = locate(pipe, picture, PROMPT, seed=4, steps=3, concepts=sought)
    assert alone.concepts is None and found.concepts is not None
    assert np.array_equal(found.maps["house"].values, alone.maps["house"].values)
    expected = locate_by_diffusers(pipe, picture, PROMPT, 4, 3, sought)
    pairs = [(found.maps["house"], expected.maps[0]["house"])]
    pairs += [(found.concepts[word], expected.concept_maps[0][word]) for word in sought]
    assert [word.text for word in found.concepts.words] == sought
    assert found.settings.concepts == tuple(sought)
    assert max(np.abs(one.values - other.values).max() for one, other in pairs) < 1e-4
    assert found.concepts["sky"].values.std() > 1e-4
    assert repeat(pipe, found).same


def test_an_image_unlike_the_models_gives_a_warning(embedded):
    own = generate(embedded, PROMPT, seed=1, steps=4).image
    with warnings.catch_warnings(action="error"):
        locate(embedded, own, PROMPT, seed=1, steps=1)
    with pytest.warns(HeedmapWarning) as warned:
        locate(embedded, paint(), PROMPT, seed=1, steps=1)
    assert len(warned) == 1
