"""The labels of what is read: each prompt once, and never one that disagrees with the encoder."""

from types import SimpleNamespace

import pytest
from making import random_pipeline, texts_read

from heedmap.backends.prompts import encoders, prompt_table, tables_read
from heedmap.errors import TraceError
from heedmap.text.tokens import tokenize


@pytest.fixture(scope="module")
def pipe():
    return random_pipeline()


@pytest.fixture
def read(pipe):
    with texts_read(pipe.tokenizer) as found:
        yield found


def reader(tokenizer, texts):
    """What an encoder has read of some texts."""
    ids = tokenizer(texts, padding="max_length", truncation=True).input_ids
    return SimpleNamespace(tokenizer=tokenizer, ids=[ids])


def tables(pipe, texts, known=None, readers=None, call=0, **given):
    readers = [reader(pipe.tokenizer, texts)] if readers is None else readers
    return tables_read(pipe, {"prompt": texts, **given}, "prompt", readers, call, known or {})


def test_a_prompt_is_read_once_however_often_it_is_drawn(pipe, read):
    texts = ["a red house", "at the sea", "a red house", "a red house"]
    found = tables(pipe, texts)
    assert [table.prompt for table in found] == texts and found[0] is found[2]
    assert sorted(read) == ["a red house", "at the sea"]
    assert found[1] == tokenize("at the sea", pipe.tokenizer)


def test_what_was_read_before_is_not_read_again(pipe, read):
    known = {text: prompt_table(pipe, text) for text in ("a red house", "at the sea")}
    read.clear()
    found = tables(pipe, ["at the sea", "a cat"], known)
    assert found[0] is known["at the sea"] and read == ["a cat"]


def test_what_was_read_before_counts_only_if_it_is_what_the_encoder_was_given(pipe):
    stale = {"a red house": tokenize("a red house", pipe.tokenizer, limit=8)}
    (found,) = tables(pipe, ["a red house"], stale)
    assert found == prompt_table(pipe, "a red house") != stale["a red house"]
    with pytest.raises(TraceError, match="read other tokens than the prompt 'a red house' has"):
        tables(pipe, ["a red house"], stale, [reader(pipe.tokenizer, ["a blue house"])])


def test_each_tokenizer_reads_a_prompt_once(pipe, read):
    other = random_pipeline().tokenizer
    texts = ["a cat", "a cat"]
    both = [reader(pipe.tokenizer, texts), reader(other, texts)]
    tables(pipe, texts, readers=both)
    assert read == ["a cat", "a cat"]
    # That of the second encoder must agree as well, and what was known is of the first alone.
    read.clear()
    known = {"a cat": prompt_table(pipe, "a cat")}
    both[1] = reader(other, ["a dog", "a cat"])
    with pytest.raises(TraceError, match="read other tokens than the prompt 'a cat' has"):
        tables(pipe, texts, known, both)


def test_what_no_encoder_read_is_labelled_all_the_same(pipe):
    """A negative prompt of zeros."""
    (found,) = tables(pipe, ["no"], readers=[SimpleNamespace(tokenizer=pipe.tokenizer, ids=[])])
    assert found == prompt_table(pipe, "no")


def test_as_many_texts_as_pictures(pipe):
    with pytest.raises(TraceError, match="prompt was read as 1 text for 2 pictures"):
        tables(pipe, ["a", "b"], readers=[reader(pipe.tokenizer, ["a"])])
    with pytest.raises(TraceError, match="prompt_2 differs from prompt"):
        tables(pipe, ["a"], prompt_2=["b"])


def test_encoders_are_pairs(pipe):
    assert encoders(pipe) == {"tokenizer": (pipe.tokenizer, pipe.text_encoder)}
    assert encoders(SimpleNamespace(tokenizer=1, text_encoder=None, text_encoder_2=2)) == {}
    both = SimpleNamespace(tokenizer=None, text_encoder=None, tokenizer_2=1, text_encoder_2=2)
    assert encoders(both) == {"tokenizer_2": (1, 2)}
