"""The labels of prompts: none that disagrees with the ids that an encoder read."""

import pytest
from making import random_pipeline

from heedmap.backends.prompts import Reader, Reading, prompt_table
from heedmap.errors import TraceError
from heedmap.text.words import tokenize


@pytest.fixture(scope="module")
def pipe():
    return random_pipeline()


def reader(tokenizer, texts):
    """What an encoder has read of some texts."""
    ids = tokenizer(texts, padding="max_length", truncation=True).input_ids
    return Reader(tokenizer, [ids])


def tables(pipe, texts, readers=None, **given):
    readers = [reader(pipe.tokenizer, texts)] if readers is None else readers
    return Reading(pipe, {"prompt": texts, **given}, readers).tables("prompt", 0)


def test_each_prompt_has_its_table(pipe):
    texts = ["a red house", "at the sea", "a red house"]
    assert tables(pipe, texts) == [tokenize(text, pipe.tokenizer) for text in texts]


def test_each_encoder_must_agree(pipe):
    other = random_pipeline().tokenizer
    both = [reader(pipe.tokenizer, ["a cat", "a cat"]), reader(other, ["a cat", "a cat"])]
    assert tables(pipe, ["a cat", "a cat"], both)[1] == prompt_table(pipe, "a cat")
    both[1] = reader(other, ["a dog", "a cat"])
    with pytest.raises(TraceError):
        tables(pipe, ["a cat", "a cat"], both)
    with pytest.raises(TraceError):
        tables(pipe, ["a red house"], [reader(pipe.tokenizer, ["a blue house"])])


def test_what_no_encoder_read_is_labelled_all_the_same(pipe):
    """A negative prompt of zeros."""
    assert tables(pipe, ["no"], [Reader(pipe.tokenizer)]) == [prompt_table(pipe, "no")]


def test_as_many_texts_as_images(pipe):
    with pytest.raises(TraceError):
        tables(pipe, ["a", "b"], [reader(pipe.tokenizer, ["a"])])
    with pytest.raises(TraceError):
        tables(pipe, ["a"], prompt_2=["b"])
