"""What an edit is for, read off how its words correspond: a swap, a colour, an addition.

Pure text. Colours, sizes and places are those of English; whatever else changes is a swap, an
addition or a removal.
"""

from collections.abc import Sequence

from heedmap.options import EditPurpose
from heedmap.text.alignment import WordAlignment, connects
from heedmap.text.prompts import fold, is_content, word_keys
from heedmap.text.words import Word

__all__ = ["purpose_of"]

_COLOURS = frozenset(
    word_keys(
        "red orange yellow green blue purple pink white black grey gray brown violet cyan magenta "
        "turquoise teal gold golden silver beige cream crimson scarlet maroon navy indigo lilac "
        "olive colorful colourful"
    )
)
_SIZES = frozenset(
    word_keys(
        "small big little large tiny huge giant gigantic enormous massive miniature tall short "
        "long wide narrow smaller bigger larger"
    )
)
_COUNTED = "one two three four five six seven eight nine ten"
_NUMBERS = {"a": 1, "an": 1} | {
    said: number
    for number, word in enumerate(word_keys(_COUNTED), 1)
    for said in (word, str(number))
}
_SIDES = frozenset(
    word_keys(
        "left right above below over under underneath beneath beside next near behind before "
        "between front atop top bottom"
    )
)
_PLACES = frozenset(word_keys("in at on by during inside within"))
"""What a setting begins with: "in a meadow", "at night", "on the beach", "by the sea"."""
_NO_PLACES = _SIDES | {"of", "to"}
_LOOSEST: tuple[EditPurpose, ...] = (
    "relation", "addition", "removal", "setting", "swap", "size", "colour",
)  # fmt: skip
"""Of several at once the first decides: what it is for needs the most freedom."""


def purpose_of(alignment: WordAlignment) -> EditPurpose | None:
    """What an edit is for; None where no word changed but articles and the like.

    "a red cat" -> "a blue dog" is a swap and not a colour, "two cats" -> "three cats" an addition,
    and what stands after "in", "at", "on" or "by" is the setting, but for its colours and sizes: of
    several the one that needs most freedom is told.
    """
    source, target = (
        [pair[side] for pair in alignment.pairs if pair[side] is not None] for side in (0, 1)
    )
    found: set[EditPurpose] = set()
    sides = False  # "left" was added or dropped, as in "left of" -> "to the right of"
    same = {id(word) for pair in alignment.same for word in pair}
    for before, after in alignment.pairs:
        if before is not None and id(before) in same:
            continue
        one = _change(before, after, _led(before, source), _led(after, target))
        found |= {one} if one is not None else set()
        sides |= any(word is not None and fold(word.text) in _SIDES for word in (before, after))
    if sides and not found & {"addition", "removal", "setting"}:
        return "relation"
    return next((purpose for purpose in _LOOSEST if purpose in found), None)


def _change(
    before: Word | None, after: Word | None, led: str | None, leads: str | None
) -> EditPurpose | None:
    """What one changed word is for; None for articles and the like, which say nothing alone.

    Args:
        before: the word of the source.
        after: the word of the target.
        led: the connective before it in the source; itself, if it is one.
        leads: the same in the target.
    """
    words = [fold(word.text) for word in (before, after) if word is not None]
    counts = [_NUMBERS[word] for word in words if word in _NUMBERS]
    if len(counts) == 2:
        more = counts[1] - counts[0]
        return None if more == 0 else "addition" if more > 0 else "removal"
    if all(word in _COLOURS for word in words):
        return "colour"
    if all(word in _SIZES for word in words):
        return "size"
    if len(words) == 2 and any(word in _SIDES for word in words):
        return "setting" if any(word in _PLACES for word in words) else "relation"
    if not any(is_content(word) or connects(word) for word in words):
        return None
    leading = [place for place in (led, leads) if place is not None]
    if all(place in _PLACES for place in leading):
        return "setting"
    if not any(is_content(word) and word not in _NO_PLACES for word in words):
        return None
    if before is None or after is None:
        return "addition" if before is None else "removal"
    return "swap"


def _led(word: Word | None, words: Sequence[Word | None]) -> str | None:
    """The last connective up to a word of a prompt; empty if there is none."""
    if word is None:
        return None
    before = [one for one in words if one is not None and one.start <= word.start]
    said = (fold(one.text) for one in sorted(before, key=lambda one: -one.start))
    return next((one for one in said if connects(one)), "")
