"""The text of a prompt: which characters a person would call a word.

Pure text, standard library only; it knows no tokenizer.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

# `re` knows neither marks nor emoji, so every character is first mapped to a letter for its class,
# and `_WORD` runs over that string of classes, whose indices are those of the prompt.
_CLASSES = re.compile(
    "|".join(
        (
            r"(?P<s>[\s\u200b])",  # space
            r"(?P<j>['\u2019\uff07\-\u2010\u2011\u00b7])",  # joins two parts of one word
            r"(?P<n>[.,])",  # may stand inside a number
            r"(?P<u>_)|(?P<o><)|(?P<c>>)",
            r"(?P<z>[\u00ad\u200c\u200d\u2060])",  # invisible joiners
            r"(?P<v>\ufe0f)",  # makes an emoji of the symbol before it
            r"(?P<k>\u20e3)",  # makes a keycap of it
            r"(?P<t>[\U0001f3fb-\U0001f3ff])",  # skin tones
            r"(?P<f>[\U0001f1e6-\U0001f1ff])",  # two make a flag
            r"(?P<g>[\U000e0020-\U000e007f])",  # tags: the flags of Scotland, Wales, …
            r"(?P<e>[\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u25fb-\u25fe\u2600-\u275a"
            r"\u2761-\u2767\u2794-\u27bf\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001faff])",  # emoji
            r"(?P<h>[\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
            r"\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
            r"\U0001aff0-\U0001b16f\U00020000-\U0003ffff])",  # Han, Hiragana, Katakana
        )
    )
)
_CATEGORIES = {"L": "w", "N": "w", "M": "m"}
_EMOJI = r"(?:[et]v?t?|xv)k?g*+"
_WORD = re.compile(
    "|".join(
        (
            r"o[^socdwhe]*+[dwhe][^soc]*+c(?:ud++)?",  # <my-cat>, <my-cat>_1
            r"[dx]v?k",  # a keycap
            r"ff?",
            rf"{_EMOJI}(?:z{_EMOJI})*",
            r"h[hmvz]*+",
            # A prompt of 100,000 odd characters must stay linear: single classes are possessive.
            # Groups are not, since Python 3.11.2 then loses their last character; the ways
            # through them begin with different characters, so there is nothing to try twice.
            r"[dw](?:[dwmvzk]|u++(?=[dw])|j(?=[dw])|(?<=d)n(?=d))*",
        )
    )
)


@lru_cache(maxsize=8192)
def _class(char: str) -> str:
    if match := _CLASSES.match(char):
        return match.lastgroup or "x"
    category = unicodedata.category(char)
    return "d" if category == "Nd" else _CATEGORIES.get(category[0], "x")


def split_words(prompt: str) -> list[tuple[int, int]]:
    """Return the `(start, end)` character spans of what a person would call the words of `prompt`.

    A word is letters, digits and their marks, with inner apostrophes, hyphens and underscores
    ("don't", "snow-covered", "long_hair") and the inner points and commas of a number ("1.5").
    A placeholder of textual inversion, `<my-cat>`, is one word with its brackets. Every emoji is a
    word of its own. Chinese and Japanese have no spaces: a run of Han and kana is one word; so is
    a run of any other script without spaces, as Thai. Punctuation alone is not a word.

    The spans are in order and do not overlap; the time is linear in the length of the prompt.
    """
    return [match.span() for match in _WORD.finditer("".join(map(_class, prompt)))]


_SAME = str.maketrans(
    dict.fromkeys("\u2018\u2019\u02bc", "'")
    | dict.fromkeys("\u2010\u2011", "-")
    | dict.fromkeys("\ufe0f\u00ad\u2060")
)


def fold(text: str) -> str:
    """What two spellings of one word have in common (NFKC, case, apostrophes, hyphens)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_SAME)


@lru_cache(maxsize=4096)
def word_keys(text: str) -> tuple[str, ...]:
    """The words of a text, each folded: what a search compares."""
    return tuple(fold(text[start:end]) for start, end in split_words(text))


def places(keys: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where some keys stand side by side among others, without overlaps; in linear time."""
    joined = "".join(f"\0{key}" for key in keys) + "\0"  # no word has that character
    sought = "".join(f"\0{key}" for key in wanted) + "\0"
    ends = accumulate(len(key) + 1 for key in keys)
    number = {start: index for index, start in enumerate([0, *ends])}
    found: list[int] = []
    at = joined.find(sought)
    while at >= 0:
        found.append(number[at])
        at = joined.find(sought, at + len(sought) - 1)
    return found


# English words that stand for neither a thing nor a property: without them a share among the
# content words says what a reader expects.
_FUNCTION_WORD = re.compile(
    "a|about|above|across|after|against|all|along|also|amid|among|an|and|another|any|are|"
    "around|as|at|atop|away|be|because|been|before|behind|being|below|beneath|beside|besides|"
    "between|beyond|both|but|by|can|could|did|do|does|doing|down|during|each|either|else|every|"
    "for|from|had|has|have|having|he|her|hers|him|his|how|i|if|in|inside|into|is|it|its|itself|"
    "like|many|may|me|might|mine|more|most|much|must|my|near|neither|next|no|nor|not|of|off|on|"
    "one's|onto|or|other|our|ours|out|outside|over|own|past|per|shall|she|should|since|so|some|"
    "such|than|that|the|their|theirs|them|then|there|these|they|this|those|through|till|to|"
    "toward|towards|under|underneath|until|up|upon|us|very|via|was|we|were|what|when|where|"
    "which|while|who|whom|whose|why|will|with|within|without|would|you|your|yours"
)


def is_content(text: str) -> bool:
    """Whether a word stands for a thing or a property; every word that is not English does."""
    return not _FUNCTION_WORD.fullmatch(fold(text))


# What else ends a noun phrase: better one word too few than one that names another thing.
_BOUNDS = frozenset(
    word_keys(
        "a an the this that these those some any no my your his her its our their each every both "
        "all one two three four five six seven eight nine ten many several few "
        "in on at of by to for with without from into onto under over above below behind beside "
        "between near inside outside through across along around against toward towards next left "
        "right top bottom front middle and or but not as like than while is are was were has have "
        "wears holds"
    )
)


def describes(text: str) -> bool:
    """Whether a word may stand in a noun phrase beside another; no verb may, if it is known."""
    key = fold(text)
    return is_content(text) and key not in _BOUNDS and not key.endswith("ing")


_IRREGULAR = {
    "child": "children",
    "foot": "feet",
    "goose": "geese",
    "man": "men",
    "mouse": "mice",
    "ox": "oxen",
    "person": "people",
    "tooth": "teeth",
    "woman": "women",
}
"""Plurals that no rule makes; nouns that end with one of these have them, too ("snowmen")."""


def plurals(noun: str) -> tuple[str, ...]:
    """How the plural of an English noun may be written."""
    stems = {"y": "ies", "f": "ves", "fe": "ves", "us": "i", **_IRREGULAR}
    odd = [noun.removesuffix(end) + many for end, many in stems.items() if noun.endswith(end)]
    return (f"{noun}s", f"{noun}es", *odd)
