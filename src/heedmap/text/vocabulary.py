"""Words that a model was never taught: told, where its folder says which it was."""

import re
from collections.abc import Collection, Iterable

from heedmap.errors import quoted
from heedmap.text.alignment import first_of
from heedmap.text.prompts import fold, split_words

__all__ = ["said_of", "untaught"]

_PARTS = re.compile(r"[-_']")  # at which a tokenizer takes a word apart


def untaught(texts: Iterable[str], vocabulary: Collection[str] | None) -> tuple[str, ...] | None:
    """The words of some texts that a vocabulary lacks: each once, in order, as first written.

    Words are compared folded: case and Unicode form do not matter, nor what stands around them. A
    word of several parts ("snow-covered") is known if each part is. A placeholder of textual
    inversion, `<my-cat>`, is taught by whoever loads it, and none of these.

    Args:
        texts: as the model reads them, without weights.
        vocabulary: the words that it was taught; None where nobody says, and then nor does this.
    """
    if vocabulary is None:
        return None
    known = {fold(word) for word in vocabulary}
    found: dict[str, str] = {}
    for text in texts:
        for start, end in split_words(text):
            word = text[start:end]
            key = fold(word)
            if word.startswith("<") or key in known:
                continue
            if not known.issuperset(part for part in _PARTS.split(key) if part):
                found.setdefault(key, word)
    return tuple(found.values())


def said_of(words: Collection[str]) -> str:
    """The sentence for words that a model was not taught; nothing for none."""
    said = first_of([quoted(word) for word in words])
    if len(words) == 1:
        return f"{said} is not a word that this model was taught: it draws what it can"
    return f"{said} are not words that this model was taught: it draws what it can" if words else ""
