"""What a pipeline reads: prompts tied to text states, through the pipeline's own encoder."""

import warnings
from dataclasses import replace

import pytest
import torch
from making import random_pipeline

from heedmap.backends.prompts import Reader, Reading, prompt_table, watch
from heedmap.errors import HeedmapWarning, ModelError, TraceError


@pytest.fixture(scope="module")
def pipe():
    return random_pipeline()


def heard(pipe, *given, prompts=None, negative=True, **named):
    """What is heard of a call of `encode_prompt`, and what that gave."""
    found = []
    undo = watch(pipe, prompts, negative, found.append, lambda: found.append("end"))
    try:
        result = pipe.encode_prompt(*given, **named)
    finally:
        undo()
    (encoding,) = found
    return encoding, result


def texts(branch):
    return [table.prompt for table in branch.tables]


def test_each_picture_has_its_table(pipe):
    asked = ["a red house", "at the sea"]
    encoding, (states, negative) = heard(pipe, asked, "cpu", 2, True, ["no", "cat"])
    assert texts(encoding.conditional) == [asked[0], asked[0], asked[1], asked[1]]
    assert texts(encoding.negative) == ["no", "no", "cat", "cat"]
    assert torch.equal(encoding.conditional.states, states)
    assert torch.equal(encoding.negative.states, negative)
    assert not encoding.prompt_first
    alone, _ = heard(pipe, "a house", "cpu", 1, False)
    assert texts(alone.conditional) == ["a house"] and alone.negative is None
    # One negative prompt for all, or none.
    for given, told in ((["no", "no"], "no"), (None, "")):
        both, _ = heard(pipe, asked, "cpu", 1, True, given)
        assert texts(both.negative) == [told, told]
        assert [t.kind for t in both.negative.tables[0].tokens][:1] == ["start"]


def test_the_negative_prompt_has_words_only_if_it_is_recorded(pipe):
    encoding, _ = heard(pipe, ["a", "b"], "cpu", 2, True, ["no", "no"], negative=False)
    assert len(encoding.negative.tables) == 4
    assert {table.tokens[3].text for table in encoding.negative.tables} == {"3"}


def embeds(pipe, *prompts):
    found, _ = pipe.encode_prompt(list(prompts), "cpu", 1, False)
    return found


def test_one_negative_text_with_several_embeds_is_refused(pipe):
    """The pipeline itself ends in an error of shapes."""
    given = embeds(pipe, "a red house", "at the sea")
    with pytest.raises(TraceError):
        heard(pipe, None, "cpu", 1, True, "no", prompt_embeds=given)


def test_embeds_are_labelled_by_position_or_by_their_prompts(pipe):
    given = embeds(pipe, "a red house", "at the sea")
    named = {"prompt_embeds": given, "negative_prompt_embeds": embeds(pipe, "", "")}
    encoding, _ = heard(pipe, None, "cpu", 2, True, **named)
    assert len(encoding.conditional.tables) == len(encoding.negative.tables) == 4
    assert encoding.conditional.tables[0].tokens[5].text == "5"
    labels = ("a red house", "at the sea")
    encoding, _ = heard(pipe, None, "cpu", 2, True, prompts=labels, **named)
    assert texts(encoding.conditional) == [labels[0], labels[0], labels[1], labels[1]]
    # A negative prompt as text beside them.
    encoding, _ = heard(
        pipe, None, "cpu", 1, True, ["no", "no"], prompts=labels, prompt_embeds=given
    )
    assert texts(encoding.negative) == ["no", "no"]


@pytest.mark.parametrize(
    "labels", [("a red house", "at the cat"), ("a blue house", "at the sea"), ("a",), ("a",) * 3]
)
@pytest.mark.parametrize("each", [1, 3])
def test_prompts_that_do_not_belong_to_the_embeds_are_refused(pipe, labels, each):
    given = embeds(pipe, "a red house", "at the sea")
    with pytest.raises(TraceError):
        heard(pipe, None, "cpu", each, False, prompts=labels, prompt_embeds=given)


def test_an_encoder_method_without_images_per_prompt_is_read(pipe):
    made = random_pipeline()

    def encode_prompt(prompt=None, prompt_embeds=None):
        return (embeds(pipe, *prompt) if prompt_embeds is None else prompt_embeds), None

    made.encode_prompt = encode_prompt
    given = embeds(pipe, "a", "b", "c")
    encoding, _ = heard(made, prompts=("a", "b", "c"), prompt_embeds=given)
    assert texts(encoding.conditional) == ["a", "b", "c"]
    with pytest.raises(TraceError):
        heard(made, prompts=("a", "x", "c"), prompt_embeds=given)


def test_labels_must_equal_the_encoded_prompt(pipe):
    encoding, _ = heard(pipe, "a house", "cpu", 1, False, prompts=("a house",))
    assert texts(encoding.conditional) == ["a house"]
    with pytest.raises(TraceError):
        heard(pipe, "a house", "cpu", 1, False, prompts=("a sea",))


def test_embeds_without_a_text_encoder_are_labelled_by_position(pipe):
    given = embeds(pipe, "a red house")
    made = random_pipeline()
    made.text_encoder = None
    encoding, _ = heard(made, None, "cpu", 1, False, prompt_embeds=given)
    assert encoding.conditional.tables[0].tokens[5].text == "5"
    labels = ("a red house",)
    with pytest.warns(HeedmapWarning):  # which the tokenizer labels, and no encoder confirms
        encoding, _ = heard(made, None, "cpu", 1, False, prompts=labels, prompt_embeds=given)
    assert encoding.conditional.tables[0] == prompt_table(pipe, "a red house")
    for prompts, states in ((("a", "b"), given), (labels, given[:, :50])):
        with pytest.raises(TraceError), warnings.catch_warnings(action="ignore"):
            heard(made, None, "cpu", 1, False, prompts=prompts, prompt_embeds=states)
    assert prompt_table(made, "a red house").prompt == "a red house"
    made.tokenizer = None
    with pytest.raises(TraceError):
        prompt_table(made, "a red house")


@pytest.mark.parametrize("read", ["a bed house", "a red red house", "a house"])
def test_an_encoder_that_reads_another_text_is_refused(pipe, read):
    made = random_pipeline()
    encode = made.encode_prompt
    made.encode_prompt = lambda prompt, device, each, guided: encode(read, device, each, guided)
    with pytest.raises(TraceError):
        heard(made, "a red house", "cpu", 1, False)


def test_an_encoder_that_reads_another_negative_text_is_refused(pipe):
    made = random_pipeline()
    encode = made.encode_prompt

    def encode_prompt(prompt, device, each, guided, negative_prompt=None):
        return encode(prompt, device, each, guided, "cat")

    made.encode_prompt = encode_prompt
    with pytest.raises(TraceError):
        heard(made, "a red house", "cpu", 1, True, "dog")
    # Beside prompt_embeds the negative text is all that is read.
    given = embeds(pipe, "a red house")
    made.encode_prompt = lambda prompt, device, each, guided, negative_prompt, prompt_embeds: (
        encode(prompt, device, each, guided, "cat", prompt_embeds=prompt_embeds)
    )
    with pytest.raises(TraceError):
        heard(made, None, "cpu", 1, True, "dog", given)
    made.encode_prompt = encode_prompt
    encoding, _ = heard(made, "a red house", "cpu", 1, True, "dog", negative=False)
    assert texts(encoding.conditional) == ["a red house"]


def test_states_that_do_not_fit_the_prompt_are_refused(pipe):
    given = embeds(pipe, "a red house")
    short = random_pipeline()
    short.encode_prompt = lambda prompt, **_: (given[:, :70], None)
    with pytest.raises(TraceError):
        heard(short, "a red house")
    short.encode_prompt = lambda prompt, **_: (given.repeat(3, 1, 1), None)
    with pytest.raises(TraceError):
        heard(short, ["a", "b"])


class StableDiffusionInstructPix2PixPipeline:
    """As InstructPix2Pix has it: prompt, negative and negative again in one tensor."""

    def __init__(self, pipe):
        self.tokenizer, self.text_encoder = pipe.tokenizer, pipe.text_encoder
        self.unet = pipe.unet
        self.freed = 0

    def _encode_prompt(self, prompt, each=1, negative_prompt=None, prompt_embeds=None, guided=True):
        if prompt_embeds is not None:
            return prompt_embeds
        states = []
        for text in (prompt, negative_prompt or "") if guided else (prompt,):
            ids = self.tokenizer(text, padding="max_length", return_tensors="pt").input_ids
            states.append(self.text_encoder(ids)[0].repeat_interleave(each, 0))
        return torch.cat([*states, *states[1:]])

    def maybe_free_model_hooks(self):
        self.freed += 1


def test_the_older_encoder_method_is_recorded(pipe):
    older, found = StableDiffusionInstructPix2PixPipeline(pipe), []
    undo = watch(older, None, True, found.append, lambda: found.append("end"))
    states = older._encode_prompt("a red house", negative_prompt="no")
    older.maybe_free_model_hooks()
    undo()
    encoding, end = found
    assert (end, older.freed) == ("end", 1)
    assert encoding.prompt_first
    assert (texts(encoding.conditional), texts(encoding.negative)) == (["a red house"], ["no"])
    assert encoding.blocks_in(states) == {"conditional": [0], "negative": [1, 2]}
    alike = older._encode_prompt("no", negative_prompt="no")
    assert replace(encoding, conditional=encoding.negative).blocks_in(alike) == {
        "conditional": [0], "negative": [1, 2],
    }  # fmt: skip
    assert sorted(vars(older)) == ["freed", "text_encoder", "tokenizer", "unet"]
    older.maybe_free_model_hooks()
    assert len(found) == 2 and older.freed == 2
    undo = watch(older, None, False, found.append, lambda: None)
    with pytest.raises(TraceError):
        older._encode_prompt(None, prompt_embeds=states)
    older._encode_prompt("a red house", guided=False)
    assert found[-1].negative is None
    older.text_encoder = None
    with pytest.raises(TraceError):
        older._encode_prompt(None, prompt_embeds=states)
    undo()


def test_an_object_without_an_encoder_method_is_refused():
    with pytest.raises(ModelError):
        watch(object(), None, False, print, print)


# --- the labels of prompts ---


def reader(tokenizer, texts):
    """What an encoder has read of some texts."""
    ids = tokenizer(texts, padding="max_length", truncation=True).input_ids
    return Reader(tokenizer, [ids])


def read_tables(pipe, texts, readers=None, **given):
    readers = [reader(pipe.tokenizer, texts)] if readers is None else readers
    return Reading(pipe, {"prompt": texts, **given}, readers).tables("prompt", 0)


def test_encoders_that_disagree_are_refused(pipe):
    other = random_pipeline().tokenizer
    both = [reader(pipe.tokenizer, ["a cat", "a cat"]), reader(other, ["a cat", "a cat"])]
    assert read_tables(pipe, ["a cat", "a cat"], both)[1] == prompt_table(pipe, "a cat")
    both[1] = reader(other, ["a dog", "a cat"])
    with pytest.raises(TraceError):
        read_tables(pipe, ["a cat", "a cat"], both)
    with pytest.raises(TraceError):
        read_tables(pipe, ["a red house"], [reader(pipe.tokenizer, ["a blue house"])])


def test_a_negative_prompt_of_zeros_is_labelled(pipe):
    """A negative prompt of zeros."""
    assert read_tables(pipe, ["no"], [Reader(pipe.tokenizer)]) == [prompt_table(pipe, "no")]


def test_the_number_of_texts_must_be_that_of_the_images(pipe):
    with pytest.raises(TraceError):
        read_tables(pipe, ["a", "b"], [reader(pipe.tokenizer, ["a"])])
    with pytest.raises(TraceError):
        read_tables(pipe, ["a"], prompt_2=["b"])
