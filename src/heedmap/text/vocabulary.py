"""Words that a model was never taught: told, where its folder says which it was."""

import re
import unicodedata
from collections.abc import Collection, Iterable

from heedmap.errors import quoted
from heedmap.text.alignment import first_of
from heedmap.text.prompts import split_words

_PARTS = re.compile(r"[-_'\u2010\u2011\u2019]")  # at which a tokenizer takes a word apart


def untaught(texts: Iterable[str], vocabulary: Collection[str] | None) -> tuple[str, ...] | None:
    """The words of some texts that a vocabulary lacks: each once, in order, as first written.

    Words are compared as CLIP reads them: case does not matter, nor how an accent is composed, nor
    what stands around them; a ligature, a wide letter or a soft hyphen makes another word of one. A
    word of several parts ("snow-covered") is known if each part is. A placeholder of textual
    inversion, `<my-cat>`, is taught by whoever loads it, and none of these.

    Args:
        texts: as the model reads them, without weights.
        vocabulary: the words that it was taught; None where nobody says, and then nor does this.
    """
    if vocabulary is None:
        return None
    known = {_read(word) for word in vocabulary}
    found: dict[str, str] = {}
    for text in texts:
        for start, end in split_words(text):
            word = text[start:end]
            key = _read(word)
            if word.startswith("<") or key in known:
                continue
            if not known.issuperset(part for part in _PARTS.split(key) if part):
                found.setdefault(key, word)
    return tuple(found.values())


def _read(word: str) -> str:
    """A word as CLIP's tokenizer has it before it looks for tokens."""
    return unicodedata.normalize("NFC", word).lower()


def said_of(words: Collection[str]) -> str:
    """The sentence for words that a model was not taught; nothing for none."""
    said = first_of([quoted(word) for word in words])
    if len(words) == 1:
        return f"{said} is not a word that this model was taught: it does what it can"
    return f"{said} are not words that this model was taught: it does what it can" if words else ""
