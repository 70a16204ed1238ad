import random
import time
from collections import defaultdict
from functools import cache

import pytest
from conftest import letter_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from heedmap.alignment import pair_words, refinement, replacement, swap_of
from heedmap.errors import ArgumentError, TruncatedWordError
from heedmap.models import tokenizer
from heedmap.tokens import by_position, read, tokenize
from heedmap.words import TokenTable


@cache
def shared(name: str, limit: int):
    if name == "letters":
        found = letter_tokenizer()
        found.model_max_length = limit
    else:
        found = tokenizer()
        found.model_max_length = limit
    return found


def table(prompt: str, limit: int = 77, name: str = "letters") -> TokenTable:
    return tokenize(prompt, shared(name, limit))


def shown(source: str, target: str, **kwargs) -> str:
    """The pairs as one line: `red>blue`, `=house`, `+fluffy`, `-old`."""
    found = pair_words(table(source), table(target), **kwargs)
    same = set(found.same)
    signs = []
    for pair in found.pairs:
        a, b = pair
        if a and b:
            signs.append(f"={b.text}" if pair in same else f"{a.text}>{b.text}")
        else:
            signs.append(f"+{b.text}" if b else f"-{a.text}" if a else "?")
    return f"{found.kind}: {' '.join(signs)}"


# --- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            "a red house next to a tree",
            "a blue house next to a tree",
            "replace: =a red>blue =house =next =to =a =tree",
        ),
        ("a cat", "a fluffy cat", "refine: =a +fluffy =cat"),
        ("a fluffy cat", "a cat", "refine: =a -fluffy =cat"),
        # the right one of two
        (
            "a red house and a blue house",
            "a red house and a green house",
            "replace: =a =red =house =and =a blue>green =house",
        ),
        (
            "a red house and a blue house",
            "a big red house and a blue house",
            "refine: =a +big =red =house =and =a =blue =house",
        ),
        ("a cat and a dog", "a dog and a cat", "replace: =a cat>dog =and =a dog>cat"),
        # case, Unicode form and punctuation are no change
        ('"A Cat", on the mat!', "a cat on the (MAT)", "replace: =a =cat =on =the =MAT"),
        ("an e\u0301te\u0301 don’t ﬁne", "an Été don't fine", "replace: =an =Été =don't =fine"),
        # words of several tokens, and what is one word and not another
        ("a cathedral", "a cat", "replace: =a cathedral>cat"),
        ("a house", "a zygomorphic house", "refine: =a +zygomorphic =house"),
        # surplus goes to the end where it can, else before the noun's phrase
        ("a cat", "a cat and a cat", "refine: =a =cat +and +a +cat"),
        ("a dog", "a cat and a dog", "refine: +a +cat +and =a =dog"),
        (
            "a house and a dog",
            "a house and a cat and a dog",
            "refine: =a =house +and +a +cat =and =a =dog",
        ),
        # equal numbers, and yet not one to one
        ("a red house", "red house tonight", "refine: -a =red =house +tonight"),
        ("a house red", "a red house", "refine: =a -house =red +house"),
        # swapped and added between the same neighbours: phrase by phrase, the last for the last
        ("a cat sits", "a big fluffy dog sits", "refine: =a +big +fluffy cat>dog =sits"),
        ("a big red house here", "a castle here", "refine: =a -big -red house>castle =here"),
        ("a cat", "a big dog on the grass", "refine: =a +big cat>dog +on +the +grass"),
        (
            "a cat on grass",
            "a dog under tall trees",
            "refine: =a cat>dog on>under +tall grass>trees",
        ),
        ("red house", "castle on hill", "refine: -red house>castle +on +hill"),
        ("a cat", "a on grass", "refine: =a -cat +on +grass"),
        ("cat", "dog", "replace: cat>dog"),
        ("cats sleep", "a dog runs", "refine: +a cats>dog sleep>runs"),
        ("", "", "replace: "),
        ("...", "!", "replace: "),
        ("", "a cat", "refine: +a +cat"),
        ("a cat", "", "refine: -a -cat"),
    ],
)
def test_words(source, target, expected):
    assert shown(source, target) == expected


@pytest.mark.parametrize(
    ("source", "target", "kind", "expected"),
    [
        (
            "a house",
            "a castle",
            None,
            "'house' became 'castle'; all other words are the same, so their attention is replaced "
            "word by word",
        ),
        (
            "red house",
            "blue tree",
            None,
            "'red' became 'blue' and 'house' became 'tree', so attention is replaced word by word",
        ),
        ("a cat", "A cat!", None, "all words are the same, so attention is replaced word by word"),
        ("", "!", None, "neither prompt has a word, so attention is replaced word by word"),
        (
            "a cat",
            "a fluffy cat",
            None,
            "'fluffy' was added, so attention is refined: what stayed takes the source's, what is "
            "new keeps its own",
        ),
        (
            "a big cat sits",
            "a dog sits here now",
            None,
            "'cat' became 'dog'; 'here' and 'now' were added; 'big' was dropped, so attention is "
            "refined: what stayed takes the source's, what is new keeps its own",
        ),
        (
            "a cat",
            "a dog",
            "refine",
            "'cat' became 'dog'; as asked, attention is refined: what stayed takes the source's, "
            "what is new keeps its own",
        ),
        (
            "a b c d e f",
            "g h i j k l",
            "replace",
            "'a' became 'g', 'b' became 'h', 'c' became 'i' and 3 more; as asked, attention is "
            "replaced word by word",
        ),
    ],
)
def test_why(source, target, kind, expected):
    assert pair_words(table(source), table(target), kind).why == expected


def test_a_kind_that_was_asked_for():
    assert shown("a house red", "a red house", kind="replace") == "replace: =a house>red red>house"
    assert shown("a cat", "a dog", kind="refine") == "refine: =a cat>dog"
    with pytest.raises(ArgumentError, match=r"^kind is 'replace', 'refine' or None, not 'swap'\.$"):
        pair_words(table("a"), table("b"), "swap")  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ArgumentError,
        match=r"^Replace needs one target word for each source word, but the source has 2 and the "
        r"target 4 \('big' and 'fluffy' added\); use refine\.$",
    ):
        pair_words(table("a cat"), table("a big fluffy cat"), "replace")


def distance(a, b) -> int:
    """Levenshtein's, by its definition."""

    @cache
    def least(i, j):
        if not i or not j:
            return i + j
        swap = least(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(swap, least(i - 1, j) + 1, least(i, j - 1) + 1)

    return least(len(a), len(b))


WORDS = st.lists(st.sampled_from(["a", "cat", "Cat", "red", "on", "house"]), max_size=7)


@given(WORDS, WORDS)
def test_words_hold_together(a, b):
    source, target = table(" ".join(a)), table(", ".join(b))
    found = pair_words(source, target)
    assert [x for x, _ in found.pairs if x] == list(source.words)
    assert [y for _, y in found.pairs if y] == list(target.words)
    assert found.kind == ("replace" if found.one_to_one else "refine")
    assert found.one_to_one == (not found.added and not found.dropped)
    for x, y in found.same:
        assert x.text.casefold() == y.text.casefold()
    least = distance([w.casefold() for w in a], [w.casefold() for w in b])
    changes = len(found.pairs) - len(found.same)
    # A phrase stands for a phrase, which may cost a change more than the least there are.
    assert least <= changes
    if found.one_to_one:
        assert changes == least
    assert pair_words(source, source).same == tuple(zip(source.words, source.words, strict=True))


# --- Replace ----------------------------------------------------------------------------------


def rows(source, target, **kwargs) -> dict[int, dict[int, float]]:
    alignment = pair_words(source, target, **kwargs)
    entries = replacement(source, target, alignment)
    assert entries == sorted(entries)
    assert len({entry[:2] for entry in entries}) == len(entries)
    found = defaultdict(dict)
    for w, n, share in entries:
        assert 0 <= w < len(source.tokens) and 0 <= n < len(target.tokens) and 0 < share <= 1
        found[w][n] = share
    return dict(found)


def sums_to_one(source, found):
    assert sorted(found) == list(range(len(source.tokens)))
    assert all(abs(sum(row.values()) - 1) < 1e-9 for row in found.values())


def test_a_swap_that_changes_the_number_of_tokens():
    # letters: <start> a house a t | to  ->  a d o g a t: "house" is one token, "dog" three
    source, target = table("a house, at tree", 14), table("a dog, at tree", 14)
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
    # and back: three columns on one
    assert rows(target, source) == {
        **{0: {0: 1}, 1: {1: 1}, 2: {2: 1}, 3: {2: 1}, 4: {2: 1}, 5: {3: 1}, 6: {4: 1}},
        **{w: {w - 2: 1} for w in range(7, 14)},
    }


def test_two_words_of_several_tokens():
    source, target = table("dog"), table("bird")
    found = rows(source, target)
    for w in (1, 2, 3):
        assert found[w] == {1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}
    # tokens that two words share by chance are not matched
    assert rows(table("dog"), table("dot"))[1] == {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}


def test_a_word_that_is_the_same_and_spelled_otherwise():
    # one folded word, other tokens: it spreads as if it were swapped
    source, target = table("a fine cat"), table("a ﬁne cat")
    (word,), (other,) = source.matches("fine")[0], target.matches("fine")[0]
    found = rows(source, target)
    if len(word.tokens) != len(other.tokens):
        assert found[word.tokens[0]] == dict.fromkeys(other.tokens, 1 / len(other.tokens))
    assert found[source.words[2].tokens[1]] == {target.words[2].tokens[1]: 1}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a, b", "a, b", {2: {2: 1}}),
        ("a, b", "a b", {2: {2: 1}, 3: {2: 1}}),  # to the next word
        ("a b,", "a b", {3: {3: 1}, 4: {3: 1}}),  # to the end
        (", a b", "a b", {1: {1: 1}, 2: {1: 1}}),
        ("a b", "a, b", {2: {3: 1}}),  # new: no one's
        ("a b.", "a b!", {3: {3: 1}, 4: {4: 1}}),  # one for the other
        ("a , ; . b", "a ; b", {2: {2: 1}, 3: {2: 1}, 4: {3: 1}, 5: {3: 1}}),
        ("a , ; ! b", "a . ? b", {2: {2: 1}, 3: {3: 1}, 4: {3: 1}, 5: {4: 1}}),
        ("a , b", "a b ,", {2: {2: 1}, 3: {2: 1}}),  # between other words: another
    ],
)
def test_punctuation(source, target, expected):
    found = rows(table(source), table(target))
    assert {w: row for w, row in found.items() if w in expected} == expected
    sums_to_one(table(source), found)


def test_replace_refuses():
    source, target = table("a cat"), table("a fluffy cat")
    alignment = pair_words(source, target)
    with pytest.raises(ArgumentError, match=r"has 2 and the target 3 \('fluffy' added\); use re"):
        replacement(source, target, alignment)
    with pytest.raises(ArgumentError, match=r"has 3 and the target 3 \('c' added, 'a' dropped\)"):
        one, two = table("a red house"), table("red house c")
        replacement(one, two, pair_words(one, two))
    with pytest.raises(ArgumentError, match="alignment is of another source than 'a fluffy cat'"):
        replacement(target, source, alignment)
    with pytest.raises(ArgumentError, match="alignment is of another target than 'a'"):
        replacement(source, table("a"), alignment)
    none = TokenTable("", (), (), 0)
    with pytest.raises(ArgumentError, match="The target has no tokens at all"):
        replacement(table(""), none, pair_words(table(""), none))
    assert replacement(none, none, pair_words(none, none)) == []
    assert replacement(none, table(""), pair_words(none, table(""))) == []


def test_replace_past_the_limit():
    # 8 positions: <start>, 6 tokens, <end>
    source, target = table("a b c house d e f g", 8), table("a b c dog d e f g", 8)
    assert [len(w.tokens) for w in source.words] == [1, 1, 1, 1, 1, 1, 0, 0]
    assert [len(w.tokens) for w in target.words] == [1, 1, 1, 3, 0, 0, 0, 0]
    found = rows(source, target)
    sums_to_one(source, found)
    assert found[4] == {4: 1 / 3, 5: 1 / 3, 6: 1 / 3}
    assert found[5] == found[6] == found[7] == {7: 1}  # words pushed off: to what follows
    back = rows(target, source)
    sums_to_one(target, back)
    assert back[4] == back[5] == back[6] == {4: 1} and back[7] == {7: 1}
    # a word that the limit cut: token by token as far as it goes
    cut = table("a b dog cow", 8)
    whole = table("a b house cow", 8)
    assert [w.tokens for w in cut.words] == [(1,), (2,), (3, 4, 5), (6,)]
    assert [w.tokens for w in whole.words] == [(1,), (2,), (3,), (4, 5, 6)]
    assert rows(cut, whole)[6] == {4: 1}
    found = rows(whole, cut)
    assert found[4] == found[5] == found[6] == {6: 1}


def test_a_swap_that_is_not_read():
    message = (
        r"^'cat' became 'dog' past the end of what the model reads: it takes 4 tokens, and 'cat' "
        r"is not among them; shorten the prompt or move the word towards its start\.$"
    )
    source, target = table("a b cat", 4), table("a b dog", 4)
    alignment = pair_words(source, target)
    assert [word.text for word in alignment.unread] == ["cat", "dog"]
    with pytest.raises(TruncatedWordError, match=message):
        replacement(source, target, alignment)
    assert [word.text for word in pair_words(source, table("a b cat d", 4)).unread] == ["d"]
    assert not pair_words(source, source).unread
    # read in the one prompt only
    source, target = table("at b c", 5), table("house tree c", 5)
    with pytest.raises(TruncatedWordError, match=r"'c' became 'x' .* and 'x' is not among them"):
        target = table("dog b x", 5)
        replacement(source, target, pair_words(source, target))


def test_tables_without_specials():
    bare = {"start_id": None, "end_id": None}
    source = read("a b", [5, 6], text_ids=[5, 6], text_offsets=[(0, 1), (2, 3)], **bare)
    target = read("a c", [5, 7], text_ids=[5, 7], text_offsets=[(0, 1), (2, 3)], **bare)
    assert rows(source, target) == {0: {0: 1}, 1: {1: 1}}
    assert refinement(source, target) == [0, None]
    # specials that only one of them has
    sums_to_one(table("a b"), rows(table("a b"), target, kind="replace"))
    sums_to_one(target, rows(target, table("a b"), kind="replace"))
    dot = read("a.", [5, 9], text_ids=[5, 9], text_offsets=[(0, 1), (1, 2)], **bare)
    alone = read("a", [5], text_ids=[5], text_offsets=[(0, 1)], **bare)
    assert rows(dot, alone) == {0: {0: 1}, 1: {0: 1}}
    assert rows(by_position(3), by_position(3)) == {w: {w: 1} for w in range(3)}


SCRAPS = [
    *("a", "cat", "dog", "Cat", "house", "at", ",", ", ", ".", "!", " ", " ", " ", "(", "-"),
    *("😂", "😂😂", "é", "e\u0301", "ﬁ", "猫", "<", "\u200d", "'", "1.5", "zygomorphic"),
]
PROMPTS = st.lists(st.sampled_from(SCRAPS), max_size=12).map("".join)
LIMITS = st.sampled_from([2, 3, 6, 12, 77])
NAMES = st.sampled_from(["letters", "embedded"])


@settings(max_examples=200, deadline=None)
@given(PROMPTS, PROMPTS, LIMITS, NAMES)
def test_no_attention_is_lost(a, b, limit, name):
    source, target = table(a, limit, name), table(b, limit, name)
    short = min(len(source.words), len(target.words))
    if len(source.words) != len(target.words):  # make them one to one
        words = source.words if len(source.words) > short else target.words
        cut = (source if words is source.words else target).prompt[: words[short].start]
        source, target = (
            (table(cut, limit, name), target)
            if words is source.words
            else (source, table(cut, limit, name))
        )
    if len(source.words) != len(target.words):
        return  # what was cut off had made one word of two
    alignment = pair_words(source, target, "replace")
    if alignment.unread:
        with pytest.raises(TruncatedWordError):
            replacement(source, target, alignment)
        return
    found = rows(source, target, kind="replace")
    sums_to_one(source, found)
    for x, y in alignment.swapped:
        for w in x.tokens:
            assert found[w] == dict.fromkeys(y.tokens, 1 / len(y.tokens))
    for x, y in alignment.same:
        if len(x.tokens) == len(y.tokens) and all(
            source.tokens[w].id == target.tokens[n].id
            for w, n in zip(x.tokens, y.tokens, strict=True)
        ):
            assert all(found[w] == {n: 1} for w, n in zip(x.tokens, y.tokens, strict=True))
    for kind in ("start", "end"):
        for w, n in zip(source.positions(kind), target.positions(kind), strict=True):
            assert found[w] == {n: 1}
    # Order is kept: no token goes before where an earlier one goes, but for punctuation.
    words = [w for word in source.words for w in word.tokens]
    edges = [min(found[w]) for w in words]
    assert edges == sorted(edges)


@settings(max_examples=100, deadline=None)
@given(PROMPTS, LIMITS, NAMES)
def test_a_prompt_to_itself_is_the_identity(prompt, limit, name):
    source = table(prompt, limit, name)
    assert rows(source, source) == {w: {w: 1} for w in range(limit)}
    assert refinement(source, source) == list(range(limit))


# --- Refine -----------------------------------------------------------------------------------


def test_new_tokens_keep_their_own():
    source, target = table("a cow, at", 12), table("a red cow at", 12)
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
        ("a cow", "a crow cow", "acow"),
        ("at cow", "at crow cow", "atcow"),
        ("cow", "cot owl cow how", "cow"),
    ],
)
def test_words_stay_whole(source, target, expected):
    source, target = table(source), table(target)
    taken = refinement(source, target)
    kept = [n for n in target.positions() if taken[n] is not None]
    assert "".join(target.tokens[n].text for n in kept) == expected
    for word in target.words:
        assert len({taken[n] is None for n in word.tokens}) == 1


def test_repeats_go_with_the_words():
    source, target = table("a house and a dog"), table("a house and a cat and a dog")
    taken = refinement(source, target)
    words = {
        y.number: x.number
        for y in target.words
        for x in source.words
        if x.tokens == tuple(taken[n] for n in y.tokens)
    }
    assert words == {0: 0, 1: 1, 5: 2, 6: 3, 7: 4}
    assert refinement(table("at", 8), table("at at at", 8)) == [0, 1, None, None, 2, 3, 4, 5]


def best_score(a, b) -> int:
    """Of all alignments (gap 0, match 1, mismatch -1), by trying each of them."""
    if not a or not b:
        return 0
    diagonal = best_score(a[1:], b[1:]) + (1 if a[0] == b[0] else -1)
    return max(diagonal, best_score(a[1:], b), best_score(a, b[1:]))


LETTERS = st.text("abc ", max_size=7)


@settings(max_examples=200, deadline=None)
@given(LETTERS, LETTERS)
def test_the_score_is_the_best_there_is(a, b):
    source, target = table(a), table(b)
    taken = refinement(source, target)
    pairs = [(taken[n], n) for n in target.positions() if taken[n] is not None]
    for w, n in pairs:
        assert source.tokens[w].kind == "text" and source.tokens[w].id == target.tokens[n].id
    ids = [[t.id for t in each.tokens if t.kind == "text"] for each in (source, target)]
    assert len(pairs) == best_score(*map(tuple, ids))


@settings(max_examples=200, deadline=None)
@given(PROMPTS, PROMPTS, LIMITS, NAMES)
def test_columns_ascend(a, b, limit, name):
    source, target = table(a, limit, name), table(b, limit, name)
    taken = refinement(source, target)
    assert len(taken) == limit
    columns = [w for w in taken if w is not None]
    assert columns == sorted(set(columns))
    for n, w in enumerate(taken):
        if w is None:
            assert target.tokens[n].kind in ("text", "pad")
        else:
            assert source.tokens[w].kind == target.tokens[n].kind
    assert taken == refinement(source, target)


# --- hostile ----------------------------------------------------------------------------------


def test_long_prompts():
    words = [f"w{number}" for number in range(14_000)]
    source = table(" ".join(words))
    began = time.process_time()
    edited = [*words[:50], "a", *words[51:60], "b", *words[60:]]
    found = pair_words(source, table(" ".join(edited)))
    assert time.process_time() - began < 20
    assert [(a.text, b.text) for a, b in found.swapped] == [("w50", "a")]
    assert [w.text for w in found.added] == ["b"] and not found.dropped
    random.Random(0).shuffle(words)
    with pytest.raises(ArgumentError, match=r"^The prompts are too long to be aligned: \d+ words"):
        pair_words(source, table(" ".join(words)))


def test_many_tokens():
    source, target = table("a " * 3000, 3000), table("a " * 2000, 3000)
    began = time.process_time()
    taken = refinement(source, target)
    assert taken[:2002] == [*range(2001), 2999]
    other = table("b " * 2000, 3000)
    with pytest.raises(ArgumentError, match="2998 tokens of the one differ from 2000 of the other"):
        refinement(source, other)
    assert time.process_time() - began < 10


# --- what a user writes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat->dog", (("cat", "dog"),)),
        ("  red cat → blue dog ", (("red cat", "blue dog"),)),
        ("cat -> dog, red→blue", (("cat", "dog"), ("red", "blue"))),
        ("10,000->5,000,a->b", (("10,000", "5,000"), ("a", "b"))),
        ("snow-covered->muddy", (("snow-covered", "muddy"),)),
        ("<my-cat>-><my-dog>", (("<my-cat>", "<my-dog>"),)),
        ("😂→猫", (("😂", "猫"),)),
    ],
)
def test_swaps(text, expected):
    assert swap_of(text) == expected


@pytest.mark.parametrize(
    "text", ["", "cat", "cat->", "->dog", "->", "a->b->c", "a->b,", ",a->b", "a->b,,c->d", "!->?"]
)
def test_no_swaps(text):
    with pytest.raises(ArgumentError, match=r"^'.*' is no swap: expected a word, an arrow and a w"):
        swap_of(text)


def test_what_is_no_text():
    with pytest.raises(ArgumentError, match=r"^A swap is a text such as 'cat->dog', not 3\.$"):
        swap_of(3)  # pyright: ignore[reportArgumentType]
