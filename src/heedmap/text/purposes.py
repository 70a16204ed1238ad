"""What an edit is for, read off how its words correspond: a swap, a colour, an addition.

Pure text. Colours, sizes and places are those of English; whatever else changes is a swap, an
addition or a removal.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from heedmap.options import EditPurpose
from heedmap.text.alignment import WordAlignment, connects
from heedmap.text.prompts import fold, is_content, plurals, word_keys
from heedmap.text.words import Word

_COLOURS = frozenset(
    word_keys(
        "red orange yellow green blue purple pink white black grey gray brown violet cyan magenta "
        "turquoise teal gold golden silver beige cream crimson scarlet maroon navy indigo lilac "
        "olive colorful colourful reddish orangish yellowish greenish bluish purplish pinkish "
        "whitish blackish greyish grayish brownish coloured colored"
    )
)
_SHADES = frozenset(word_keys("light lighter dark darker bright brighter pale paler deep vivid"))
"""What stands before a colour or a thing for another colour of it: "a light blue house"."""
_SIZES = frozenset(
    word_keys(
        "small big little large tiny huge giant gigantic enormous massive miniature tall short "
        "long wide narrow smaller bigger larger smallest biggest largest medium taller tallest "
        "shorter shortest longer longest wider widest narrower narrowest tinier tiniest"
    )
)
_COUNTED = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_NUMBERS = {"a": 1, "an": 1} | {word: n for n, word in enumerate(word_keys(_COUNTED), 1)}
_MOST_COUNTED = 99  # in digits: what is larger is a year, or the size of a picture
_SIDES = frozenset(
    word_keys(
        "left right above below over under underneath beneath beside next near behind before "
        "between front atop top bottom around outside out off onto among amid beyond against across"
    )
)
_PLACES = frozenset(word_keys("in at on by during inside within"))
"""What a setting begins with: "in a meadow", "at night", "on the beach", "by the sea"."""
_NO_PLACES = _SIDES | {"of", "to"}
_TO_SIDES, _ENDS = frozenset(word_keys("in on at")), frozenset(word_keys("front top bottom"))
"""What says together where a thing lies: "in front of", "on top of"."""
_LOOSEST: tuple[EditPurpose, ...] = (
    "relation", "addition", "removal", "setting", "swap", "size", "colour",
)  # fmt: skip
"""Of several at once the first decides: what it is for needs the most freedom."""


def purpose_of(alignment: WordAlignment) -> EditPurpose | None:
    """What an edit is for; None where no word changed but articles and the like.

    "a red cat" -> "a blue dog" is a swap and not a colour, "two cats" -> "three cats" and "a cat"
    -> "cats" are additions, and what stands after "in", "at", "on" or "by" is the setting, but for
    its colours and sizes: of several the one that needs most freedom is told.
    """
    source = [word for word, _ in alignment.pairs if word is not None]
    target = [word for _, word in alignment.pairs if word is not None]
    read = _read(source) | _read(target)
    found: set[EditPurpose] = set()
    sides = False  # "left" was added or dropped, as in "left of" -> "to the right of"
    placed = False  # a side took the place of "in" or the like, or the other way round
    same = {id(word) for pair in alignment.same for word in pair}
    for before, after in alignment.pairs:
        if before is not None and id(before) in same:
            continue
        words = [read[id(word)] for word in (before, after) if word is not None]
        led = [
            _led(word, prompt, read)
            for word, prompt in ((before, source), (after, target))
            if word is not None
        ]
        one = _change(words, led, "addition" if before is None else "removal")
        has_side = any(word in _SIDES for word in words)
        if one == "setting" and has_side:
            placed = True
        else:
            found |= {one} if one is not None else set()
        sides |= has_side
    if placed and found:  # "in the snow" -> "under the stars"; else it lies elsewhere on the same
        found.add("setting")
    if sides and not found & {"addition", "removal", "setting"}:
        return "relation"
    return next((purpose for purpose in _LOOSEST if purpose in found), None)


def _read(words: Sequence[Word]) -> dict[int, str]:
    """Every word of a prompt, folded, by its id.

    The first of "in front of" is read as "front", a shade before a thing as "coloured".
    """
    there = sorted(words, key=lambda word: word.start)
    said = [fold(word.text) for word in there]
    after = [*said[1:], ""]
    return {
        id(word): _as_one(one, then) for word, one, then in zip(there, said, after, strict=True)
    }


def _as_one(word: str, then: str) -> str:
    """A word, by the one that follows it."""
    if word in _TO_SIDES and then in _ENDS:
        return then
    return "coloured" if word in _SHADES and then and is_content(then) else word


def _number(word: str) -> int | None:
    """How many a word says there are."""
    digits = word.isdecimal() and len(word) <= len(str(_MOST_COUNTED))
    return int(word) if digits else _NUMBERS.get(word)


def _change(
    words: Sequence[str], led: Sequence[str], alone: Literal["addition", "removal"]
) -> EditPurpose | None:
    """What one changed word is for; None for articles and the like, which say nothing alone.

    Args:
        words: the word of the source and that of the target, or the one of both that there is.
        led: of each the connective before it; itself, if it is one.
        alone: what it is that only one of both prompts has it.
    """
    counts = [number for word in words if (number := _number(word)) is not None]
    if len(counts) == 2:
        more = counts[1] - counts[0]
        return None if more == 0 else "addition" if more > 0 else "removal"
    if all(word in _COLOURS for word in words):
        return "colour"
    if all(word in _SIZES for word in words):
        return "size"
    if len(words) == 2:
        if any(word in _SIDES for word in words):
            return "setting" if any(word in _PLACES for word in words) else "relation"
        if words[1] in plurals(words[0]):
            return "addition"
        if words[0] in plurals(words[1]):
            return "removal"
    if not any(is_content(word) or connects(word) for word in words):
        return None
    if all(place in _PLACES for place in led):
        return "setting"
    if not any(is_content(word) and word not in _NO_PLACES for word in words):
        return None
    return alone if len(words) == 1 else "swap"


def _led(word: Word, words: Sequence[Word], read: Mapping[int, str]) -> str:
    """The last connective up to a word of a prompt; empty if there is none."""
    before = [one for one in words if one.start <= word.start]
    said = (read[id(one)] for one in sorted(before, key=lambda one: -one.start))
    return next((one for one in said if connects(one)), "")
