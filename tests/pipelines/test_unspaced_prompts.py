"""A prompt without spaces, whose words the user names by their characters."""

from typing import Any

import numpy as np
import pytest
from making import same_pixels

import heedmap as hm

CAT = "一只小猫坐在草地上"
"""A kitten sits on the grass: three tokens a character."""
HOW: dict[str, Any] = {"seed": 3, "steps": 2, "guidance": 3.0}


@pytest.fixture(scope="module")
def run(random_model) -> hm.Run:
    return hm.generate(random_model, CAT, **HOW)


def test_a_map_is_the_sum_of_the_tokens_of_its_characters(run):
    tokens = [run.maps.token(position).values for position in range(10, 13)]
    assert np.allclose(run.maps["猫"].values, sum(tokens), atol=1e-6)
    assert tuple(run.maps) == (*CAT,) == run.maps.segment().names
    assert run.maps.segment(["小猫", "草地"]).names == ("小猫", "草地")


def test_a_word_is_weighted_confined_and_left_out(random_model, run):
    found = hm.ablate(random_model, run, "草地")
    assert found.without["prompt"].settings.prompt == "一只小猫坐在上"
    written = hm.generate(random_model, "一只小猫坐在(草地:0)上", **HOW)
    assert same_pixels(found.without["attention"].image, written.image)
    assert [not heat.values.any() for heat in written.maps.values()] == [c in "草地" for c in CAT]
    # Characters before a word are not taken along.
    left, alone = (hm.Confine("猫", (0, 0, 64, 128), along=along) for along in (None, ()))
    confined = [hm.generate(random_model, CAT, edits=[one], **HOW) for one in (left, alone)]
    assert same_pixels(*(one.image for one in confined))
    assert not same_pixels(confined[0].image, run.image)
