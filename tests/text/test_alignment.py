from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import table

from heedmap.errors import ArgumentError
from heedmap.text.alignment import pair_words, swap_of


def pairs(source: str, target: str) -> str:
    """The pairs as one line: `red>blue`, `=house`, `+fluffy`, `-old`."""
    found = pair_words(table(source), table(target))
    signs = []
    for pair in found.pairs:
        a, b = pair
        if a and b:
            signs.append(f"={b.text}" if pair not in found.changes else f"{a.text}>{b.text}")
        else:
            signs.append(f"+{b.text}" if b else f"-{a.text}" if a else "?")
    return f"{found.kind}: {' '.join(signs)}"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a cat", "a fluffy cat", "refine: =a +fluffy =cat"),
        # the right one of two
        (
            "a red house and a blue house",
            "a red house and a green house",
            "replace: =a =red =house =and =a blue>green =house",
        ),
        ("a cat and a dog", "a dog and a cat", "replace: =a cat>dog =and =a dog>cat"),
        # case, Unicode form and punctuation are no change
        ('"A Cat", on the mat!', "a cat on the (MAT)", "refine: =a =cat =on =the =MAT"),
        ("an e\u0301te\u0301 don’t ﬁne", "an Été don't fine", "refine: =an =Été =don't =fine"),
        # surplus goes to the end where it can, else before the noun's phrase
        ("a cat", "a cat and a cat", "refine: =a =cat +and +a +cat"),
        # equal numbers, and yet not one to one
        ("a red house", "red house tonight", "refine: -a =red =house +tonight"),
        ("a house red", "a red house", "refine: =a -house =red +house"),
        # swapped and added between the same neighbours: phrase by phrase, the last for the last
        ("a cat sits", "a big fluffy dog sits", "refine: =a +big +fluffy cat>dog =sits"),
        ("a big red house here", "a castle here", "refine: =a -big -red house>castle =here"),
        (
            "a cat on grass",
            "a dog under tall trees",
            "refine: =a cat>dog on>under +tall grass>trees",
        ),
        ("an orange cat", "a cat", "refine: an>a -orange =cat"),
    ],
)
def test_words_of_two_prompts_are_paired(source, target, expected):
    assert pairs(source, target) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            "portrait of a woman, 4k",
            "portrait of an old man with a beard, oil painting",
            "a>an woman>man 4k>painting",
        ),
        ("a cat", "a basket of cats", "cat>cats"),
        (
            "a house, watercolor",
            "a castle on a hill, oil painting",
            "house>castle watercolor>painting",
        ),
        (
            "a tall building at night",
            "a small wooden hut in the forest",
            "tall>wooden building>hut at>in night>forest",
        ),
    ],
)
def test_changed_words_are_paired_as_a_reader_expects(source, target, expected):
    """In prompts of different lengths; all other words stay, or are added or dropped."""
    found = pair_words(table(source), table(target))
    assert " ".join(f"{a.text}>{b.text}" for a, b in found.changes if a and b) == expected


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
def test_every_word_is_in_one_pair_in_order(a, b):
    source = table(" ".join(a))
    target = table(", ".join(b))
    found = pair_words(source, target)
    assert [x for x, _ in found.pairs if x] == list(source.words)
    assert [y for _, y in found.pairs if y] == list(target.words)
    one_to_one = all(x and y for x, y in found.pairs)
    signs = not found.changes and len(b) > 1  # commas alone are new
    assert found.kind == ("replace" if one_to_one and not signs else "refine")
    for x, y in {*found.pairs} - {*found.changes}:
        assert x.text.casefold() == y.text.casefold()
    least = distance([w.casefold() for w in a], [w.casefold() for w in b])
    changes = len(found.changes)
    # A phrase stands for a phrase, which may cost a change more than the least there are.
    assert least <= changes
    if one_to_one:
        assert changes == least
    assert not pair_words(source, source).changes


def test_the_fewest_changes_come_before_the_most_words_kept():
    """Keeping "x" would drop four words and add four; five became others."""
    found = pair_words(table("r b g t x"), table("x d f h k"))
    assert [(a.text, b.text) for a, b in found.changes] == list(zip("rbgtx", "xdfhk", strict=True))
    # Of as few changes, the ones that keep a word.
    assert pairs("r x", "x d") == "refine: -r =x +d"


# --- what a user writes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat->dog", (("cat", "dog"),)),
        ("  red cat → blue dog ", (("red cat", "blue dog"),)),
        ("<my-cat>-><my-dog>", (("<my-cat>", "<my-dog>"),)),
    ],
)
def test_a_swap_is_parsed_from_its_text(text, expected):
    assert swap_of(text) == expected


@pytest.mark.parametrize("text", ["cat", "cat->", "a->b->c", "a->b,", "!->?"])
def test_texts_that_are_no_swap_are_refused(text):
    with pytest.raises(ArgumentError, match="only"):
        swap_of(text)
