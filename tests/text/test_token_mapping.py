from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import table

from heedmap.text.alignment import WordAlignment, pair_words
from heedmap.text.prompts import fold
from heedmap.text.token_mapping import token_shares

# --- Replace ----------------------------------------------------------------------------------


def in_order(source, target) -> WordAlignment:
    """Each word of the source with that at the same place of the target."""
    pairs = tuple(zip(source.words, target.words, strict=True))
    changes = tuple((a, b) for a, b in pairs if fold(a.text) != fold(b.text))
    return WordAlignment(pairs, changes, "replace", "")


def rows(source, target, alignment=None) -> dict[int, dict[int, float]]:
    entries = token_shares(source, target, alignment or in_order(source, target))
    assert entries == sorted(entries)
    found = defaultdict(dict)
    for w, n, share in entries:
        assert n not in found[w]
        found[w][n] = share
    # Each row of M sums to 1.
    assert sorted(found) == list(range(len(source.tokens)))
    for row in found.values():
        assert min(row) >= 0 and max(row) < len(target.tokens) and min(row.values()) > 0
        assert abs(sum(row.values()) - 1) < 1e-9
    return dict(found)


def test_a_swap_with_another_number_of_tokens_is_mapped():
    # letters: <start> a house a t | to  ->  a d o g a t: "house" is one token, "dog" three
    source = table("a house, at tree", 14)
    target = table("a dog, at tree", 14)
    assert [w.tokens for w in source.words] == [(1,), (2,), (4,), (5, 6, 7, 8)]
    assert [w.tokens for w in target.words] == [(1,), (2, 3, 4), (6,), (7, 8, 9, 10)]
    third = 1 / 3
    assert rows(source, target) == {
        0: {0: 1},
        1: {1: 1},
        2: {2: third, 3: third, 4: third},
        3: {5: 1},  # the comma
        4: {6: 1},  # each word after the swap has its own source word
        **{w: {w + 2: 1} for w in range(5, 9)},
        9: {11: 1},  # the end
        10: {12: 1},
        11: {13: 1},
        12: {13: 1},  # padding that the target has less of
        13: {13: 1},
    }


def test_a_swap_of_as_many_tokens_pairs_them():
    """As the published mapper does: it averages only where it must (Hertz et al., 2022)."""
    # two swaps, one of equal and one of other numbers, with words between them
    source = table("dog at dog", 14)
    target = table("cow at bird", 14)
    assert [w.tokens for w in target.words] == [(1, 2, 3), (4,), (5, 6, 7, 8)]
    found = rows(source, target)
    assert {w: found[w] for w in range(1, 5)} == {w: {w: 1} for w in range(1, 5)}
    assert [found[w] for w in (5, 6, 7)] == [dict.fromkeys((5, 6, 7, 8), 0.25)] * 3


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a, b", "a b", {2: {2: 1}, 3: {2: 1}}),  # to the next word
        ("a b", "a, b", {2: {3: 1}}),  # new: no one's
        ("a , ; ! b", "a . ? b", {2: {2: 1}, 3: {3: 1}, 4: {3: 1}, 5: {4: 1}}),
        # Surplus goes to the last of its own gap.
        ("b !?, cat", "b ., cat", {2: {2: 1}, 3: {3: 1}, 4: {3: 1}}),
    ],
)
def test_punctuation_is_mapped_with_its_word(source, target, expected):
    found = rows(table(source), table(target))
    assert {w: row for w, row in found.items() if w in expected} == expected


def test_replaced_words_at_the_limit_keep_rows_that_sum_to_one():
    # 8 positions: <start>, 6 tokens, <end>
    source = table("a b c house d e f g", 8)
    target = table("a b c dog d e f g", 8)
    assert [len(w.tokens) for w in source.words] == [1, 1, 1, 1, 1, 1, 0, 0]
    assert [len(w.tokens) for w in target.words] == [1, 1, 1, 3, 0, 0, 0, 0]
    found = rows(source, target)
    assert found[4] == {4: 1 / 3, 5: 1 / 3, 6: 1 / 3}
    assert found[5] == found[6] == found[7] == {7: 1}  # words pushed off: to what follows


def test_changed_words_past_the_limit_are_listed():
    source = table("a b cat", 4)
    assert [word.text for word in pair_words(source, table("a b dog", 4)).unread] == ["cat", "dog"]
    assert [word.text for word in pair_words(source, table("a b cat d", 4)).unread] == ["d"]
    assert not pair_words(source, source).unread


SCRAPS = [
    *("a", "cat", "dog", "Cat", "house", "at", ",", ", ", ".", "!", " ", " ", " ", "(", "-"),
    *("😂", "😂😂", "é", "e\u0301", "ﬁ", "猫", "<", "\u200d", "'", "1.5", "zygomorphic"),
]
PROMPTS = st.lists(st.sampled_from(SCRAPS), max_size=12).map("".join)
LIMITS = st.sampled_from([2, 3, 6, 12, 77])
NAMES = st.sampled_from(["letters", "embedded"])


@given(PROMPTS, PROMPTS, LIMITS, NAMES)
def test_no_attention_is_lost(a, b, limit, name):
    source = table(a, limit, name)
    target = table(b, limit, name)
    if len(source.words) != len(target.words):
        return
    alignment = in_order(source, target)
    if alignment.unread:
        return  # refused before
    found = rows(source, target, alignment)
    for x, y in alignment.changes:
        for k, w in enumerate(x.tokens):
            paired = y.tokens[k : k + 1] if len(x.tokens) == len(y.tokens) else y.tokens
            assert found[w] == dict.fromkeys(paired, 1 / len(paired))
    for kind in ("start", "end"):
        for w, n in zip(source.positions(kind), target.positions(kind), strict=True):
            assert found[w] == {n: 1}
    # Order is kept: no token goes before where an earlier one goes, but for punctuation.
    edges = [min(found[w]) for word in source.words for w in word.tokens]
    assert edges == sorted(edges)


@given(PROMPTS, LIMITS, NAMES)
def test_a_prompt_to_itself_is_the_identity(prompt, limit, name):
    source = table(prompt, limit, name)
    assert rows(source, source) == {w: {w: 1} for w in range(limit)}
    assert refinement(source, source) == list(range(limit))


# --- Refine -----------------------------------------------------------------------------------


def refinement(source, target) -> list[int | None]:
    """For each position of the target that of the source whose attention it takes, or None."""
    found = dict.fromkeys(range(len(target.tokens)))
    alignment = replace(pair_words(source, target), kind="refine")
    for w, n, share in token_shares(source, target, alignment):
        assert share == 1 and found[n] is None
        found[n] = w
    return list(found.values())


def test_new_tokens_have_no_source():
    source = table("a cow, at", 12)
    target = table("a red cow at", 12)
    assert [t.text for t in source.tokens[:8]] == ["<start>", *"acow,", "at", "<end>"]
    # <start> a r e d c o w at <end> <pad> <pad>
    assert refinement(source, target) == [0, 1, None, None, None, 2, 3, 4, 6, 7, 8, 9]
    # the other way, there is more padding than the source has
    assert refinement(target, source) == [0, 1, 5, 6, 7, None, 8, 9, 10, 11, None, None]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # letters of a whole word are not torn from other words
        ("cow", "clown cow", "cow"),
        ("cow", "cow clown", "cow"),
        ("at cow", "at crow cow", "atcow"),
        ("a house and a dog", "a house and a cat and a dog", "ahouseandadog"),
    ],
)
def test_mapped_words_keep_all_their_tokens(source, target, expected):
    source = table(source)
    target = table(target)
    taken = refinement(source, target)
    kept = [n for n in target.positions() if taken[n] is not None]
    assert "".join(target.tokens[n].text for n in kept) == expected
    for word in target.words:
        assert len({taken[n] is None for n in word.tokens}) == 1


@given(PROMPTS, PROMPTS, LIMITS, NAMES)
def test_mapped_columns_ascend(a, b, limit, name):
    source = table(a, limit, name)
    target = table(b, limit, name)
    taken = refinement(source, target)
    columns = [w for w in taken if w is not None]
    assert columns == sorted(set(columns))
    for n, w in enumerate(taken):
        if w is None:
            assert target.tokens[n].kind in ("text", "pad")
        else:
            assert source.tokens[w].kind == target.tokens[n].kind
