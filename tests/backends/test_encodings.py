"""What a pipeline reads: prompts tied to text states, through the pipeline's own encoder."""

import warnings

import pytest
from making import random_pipeline, run

from heedmap.backends.prompts import prompt_table
from heedmap.errors import HeedmapWarning, TraceError
from heedmap.recording.tracing import trace

BOTH = ("conditional", "negative")


@pytest.fixture(scope="module")
def texts():
    """A pipeline to encode texts."""
    return random_pipeline()


def embeds(texts, *prompts):
    found, _ = texts.encode_prompt(list(prompts), "cpu", 1, False)
    return found


def record(pipe, prompt, each=1, prompts=None, branches=BOTH, **arguments):
    """The prompts whose words are recorded, by branch."""
    with trace(pipe, prompts=prompts, branches=branches) as recorder:
        count = each * (1 if prompt is None or isinstance(prompt, str) else len(prompt))
        if prompt is None:
            count = each * len(arguments["prompt_embeds"])
        run(pipe, prompt, range(count), steps=1, num_images_per_prompt=each, **arguments)
    found = [recorder.maps]
    if "negative" in branches:
        found.append(recorder.negative_maps)
    return [[maps.tokens.prompt for maps in branch] for branch in found]


ASKED = ["a red house", "at the sea"]


@pytest.mark.parametrize(
    ("negative", "read"),
    [
        (["no", "cat"], ["no", "no", "cat", "cat"]),
        (None, [""] * 4),
    ],
)
def test_each_image_has_the_prompt_and_negative_prompt_of_its_own(pipe, negative, read):
    found = record(pipe, ASKED, each=2, negative_prompt=negative)
    assert found == [[ASKED[0]] * 2 + [ASKED[1]] * 2, read]


def test_embeds_may_stand_beside_a_negative_prompt_as_text(pipe, texts):
    given = embeds(texts, *ASKED)
    found = record(pipe, None, prompts=ASKED, prompt_embeds=given, negative_prompt=["no", "no"])
    assert found == [ASKED, ["no", "no"]]


@pytest.mark.parametrize("labels", [("a red house", "at the cat"), ("a",)])
@pytest.mark.parametrize("each", [1, 3])
def test_prompts_that_do_not_belong_to_the_embeds_are_refused(pipe, texts, labels, each):
    given = embeds(texts, *ASKED)
    with pytest.raises(TraceError, match="prompts of the trace"):
        record(pipe, None, each, labels, BOTH[:1], prompt_embeds=given)


def test_embeds_without_a_text_encoder_are_labelled_by_the_tokenizer(pipe, texts):
    """No encoder confirms what the words are."""
    given = embeds(texts, "a red house")
    pipe.text_encoder = None
    alone = {"prompt_embeds": given, "guidance_scale": 1.0}
    with pytest.warns(HeedmapWarning), trace(pipe, prompts="a red house") as recorder:
        run(pipe, None, steps=1, **alone)
    assert recorder.maps[0].tokens == prompt_table(texts, "a red house")
    with (
        pytest.raises(TraceError, match="prompts of the trace"),
        warnings.catch_warnings(action="ignore"),
    ):
        record(pipe, None, 1, ("a", "b"), BOTH[:1], **alone)
    pipe.tokenizer = None
    with pytest.raises(TraceError, match="tokenizer"):
        prompt_table(pipe, "a red house")


def pipe_reading(pipe, text=None, negative=None, change=lambda states: states):
    """A pipeline whose encoder reads another text than it is given, or gives other states."""
    encode = pipe.encode_prompt

    def encode_prompt(prompt, device, each, guided, negative_prompt=None, **arguments):
        texts = text or prompt, negative or negative_prompt
        states, against = encode(texts[0], device, each, guided, texts[1], **arguments)
        return change(states), against

    pipe.encode_prompt = encode_prompt
    return pipe


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "a red red house"},
        {"negative": "cat"},
        {"change": lambda states: states[:, :70]},
    ],
)
def test_an_encoder_that_reads_another_text_is_refused(pipe, changes):
    with pytest.raises(TraceError, match="tokens"):
        record(pipe_reading(pipe, **changes), "a red house", negative_prompt="dog")


def test_a_negative_text_that_is_not_recorded_may_be_another(pipe):
    found = record(
        pipe_reading(pipe, negative="cat"), "a red house", branches=BOTH[:1], negative_prompt="dog"
    )
    assert found == [["a red house"]]
