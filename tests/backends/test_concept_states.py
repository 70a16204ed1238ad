"""What the pipeline's own encoders make of concepts; every family: tests/families/test_beside."""

import pytest
import torch
from making import random_pipeline, random_pixart

from heedmap.backends.prompts import Reading, prompt_table, read_concepts
from heedmap.errors import TraceError

CONCEPTS = ("sea", "red house")


@pytest.fixture(scope="module")
def pipe():
    return random_pipeline()


def test_each_prompt_is_encoded_once_after_the_concepts(pipe):
    given = {
        "prompt": ["a cat", "a cat", "sea"], "device": "cpu", "num_images_per_prompt": 2,
        "do_classifier_free_guidance": True, "negative_prompt": ["no", "no", "no"],
    }  # fmt: skip
    read: list[list[str]] = []

    def encode(**asked):
        read.append(asked["prompt"])
        return pipe.encode_prompt(**asked)

    one, same, other = read_concepts(Reading(pipe, given), encode, CONCEPTS, given["prompt"])
    assert read == [["sea and red house and a cat", "sea and red house and sea"]]
    assert one is same and other is not one
    for found, text in zip((one, other), read[0], strict=True):
        expected = pipe.encode_prompt([text], "cpu", 1, False)[0][0]
        assert torch.allclose(found.states, expected, atol=1e-6) and len(expected) == 77
        table = prompt_table(pipe, text)
        assert found.places == (table.find("sea"), table.find("red house"))


def test_a_transformers_concepts_exclude_the_masked_padding():
    pipe = random_pixart()
    given = {"prompt": "a cat", "do_classifier_free_guidance": False, "max_sequence_length": 40}
    (found,) = read_concepts(Reading(pipe, given), pipe.encode_prompt, CONCEPTS, ["A cat"])
    text = "sea and red house and A cat"
    table = prompt_table(pipe, text, {"max_sequence_length": 40})
    seen = len([token for token in table.tokens if token.kind != "pad"])
    states, mask, *_ = pipe.encode_prompt(
        text, do_classifier_free_guidance=False, max_sequence_length=40
    )
    assert len(found.states) == seen == int(mask.sum()) < 40
    assert torch.allclose(found.states, states[0, :seen], atol=1e-6)
    assert found.places == (table.find("sea"), table.find("red house"))


def test_states_of_another_number_of_tokens_are_refused(pipe):
    """As by a pipeline that reads long prompts in parts."""

    def encode(prompt, **_):
        states, _ = pipe.encode_prompt(prompt, "cpu", 1, False)
        return torch.cat([states, states], dim=1), None

    with pytest.raises(TraceError):
        read_concepts(Reading(pipe, {"prompt": "a"}), encode, CONCEPTS, ["a"])
