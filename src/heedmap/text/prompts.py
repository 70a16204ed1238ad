"""The words of a text: where they are, and which of them name things. Knows no tokenizer."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from heedmap.errors import quoted

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
    """Return the `(start, end)` character spans of the words of a prompt, in order.

    A word is letters, digits and their marks, with inner apostrophes, hyphens and underscores
    ("don't", "snow-covered", "long_hair") and the inner points and commas of a number ("1.5").
    A placeholder of textual inversion, `<my-cat>`, is one word with its brackets. Every emoji is a
    word. A run of Chinese or Japanese is one word, since these have no spaces. Punctuation alone is
    no word.
    """
    return [match.span() for match in _WORD.finditer("".join(map(_class, prompt)))]


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


def places(keys: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices at which some keys stand side by side among others, without overlaps."""
    keys, wanted = tuple(keys), tuple(wanted)
    indices: list[int] = []
    for at in range(len(keys) - len(wanted) + 1):
        is_free = not indices or at >= indices[-1] + len(wanted)
        if is_free and keys[at : at + len(wanted)] == wanted:
            indices.append(at)
    return indices


_FUNCTION_WORDS = frozenset(
    word_keys(
        "a about above across after against all along also amid among an and another any are "
        "around as at atop away be because been before behind being below beneath beside "
        "besides between beyond both but by can could did do does doing down during each either "
        "else every for from had has have having he her hers him his how i if in inside into is "
        "it its itself like many may me might mine more most much must my near neither next no "
        "nor not of off on one's onto or other our ours out outside over own past per shall she "
        "should since so some such than that the their theirs them then there these they this "
        "those through till to toward towards under underneath until up upon us very via was we "
        "were what when where which while who whom whose why will with within without would you "
        "your yours"
    )
)


def is_content(text: str) -> bool:
    """Tell whether a word names a thing or a property: all but the function words of English."""
    return fold(text) not in _FUNCTION_WORDS


# Words that end a noun phrase besides function words. A phrase with a word too few is better than
# one that names another thing.
_BOUNDS = frozenset(
    word_keys(
        "a an the this that these those some any no my your his her its our their each every "
        "both all one two three four five six seven eight nine ten many several few in on at of "
        "by to for with without from into onto under over above below behind beside between "
        "near inside outside through across along around against toward towards next left right "
        "top bottom front middle and or but not as like than while is are was were has have "
        "wears holds"
    )
)


def describes(text: str) -> bool:
    """Tell whether a word may stand beside another in a noun phrase; "-ing" marks a verb."""
    key = fold(text)
    return is_content(text) and key not in _BOUNDS and not key.endswith("ing")


_IRREGULAR = dict(
    zip(
        ["child", "foot", "goose", "man", "mouse", "ox", "person", "tooth", "woman"],
        ["children", "feet", "geese", "men", "mice", "oxen", "people", "teeth", "women"],
        strict=True,
    )
)


def plurals(noun: str) -> tuple[str, ...]:
    """Return the possible plurals of an English noun ("snowmen" follows "men")."""
    endings = {"y": "ies", "f": "ves", "fe": "ves", "us": "i", **_IRREGULAR}
    odd = [noun.removesuffix(one) + many for one, many in endings.items() if noun.endswith(one)]
    return (f"{noun}s", f"{noun}es", *odd)


_LISTED = 4


def first_of(texts: Sequence[str]) -> str:
    """Write a list as "a, b and c"; of more than four texts the first three and a count."""
    if len(texts) > _LISTED:
        return f"{', '.join(texts[: _LISTED - 1])} and {len(texts) - _LISTED + 1} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


# --- words that a model was not taught ---------------------------------------------------------

_PARTS = re.compile(r"[-_'\u2010\u2011\u2019]")  # where a tokenizer splits a word


def untaught(texts: Iterable[str], vocabulary: Collection[str] | None) -> tuple[str, ...] | None:
    """Return the words of some texts that a vocabulary lacks: each once, in order.

    Words are compared as CLIP reads them: without regard to case and the composition of accents. A
    word of several parts ("snow-covered") is known if each part is. Placeholders of textual
    inversion (`<my-cat>`) count as known.

    Args:
        texts: as the model reads them, without weights.
        vocabulary: the words that the model was taught; None if they are unknown.

    Returns:
        None if the vocabulary is unknown.
    """
    if vocabulary is None:
        return None
    known = {_as_clip_reads(word) for word in vocabulary}
    unknown: dict[str, str] = {}
    for text in texts:
        for start, end in split_words(text):
            word = text[start:end]
            key = _as_clip_reads(word)
            is_known = key in known or known.issuperset(filter(None, _PARTS.split(key)))
            if not is_known and not word.startswith("<"):
                unknown.setdefault(key, word)
    return tuple(unknown.values())


def _as_clip_reads(word: str) -> str:
    return unicodedata.normalize("NFC", word).lower()


def said_of(words: Collection[str]) -> str:
    """Return the warning for words that a model was not taught; empty for none."""
    if not words:
        return ""
    are = "is not a word" if len(words) == 1 else "are not words"
    names = first_of([quoted(word) for word in words])
    return f"{names} {are} that this model was taught: it does what it can"
