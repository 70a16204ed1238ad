"""A word left out both ways: to the bit what `generate` draws so, and nothing else changed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import EulerDiscreteScheduler
from making import same_pixels
from PIL import Image

import heedmap as hm
from heedmap.errors import ArgumentError, HeedmapWarning

PROMPT = "a red house, a tree"
HOW: dict[str, Any] = {"seed": 3, "steps": 2, "guidance": 3.0}


@pytest.fixture(scope="module")
def run(random_model) -> hm.Run:
    return hm.generate(random_model, PROMPT, **HOW)


@pytest.fixture(scope="module")
def ablation(random_model, run) -> hm.Ablation:
    return hm.ablate(random_model, run, "house")


# --- to the bit -------------------------------------------------------------------------------


def test_an_ablated_words_attention_is_reweighted_by_0(random_model, run, ablation):
    expected = hm.generate(random_model, PROMPT, edits=[hm.Reweight("house", 0)], **HOW)
    assert same_pixels(ablation.without["attention"].image, expected.image)
    assert ablation.without["attention"].settings == expected.settings
    assert (ablation.without["attention"].maps["house"].values == 0).all()


def test_the_second_image_reads_the_prompt_without_the_word(random_model, run, ablation):
    expected = hm.generate(random_model, "a red , a tree", **HOW)
    assert same_pixels(ablation.without["prompt"].image, expected.image)
    assert ablation.without["prompt"].settings == expected.settings
    assert [word.text for word in ablation.without["prompt"].maps.words] == [
        "a",
        "red",
        "a",
        "tree",
    ]


def test_the_run_is_generated_again_bit_identically(run, ablation):
    assert same_pixels(ablation.run.image, run.image) and ablation.run.settings == run.settings
    assert ablation.word == "house"


# --- with all that the run was drawn with -----------------------------------------------------


def test_other_words_keep_their_edits_and_weights(random_model):
    edits = [hm.Reweight("tree", 2), hm.Confine("house", (0, 0, 64, 128)), hm.Reweight("house", 3)]
    edits += [hm.Confine("tree", (64, 0, 128, 128), along=["red house"])]
    run = hm.generate(random_model, "a (red:2) house, a tree", edits=edits, **HOW)
    found = hm.ablate(random_model, run, "house")
    noted = [edit.word for edit in found.without["attention"].settings.edits]
    assert noted == ["tree", "house", "house", "tree", "house"]
    assert found.without["attention"].settings.edits[-1].weight == 0
    assert found.without["attention"].settings.edits[:-1] == run.settings.edits
    assert [edit.word for edit in found.without["prompt"].settings.edits] == ["tree"]
    assert found.without["prompt"].settings.prompt == "a (red:2) , a tree"
    again = hm.generate(random_model, "a (red:2) , a tree", edits=[hm.Reweight("tree", 2)], **HOW)
    assert same_pixels(found.without["prompt"].image, again.image)


def test_a_users_rule_must_be_given_and_acts_in_both_images(random_model):
    calls: list[int] = []

    def pale(p: torch.Tensor, site: hm.Site) -> torch.Tensor:
        calls.append(site.step)
        return p * 0.5

    run = hm.generate(random_model, PROMPT, edits=[pale], **HOW)
    with pytest.raises(ArgumentError, match="pale"):
        hm.ablate(random_model, run, "house")
    each = len(calls)
    found = hm.ablate(random_model, run, "house", edits=[pale])
    assert len(calls) == 4 * each
    assert [edit.name for edit in found.without["prompt"].settings.edits] == ["pale"]


def test_a_run_that_generates_differently_now_gives_a_warning(random_model, run):
    other = replace(run, image=Image.new("RGB", run.image.size))
    with pytest.warns(HeedmapWarning):
        found = hm.ablate(random_model, other, "house")
    assert same_pixels(found.run.image, run.image)
    own = random_model.scheduler
    random_model.scheduler = EulerDiscreteScheduler.from_config(own.config)
    try:
        hm.ablate(random_model, run, "house")  # set up as it was noted: no warning
    finally:
        random_model.scheduler = own
