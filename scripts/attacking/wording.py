"""Texts as nobody writes them: of the forms that readers know, but broken.

A text is kept as pieces and how often each comes, so that a case of a million letters is short.
"""

import random

from attacking.findings import EVIL

Pieces = list[tuple[str, int]]

WORDS = (
    "cat", "dog", "a", "red", "house", "the", "on", "grass", "blue tree", "snow-covered", "don't",
    "long_hair", "<my-cat>", "1.5", "Ünïcödé", "e\u0301", "猫", "บ้าน", "🏠", "👩‍👩‍👧",
    "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "ﬁ", "İ", "ß", "x" * 40, "cat\u200bdog", "\u202eevil", "NaN", "inf",
    "None", "true", "heedmap", EVIL,
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "2", "0.5", "-0.5", "1.5", "1e6", "1000001", "1e39", "-1e39", "1e308",
    "1e309", "1e-400", "1e999", "nan", "-nan", "inf", "-inf", "Infinity", "1" + "0" * 400, "0x10",
    "1_000", "١٢", "²", "½", "−1", "+1", "1,5", "1.", ".5", "1e", "1e+", "--1", "1 2", "", " ",
    "7", "77", "1024", "1000000", "2147483648", "9223372036854775808", "1" * 4301,
    "0" * 5000 + "1", "1e1000000000",
)  # fmt: skip
SIGNS = (
    "(", ")", ":", "\\", "\\(", "\\)", "\\:", "[", "]", "{", "}", "->", "→", ",", ", ", ".",
    "…", "...", '"', "'", "“", "”", "=", "#", "*", "?", "[!", "]*", "-", "--", "--out", "x",
    "×", "X", ";", "|", "&", "%", "\n", "\t", "\r", "\0", "\x1b[0m", "\ud800", "\udcff", "\ufffe",
    "\ufeff", "\u2028", " ", "  ", "<|startoftext|>", "<|endoftext|>", "</w>", "<", ">", "BREAK",
    "AND", "/", "..", "~", "$(id)", "`",
)  # fmt: skip
# The forms that readers know; W is a word, N a number, T a text.
FORMS = (
    "(W:N)", "a (W:N) W", "((W:N) W:N)", "(W:N), (W:N)", "W->W", 'W->W, "W"->"W"', "W→W", "NxN",
    "N×N", "N:N", "N:", ":N", "N", "N,N", "N,N,…,N", "N:N,N:N", "N:N:N", "W=N", "W=N:N:N",
    "W=N,N", "W=N,…,N", "W=N,N,N,N", "W=N:N", "W:W", "W:W:W", "layer,step", "steps",
    "layers,heads", "up", "down", "mid", "up_blocks.*", "*W*", "[W]", "[!W]*", "#N", "W W W",
    "a W on W", "W, W", "{W}", '"W"', "T", "T T",
)  # fmt: skip
_LENGTHS = (20, 76, 77, 200, 2001, 20_000, 100_001)


def any_text(chance: random.Random) -> Pieces:
    """A text, in pieces."""
    kind = chance.random()
    if kind < 0.45:
        return [(_formed(chance), 1)]
    if kind < 0.75:
        return [(_broken(chance, _formed(chance)), 1)]
    if kind < 0.99:
        return [(_jumbled(chance), 1)]
    # Few, since each takes as long as thousands of short ones.
    parts = [(_broken(chance, _formed(chance)), 1), (_piece(chance), chance.choice(_LENGTHS))]
    return [*parts, (_formed(chance), 1)][: chance.choice((2, 3))]


def written(pieces: Pieces) -> str:
    """The text of pieces."""
    return "".join(piece * times for piece, times in pieces)


def _formed(chance: random.Random) -> str:
    choices = {"W": WORDS, "N": NUMBERS, "T": WORDS}
    form = chance.choice(FORMS)
    return "".join(chance.choice(choices[c]) if c in choices else c for c in form)


def _piece(chance: random.Random) -> str:
    return chance.choice(chance.choice((WORDS, SIGNS, SIGNS, NUMBERS[:16]))) + chance.choice(
        ("", "", " ")
    )


def _jumbled(chance: random.Random) -> str:
    return "".join(_piece(chance) for _ in range(chance.randrange(1, 14)))


def _broken(chance: random.Random, text: str) -> str:
    """A text with something put in, left out, doubled or turned around."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        a, b = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        how = chance.randrange(5)
        if how == 0:
            text = text[:a] + chance.choice(SIGNS) + text[a:]
        elif how == 1:
            text = text[:a] + text[b:]
        elif how == 2:
            text = text[:b] + text[a:]
        elif how == 3:
            sign = chr(chance.randrange(chance.choice((128, 0x110000))))
            text = text[:a] + sign + text[a:]
        else:
            text = text[:a] + text[a:b][::-1] + text[b:]
    return text
