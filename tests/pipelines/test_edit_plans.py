"""Plans: what an edit takes from its source, and what of it could not act."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from making import letter_tokenizer, random_pipeline, table

from heedmap.errors import ArgumentError, TruncatedWordError, UnknownWordError
from heedmap.mathematics.rules import Inject, Renormalize, Weights
from heedmap.options import EditOptions
from heedmap.pipelines.edit_plans import EditBase, Planner
from heedmap.text.weights import parse_weights, token_weights


@cache
def unet():
    return random_pipeline().unet


def planner(source, limit=77, **options):
    tokenizer = letter_tokenizer()
    tokenizer.model_max_length = limit
    pipe = SimpleNamespace(tokenizer=tokenizer, text_encoder=object(), unet=unet())
    parsed = parse_weights(source)
    read = table(parsed.text, limit)
    weights = token_weights(parsed.spans, read)
    return Planner(EditBase(pipe, source, read, weights, EditOptions(**options)))


def plan(source, target, cross=(0.0, 0.8), own=(0.0, 0.4), named=(), **options):
    windows = {"cross": cross, "self_attention": own}
    return planner(source, **windows, **options).plan(target, named=named)


# --- what did nothing ---------------------------------------------------------------------------


def cross_said(steps, bounds, window="its window"):
    return (
        f"the edit 'a blue house' took no cross-attention from its source in {window}: no step of "
        f"{steps} lies in {bounds[0]:g} to {bounds[1]:g} of the run; widen it, or use more steps"
    )


@pytest.mark.parametrize(
    ("cross", "words", "steps", "expected"),
    [
        ((0.0, 0.8), {}, 4, []),
        ((0.0, 0.0), {}, 4, []),  # not asked for
        ((0.5, 0.5), {}, 4, []),
        ((0.1, 0.2), {}, 4, [cross_said(4, (0.1, 0.2))]),
        ((0.1, 0.25), {}, 5, []),
        ((0.3, 0.45), {}, 2, [cross_said(2, (0.3, 0.45))]),
        (
            (0.0, 0.8),
            {"house": (0.1, 0.2)},
            4,
            [cross_said(4, (0.1, 0.2), "the window of 'house'")],
        ),
        ((0.0, 0.8), {"house": (0.1, 0.3)}, 4, []),
        ((0.0, 0.8), {"house": (0.2, 0.2)}, 4, []),
        # Not in its own window, but each word has another, or some of them have.
        ((0.1, 0.2), {"house": (0.0, 0.5)}, 4, []),
        (
            (0.1, 0.2),
            {"house": (0.1, 0.15)},
            4,
            [cross_said(4, (0.1, 0.2)), cross_said(4, (0.1, 0.15), "the window of 'house'")],
        ),
    ],
)
def test_windows_that_hold_no_step(cross, words, steps, expected):
    made = plan("a red house", "a blue house", cross, (0.0, 0.0), words=words)
    assert made.idle(steps, shared=0, cells=64) == expected


@pytest.mark.parametrize(("own", "shared", "told"), [
    ((0.0, 0.4), 0, True), ((0.0, 0.4), 1, False), ((0.0, 0.0), 0, False), ((0.3, 0.3), 0, False),
    ((0.1, 0.2), 0, True),
])  # fmt: skip
def test_self_attention_that_was_not_taken(own, shared, told):
    said = plan("a red house", "a blue house", (0.0, 1.0), own).idle(4, shared, cells=64)
    assert said == told * [
        "the edit 'a blue house' took no self-attention from its source in its window: no step of "
        f"4 lies in {own[0]:g} to {own[1]:g} of the run, or no layer has at most 64 cells; widen "
        "it, or use more steps"
    ]


# --- what is taken, and what the edit is about --------------------------------------------------


def test_windows_of_tokens():
    made = plan("a red house", "a blue house", (0.1, 0.8), words={"blue": (0.2, 0.6)})
    inject = made.injection
    starts, ends = [0.1] * 77, [0.8] * 77
    starts[2:6], ends[2:6] = [0.2] * 4, [0.6] * 4
    assert torch.equal(inject.start, torch.tensor(starts))
    assert torch.equal(inject.end, torch.tensor(ends))
    assert torch.equal(inject.columns, made.columns)
    refined = plan("a house", "a red house", (0.1, 0.8)).injection
    new = refined.end == 0
    assert new.nonzero().flatten().tolist() == [2, 3, 4]
    assert (refined.start == torch.tensor(0.1)).all() and not refined.columns[:, new].any()
    assert (refined.columns[:, ~new].sum(0) == 1).all()


def test_rules_in_their_order():
    plain = plan("a red house", "a blue house").rules()
    assert [type(rule) for rule in plain] == [Inject]
    weighted = plan("a red house", "a blue (house:2)").rules()
    assert [type(rule) for rule in weighted] == [Inject, Weights]
    whole = plan("a red house", "a blue (house:2)", renormalize=True).rules()
    assert [type(rule) for rule in whole] == [Inject, Weights, Renormalize]
    assert whole[1].weights.tolist() == [2.0 if n == 6 else 1.0 for n in range(77)]


def test_a_new_word_has_no_window():
    with pytest.raises(ArgumentError):
        plan("a house", "a red house", words={"red": (0.0, 0.5)})
    with pytest.raises(UnknownWordError):
        plan("a house", "a red house", words={"sea": (0.0, 0.5)})


@pytest.mark.parametrize(
    ("source", "target", "named", "kind", "acts", "changed"),
    [
        ("a red house", "a blue house", (), "replace", True, ([1], [1])),
        ("a red house", "a house", (), "refine", True, ([1], [])),
        ("a house", "a red house", (), "refine", True, ([], [1])),
        ("a red house", "a (red:2) house", (), "reweight", True, ([1], [1])),
        ("a (red:2) house", "a red house", (), "reweight", True, ([1], [1])),
        ("a (red:2) house", "a (red:2) house", (), "reweight", False, ([], [])),
        ("a (red:2) house", "a (red:2) house", ("red",), "reweight", False, ([1], [1])),
        ("a red house", "a red house", ("house", "a"), "reweight", False, ([0, 2], [0, 2])),
        ("a house", "a red house", ("red",), "refine", True, ([], [1])),
        ("a (red:1) house", "a red house", (), "reweight", False, ([], [])),
    ],
)
def test_what_an_edit_is_about(source, target, named, kind, acts, changed):
    made = plan(source, target, named=named)
    assert (made.kind, made.acts, made.changed()) == (kind, acts, changed)
    assert made.base.written == source and made.written == target


def test_words_past_the_limit():
    with pytest.raises(TruncatedWordError):
        plan("a b c d sea", "a b c d cat", limit=6)
    # A changed weight of a word that is cut: it has no tokens to differ in.
    cut = plan("a b c d e", "a (b:2) c d e", limit=6)
    assert cut.changed() == ([1], [1]) and cut.acts
    named = plan("a b c d e", "a (b:2) c d e", limit=6, named=("e", "c"))
    assert named.changed() == ([1, 2], [1, 2])


def test_words_that_one_prompt_alone_reads():
    made = plan("a b c d e", "b c d e", limit=6, named=("e",))
    assert made.changed() == ([0], [3])
    made = plan("b c d e", "a b c d e", limit=6, named=("e",))
    assert made.changed() == ([3], [0])


def test_swaps_are_words_of_their_prompts():
    assert plan("a cat", "a dog", only="cat->dog").swaps == (((2, 3), (2, 3, 4)),)
    assert plan("a cat", "a dog").swaps == ()
    for only in ("dog->dog", "cat->cat"):
        with pytest.raises(UnknownWordError):
            plan("a cat", "a dog", only=only)
