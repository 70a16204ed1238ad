"""What an edit is: its kind, the words that it is about, and what of it is refused."""

import pytest
from making import random_pipeline

from heedmap import edit


@pytest.fixture(scope="module")
def pipe():
    """One for all: an edit leaves it as it was. It reads a start, four tokens and an end."""
    made = random_pipeline()
    made.tokenizer.model_max_length = 7
    return made


def make(pipe, source, target, **options):
    return edit(pipe, source, target, seed=1, steps=1, **options)


@pytest.mark.filterwarnings("ignore:the model reads")
@pytest.mark.parametrize(
    ("source", "target", "kind", "words"),
    [
        ("a red house", "a big house", "replace", ([1], [1])),
        ("a red house", "a house", "refine", ([1], [])),
        ("a house", "a red house", "refine", ([], [1])),
        ("a red house", "a (red:2) house", "reweight", ([1], [1])),
        ("a (red:2) house", "a red house", "reweight", ([1], [1])),
        # The model reads a word that only one of the prompts has within the limit.
        ("a b c d e f", "b c d e (f:2)", "refine", ([0], [4])),
    ],
)
def test_an_edit_knows_its_kind_and_the_words_it_changes(pipe, source, target, kind, words):
    report = make(pipe, source, target).report
    assert report.kind == kind
    assert (list(report.words.source), list(report.words.edited)) == words
