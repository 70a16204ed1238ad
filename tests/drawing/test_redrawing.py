"""Variations of a run: each as it was drawn, with nothing else changed, told when something is."""

from dataclasses import replace
from typing import Any

import pytest
from diffusers import EulerDiscreteScheduler
from making import noting, same_pixels

from heedmap import Run, generate
from heedmap.drawing import generation
from heedmap.drawing.redrawing import check_room, draw_varied, limit_of
from heedmap.drawing.repeating import look
from heedmap.errors import ArgumentError, RunError
from heedmap.models import batches
from heedmap.options import DrawOptions
from heedmap.recording.probing import Probe

PROMPT = "a red house"


@pytest.fixture(scope="module")
def run(random_model) -> Run:
    return generate(random_model, PROMPT, seed=1, steps=2)


def test_as_it_was_and_with_another_prompt(random_model, run):
    runs, changed = draw_varied(
        random_model, run, lambda asked: [asked, replace(asked, prompt="a red")], {}, None
    )
    assert changed == {}
    assert same_pixels(runs[0].image, run.image) and runs[0].settings == run.settings
    assert same_pixels(runs[1].image, generate(random_model, "a red", seed=1, steps=2).image)


def test_at_its_place_in_a_batch_as_large(random_model):
    both = generation.generate_batch(
        random_model, [PROMPT, "a tree"], seeds=[1, 2], steps=2, guidance=2.0, negative="sea"
    )
    (again,), _ = draw_varied(random_model, both[1], lambda asked: [asked], {}, None)
    assert again.settings.batch_place == (1, 2)
    assert same_pixels(again.image, both[1].image) and again.settings == both[1].settings


def test_progress_is_of_all(random_model, run):
    told: list[tuple[int, int]] = []
    draw_varied(random_model, run, lambda asked: [asked] * 3, {}, lambda *step: told.append(step))
    assert told == [(n, 6) for n in range(1, 7)]


def test_the_scheduler_is_set_up_and_put_back(random_model):
    own = random_model.scheduler
    random_model.scheduler = EulerDiscreteScheduler.from_config(own.config)
    try:
        made = generate(random_model, PROMPT, seed=1, steps=3)
    finally:
        random_model.scheduler = own
    (again,), changed = draw_varied(random_model, made, lambda asked: [asked], {}, None)
    assert same_pixels(again.image, made.image)
    assert random_model.scheduler is own
    assert changed["schedulers.scheduler.class"][0] == "EulerDiscreteScheduler"


def test_what_is_missing_or_too_large_is_told(random_model, run, monkeypatch):
    odd = noting(run, edits=[{"kind": "rule", "name": "pale"}])
    with pytest.raises(ArgumentError, match="the edit 'pale' of this run is not in its settings"):
        draw_varied(random_model, odd, lambda asked: [asked], {}, None)
    monkeypatch.setattr(batches, "free_bytes", lambda _: 10)
    large = noting(run, batch_place=[0, 7])
    with pytest.raises(RunError, match="was drawn in a batch of 7 pictures of 128×128"):
        draw_varied(random_model, large, lambda asked: [asked], {}, None)
    broken = noting(run, steps=9_999, arguments={"eta": "much"})
    with pytest.raises((RunError, ArgumentError)):
        draw_varied(random_model, broken, lambda asked: [asked], {}, None)


def test_a_pipeline_that_fails_is_a_run_error_and_a_bug_of_heedmap_is_not(random_model, run):
    theirs = noting(run, arguments={"cross_attention_kwargs": "no mapping"})
    with pytest.raises(RunError) as caught:
        draw_varied(random_model, theirs, lambda asked: [asked], {}, None)
    assert isinstance(caught.value.__cause__, AttributeError)
    aimless: Any = None
    with pytest.raises(AttributeError):
        look(random_model, run, {}, Probe(aimless, 0, "conditional", 0), None)


def test_the_room_for_a_batch_is_for_all_maps_those_of_concepts_too(random_model, monkeypatch):
    found = generate(
        random_model, PROMPT, seed=1, steps=1, negative="sea", guidance=2.0,
        branches={"conditional", "negative"}, concepts=["cat", "tree"], keep={"layer", "step"},
    )  # fmt: skip
    assert found.negative_maps is not None and found.concepts is not None
    maps = (found.maps, found.negative_maps, found.concepts)
    held = sum(array.nbytes for one in maps for array in one.recording.arrays)
    room = 3 * (batches.image_bytes(random_model, (128, 128)) + held)
    monkeypatch.setattr(batches, "free_bytes", lambda _: room)
    check_room(random_model, found, 3)
    monkeypatch.setattr(batches, "free_bytes", lambda _: room - 1)
    with pytest.raises(RunError, match="a batch of 3 pictures"):
        check_room(random_model, found, 3)
    monkeypatch.setattr(DrawOptions, "limit", 0)
    assert limit_of(found) == 2 * held
