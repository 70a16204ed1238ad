"""Plans of edits: the rules, the windows, and the words that an edit is about."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from making import letter_tokenizer, random_pipeline

from heedmap.errors import ArgumentError, TruncatedWordError, UnknownWordError
from heedmap.mathematics.rules import Inject, Renormalize, Weights
from heedmap.options import EditOptions, GenerateOptions
from heedmap.pipelines.edit_runs import EditSource


@cache
def unet():
    return random_pipeline().unet


def plan(
    source, target, cross_replace=(0.0, 0.8), own=(0.0, 0.4), limit=77, weights=None, **options
):
    tokenizer = letter_tokenizer()
    tokenizer.model_max_length = limit
    pipe = SimpleNamespace(tokenizer=tokenizer, text_encoder=object(), unet=unet())
    given = EditOptions(cross_replace=cross_replace, self_replace=own, **options)
    return EditSource(pipe, source, given, GenerateOptions()).plan(target, weights)


def test_a_words_window_holds_for_its_tokens():
    inject = plan(
        "a red house", "a blue house", (0.1, 0.8), word_windows={"blue": (0.2, 0.6)}
    ).rules[0]
    starts, ends = [0.1] * 77, [0.8] * 77
    starts[2:6], ends[2:6] = [0.2] * 4, [0.6] * 4
    assert torch.equal(inject.start, torch.tensor(starts))
    assert torch.equal(inject.end, torch.tensor(ends))
    refined = plan("a house", "a red house", (0.1, 0.8)).rules[0]
    new = refined.end == 0
    assert new.nonzero().flatten().tolist() == [2, 3, 4]
    assert (refined.start == torch.tensor(0.1)).all() and not refined.columns[:, new].any()
    assert (refined.columns[:, ~new].sum(0) == 1).all()


def test_rules_are_in_order():
    plain = plan("a red house", "a blue house").rules
    assert [type(rule) for rule in plain] == [Inject]
    weighted = plan("a red house", "a blue (house:2)").rules
    assert [type(rule) for rule in weighted] == [Inject, Weights]
    whole = plan("a red house", "a blue (house:2)", renormalize=True).rules
    assert [type(rule) for rule in whole] == [Inject, Weights, Renormalize]
    assert whole[1].weights.tolist() == [2.0 if n == 6 else 1.0 for n in range(77)]


def test_a_window_of_a_new_word_is_refused():
    with pytest.raises(ArgumentError):
        plan("a house", "a red house", word_windows={"red": (0.0, 0.5)})
    with pytest.raises(UnknownWordError):
        plan("a house", "a red house", word_windows={"sea": (0.0, 0.5)})


def changed(made):
    return list(made.words.source), list(made.words.edited)


@pytest.mark.parametrize(
    ("source", "target", "weights", "kind", "has_effect", "words"),
    [
        ("a red house", "a blue house", {}, "replace", True, ([1], [1])),
        ("a red house", "a house", {}, "refine", True, ([1], [])),
        ("a house", "a red house", {}, "refine", True, ([], [1])),
        ("a red house", "a (red:2) house", {}, "reweight", True, ([1], [1])),
        ("a (red:2) house", "a red house", {}, "reweight", True, ([1], [1])),
        ("a (red:2) house", "a (red:2) house", {}, "reweight", False, ([], [])),
        ("a red house", "a red house", {"house": 1, "a": 1}, "reweight", False, ([0, 2], [0, 2])),
        ("a house", "a red house", {"red": 1}, "refine", True, ([], [1])),
        ("a (red:1) house", "a red house", {}, "reweight", False, ([], [])),
    ],
)
def test_an_edit_knows_the_words_it_changes(source, target, weights, kind, has_effect, words):
    made = plan(source, target, weights=weights)
    assert (made.kind, made.has_effect, changed(made)) == (kind, has_effect, words)
    assert made.source.prompt == source


def test_changed_words_past_the_limit_are_refused():
    with pytest.raises(TruncatedWordError):
        plan("a b c d sea", "a b c d cat", limit=6)
    # The model reads a word that only one of the prompts has within the limit.
    made = plan("a b c d e", "b c d (e:2)", limit=6)
    assert changed(made) == ([0], [3]) and made.has_effect
    made = plan("(b:2) c d e", "a b c d e", limit=6)
    assert changed(made) == ([0], [0, 1])


def test_swapped_words_must_be_in_their_prompts():
    assert plan("a cat", "a dog", only="cat->dog").swaps == (((2, 3), (2, 3, 4)),)
    assert plan("a cat", "a dog").swaps == ()
    for only in ("dog->dog", "cat->cat"):
        with pytest.raises(UnknownWordError):
            plan("a cat", "a dog", only=only)
