"""Words of a text: their places, their meaning in a phrase, and the words a model was not taught.

Nothing here needs a tokenizer.
"""

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import regex

from heedmap.errors import join_words, quoted

_SPACE = r"\s\u200b"
_JOINER = r"\u00ad\u200c\u200d\u2060"  # invisible, within a word or an emoji
# Scripts without spaces: Chinese, Japanese; Thai, Lao, Khmer, Burmese and their like.
_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\u3006\u30fc\uff70\uff9e\uff9f"
    r"\p{Line_Break=Complex_Context}"
)
_RUN = rf"[{_UNSPACED}][{_UNSPACED}\p{{M}}{_JOINER}]*+"
_LETTER = rf"[\p{{L}}\p{{N}}--[{_UNSPACED}]]"
_SYMBOL = (
    r"\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u25fb-\u25fe\u2600-\u275a\u2761-\u2767\u2794-\u27bf"
    r"\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001faff"
)
# A flag; or a symbol with its variation, skin tone, keycap and tags (the flag of Wales).
_EMOJI = (
    rf"(?:(?:[{_SYMBOL}]\ufe0f?[\U0001f3fb-\U0001f3ff]?|[\p{{S}}\p{{P}}]\ufe0f)"
    r"\u20e3?[\U000e0020-\U000e007f]*+)"
)
_NAMED = rf"\p{{L}}\p{{N}}{_SYMBOL}"
# Repetitions are possessive, so that a prompt of 100,000 odd characters takes linear time.
_WORD = regex.compile(
    rf"<(?:\*++|[^{_SPACE}<>{_NAMED}]*+[{_NAMED}][^{_SPACE}<>]*+)>(?:_\d++)?"  # <my-cat>_1, <*>
    r"|[\p{Nd}\p{S}\p{P}]\ufe0f?\u20e3"  # a keycap
    r"|[\U0001f1e6-\U0001f1ff]{1,2}+"  # a flag
    rf"|{_EMOJI}(?:[{_JOINER}]{_EMOJI})*+"
    rf"|(?!\p{{M}}){_RUN}"
    rf"|{_LETTER}(?:[{_LETTER}\p{{M}}{_JOINER}]|_++(?={_LETTER})"
    rf"|['\u2019\uff07\-\u2010\u2011\u00b7](?={_LETTER})|(?<=\d)[.,](?=\d))*+",
    regex.VERSION1,
)


def split_words(prompt: str) -> list[tuple[int, int]]:
    """Return the `(start, end)` character spans of the words of a prompt, in order.

    A word is letters, digits and their marks, with inner apostrophes, hyphens and underscores
    ("don't", "snow-covered", "long_hair") and the inner points and commas of a number ("1.5").
    A placeholder of textual inversion, `<my-cat>` or `<*>`, is one word with its brackets. Every
    emoji is a word. A run of Chinese, Japanese or Thai is one word, since these have no spaces:
    `split_units` cuts it. Punctuation alone is no word.
    """
    return [match.span() for match in _WORD.finditer(prompt)]


_UNSPACED_WORD = regex.compile(_RUN, regex.VERSION1)
# A character as its reader sees it, with all marks and what is invisible after it.
_CHARACTER = regex.compile(rf"\X[\p{{M}}{_JOINER}]*+", regex.VERSION1)


def is_unspaced(text: str) -> bool:
    """Tell whether a word is of a script without spaces, such as Chinese, Japanese or Thai."""
    return _UNSPACED_WORD.fullmatch(text) is not None


def split_units(prompt: str) -> list[tuple[int, int]]:
    """Return the spans of the words of a prompt, and of each character of those without spaces."""
    units: list[tuple[int, int]] = []
    for start, end in split_words(prompt):
        if is_unspaced(prompt[start:end]):
            units += [match.span() for match in _CHARACTER.finditer(prompt, start, end)]
        else:
            units.append((start, end))
    return units


_SAME = str.maketrans(
    dict.fromkeys("\u2018\u2019\u02bc", "'")
    | dict.fromkeys("\u2010\u2011", "-")
    | dict.fromkeys("\ufe0f\u00ad\u2060")
)


def fold(text: str) -> str:
    """Return a form that all spellings of a word share (NFKC, case, apostrophes, hyphens)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_SAME)


@lru_cache(maxsize=4096)
def word_keys(text: str) -> tuple[str, ...]:
    """Return the folded words of a text, which a search compares."""
    return tuple(fold(text[start:end]) for start, end in split_words(text))


def word_set(text: str) -> frozenset[str]:
    """Return the different folded words of a text."""
    return frozenset(word_keys(text))


CONNECTIVES = word_set(
    "about above across after against along amid among and around as at atop before behind below "
    "beneath beside besides between beyond but by down during for from in inside into like near "
    "next of off on onto or out outside over past through to toward towards under underneath up "
    "upon via while with within without"
)
"""The words that begin a phrase: in "a cat" -> "a big dog on the grass" the cat became the dog, the
last word before "on"."""
_FUNCTION_WORDS = CONNECTIVES | word_set(
    "a all also an another any are away be because been being both can could did do does doing "
    "each either else every had has have having he her hers him his how i if is it its itself many "
    "may me might mine more most much must my neither no nor not one's other our ours own per "
    "shall she should since so some such than that the their theirs them then there these they "
    "this those till until us very was we were what when where which who whom whose why will would "
    "you your yours"
)


def is_content(text: str) -> bool:
    """Tell whether a word names a thing or a property: all but the function words of English."""
    return fold(text) not in _FUNCTION_WORDS


# Words that end a noun phrase besides function words. A phrase with a word too few is better than
# one that names another thing.
_BOUNDS = word_set(
    "one two three four five six seven eight nine ten several few left right top bottom front "
    "middle wears holds"
)


def describes(text: str) -> bool:
    """Tell whether a word may stand beside another in a noun phrase; "-ing" marks a verb.

    A part of a text without spaces may not: where its words end is unknown.
    """
    key = fold(text)
    if is_unspaced(text) or key in _BOUNDS:
        return False
    return is_content(text) and not key.endswith("ing")


_IRREGULAR = dict(
    zip(
        word_keys("child foot goose man mouse ox person tooth woman"),
        word_keys("children feet geese men mice oxen people teeth women"),
        strict=True,
    )
)


def plurals(noun: str) -> tuple[str, ...]:
    """Return the possible plurals of an English noun ("snowmen" follows "men")."""
    endings = {"y": "ies", "f": "ves", "fe": "ves", "us": "i", **_IRREGULAR}
    odd = [
        noun.removesuffix(one) + many
        for one, many in endings.items()
        if noun.endswith(one)
    ]
    return (f"{noun}s", f"{noun}es", *odd)


# --- words that a model was not taught ---------------------------------------------------------

_PARTS = regex.compile(r"[-_'\u2010\u2011\u2019]")  # where a tokenizer splits a word


def untaught(
    texts: Iterable[str], vocabulary: Collection[str] | None
) -> tuple[str, ...] | None:
    """Return the words of some texts that a vocabulary lacks, each once; None if it is unknown.

    Words are compared as CLIP reads them: without regard to case and the composition of accents. A
    word of several parts ("snow-covered") is known if each part is. Placeholders of textual
    inversion (`<my-cat>`) count as known.
    """
    if vocabulary is None:
        return None
    known = {_as_clip_reads(word) for word in vocabulary} | {""}
    unknown: dict[str, str] = {}
    for text in texts:
        for start, end in split_words(text):
            word, key = text[start:end], _as_clip_reads(text[start:end])
            if (
                key not in known
                and not known.issuperset(_PARTS.split(key))
                and key[0] != "<"
            ):
                unknown.setdefault(key, word)
    return tuple(unknown.values())


def _as_clip_reads(word: str) -> str:
    return unicodedata.normalize("NFC", word).lower()


def untaught_warning(words: Sequence[str]) -> str:
    """Return the warning for words that a model was not taught; "" if there are none."""
    if not words:
        return ""
    names = join_words([*map(quoted, words)])
    return (
        f"the model was not trained on {names}: the image may not show that, and its maps may be "
        "meaningless"
    )
