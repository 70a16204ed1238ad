"""The purpose of an edit, by the words that change; for prompts in English."""

from collections.abc import Sequence
from typing import Literal, get_args

from heedmap.options import EditPurpose
from heedmap.text.alignment import WordAlignment
from heedmap.text.prompts import (
    CONNECTIVES,
    fold,
    is_content,
    plurals,
    word_keys,
    word_set,
)
from heedmap.text.words import Word

_COLOURS = word_set(
    "red orange yellow green blue purple pink white black grey gray brown violet cyan magenta "
    "turquoise teal gold golden silver beige cream crimson scarlet maroon navy indigo lilac olive "
    "colorful colourful reddish orangish yellowish greenish bluish purplish pinkish whitish "
    "blackish greyish grayish brownish coloured colored"
)
_SHADES = word_set("light lighter dark darker bright brighter pale paler deep vivid")
_SIZES = word_set(
    "small big little large tiny huge giant gigantic enormous massive miniature tall short long "
    "wide narrow smaller bigger larger smallest biggest largest medium taller tallest shorter "
    "shortest longer longest wider widest narrower narrowest tinier tiniest"
)
# In digits up to 99: a larger number is a year, or the size of an image.
_NUMBERS = {str(number): number for number in range(100)} | {"a": 1, "an": 1}
_NUMBERS.update(
    zip(
        word_keys(
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
            "fifteen sixteen seventeen eighteen nineteen twenty"
        ),
        range(1, 21),
        strict=True,
    )
)
_SIDES = word_set(
    "left right above below over under underneath beneath beside next near behind before between "
    "front atop top bottom around outside out off onto among amid beyond against across"
)
# Begin a setting: "at night".
_PLACES = word_set("in at on by during inside within")
_NO_THINGS = _SIDES | {"of", "to"}


def purpose_of(alignment: WordAlignment) -> EditPurpose | None:
    """Return the purpose of an edit; None if only articles and the like changed.

    "a red cat" -> "a blue dog" is a swap and not a colour, "two cats" -> "three cats" and "a cat"
    -> "cats" are additions, and words after "in", "at", "on" or "by" are the setting, except its
    colours and sizes. Of several purposes the one that needs the most freedom holds.
    """
    source = _readings([word for word, _ in alignment.pairs if word])
    target = _readings([word for _, word in alignment.pairs if word])
    purposes: set[EditPurpose] = set()
    sides = False  # "left" was added or dropped, as in "left of" -> "to the right of"
    # A side took the place of "in" or the like, or the other way round.
    replaced = False
    for before, after in alignment.changes:
        readings = [source[before.number]] if before else []
        readings += [target[after.number]] if after else []
        words, leads = zip(*readings, strict=True)
        purpose = _change(words, leads, "removal" if before else "addition")
        has_side = not _SIDES.isdisjoint(words)
        if purpose == "setting" and has_side:
            replaced = True
        elif purpose:
            purposes.add(purpose)
        sides |= has_side
    # "in the snow" -> "under the stars"; else only its place changed.
    if replaced and purposes:
        purposes.add("setting")
    if sides and not purposes & {"addition", "removal", "setting"}:
        return "relation"
    return min(purposes, key=get_args(EditPurpose).index, default=None)


def _readings(words: Sequence[Word]) -> list[tuple[str, str]]:
    """Return the folded text of each word of a prompt and the last connective up to it.

    The first of "in front of" is read as "front", and a shade before a thing as "coloured".
    """
    texts = [fold(word.text) for word in words]
    readings: list[tuple[str, str]] = []
    lead = ""
    for text, following in zip(texts, [*texts[1:], ""], strict=False):
        if text in ("in", "on", "at") and following in ("front", "top", "bottom"):
            text = following
        elif text in _SHADES and following and is_content(following):
            text = "coloured"
        if text in CONNECTIVES:
            lead = text
        readings.append((text, lead))
    return readings


def _change(
    words: Sequence[str],
    leads: Sequence[str],
    unpaired: Literal["addition", "removal"],
) -> EditPurpose | None:
    """Return the purpose of a changed word of one or both prompts; None for articles and the like.

    `leads` has the connective before each, and `unpaired` the purpose of a word without a partner.
    """
    counts = [_NUMBERS[word] for word in words if word in _NUMBERS]
    if len(counts) == 2:
        more = counts[1] - counts[0]
        if more == 0:
            return None
        return "addition" if more > 0 else "removal"
    if _COLOURS.issuperset(words):
        return "colour"
    if _SIZES.issuperset(words):
        return "size"
    if len(words) == 2:
        if not _SIDES.isdisjoint(words):
            return "relation" if _PLACES.isdisjoint(words) else "setting"
        if words[1] in plurals(words[0]):
            return "addition"
        if words[0] in plurals(words[1]):
            return "removal"
    if not any(is_content(word) or word in CONNECTIVES for word in words):
        return None
    if _PLACES.issuperset(leads):
        return "setting"
    if not any(is_content(word) and word not in _NO_THINGS for word in words):
        return None
    return unpaired if len(words) == 1 else "swap"
