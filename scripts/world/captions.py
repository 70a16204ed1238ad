"""What a scene of the drawn world is told by: a text, and which of its characters mean what."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from world.layouts import COLOURS, NOUNS, RELATIONS, SETTINGS, SIZES, Layout

PREFIXES = ("a photo of ", "a picture of ", "a drawing of ", "an image of ", "there is ")
FILLERS = ("lovely", "very", "nice", "old", "happy", "funny", "beautiful", "tiny cute", "shiny")


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters start..end of a caption that speak of `things` (indices), or of the setting."""

    start: int
    end: int
    kind: Literal["noun", "colour", "size", "setting"]
    things: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A text for a scene and what its words speak of."""

    text: str
    mentions: tuple[Mention, ...]


def vocabulary() -> frozenset[str]:
    """Every word that captions are made of, apart from the letters without meaning."""
    texts = (*NOUNS, *COLOURS, *PREFIXES, *FILLERS, "a an the and with")
    ways = (*SETTINGS.values(), *SIZES.values(), *RELATIONS.values())
    return frozenset(" ".join((*texts, *(w for group in ways for w in group))).split())


def phrases() -> dict[str, list[str]]:
    """What a prompt can be put together of, by what it says: each in its plainest wording."""
    return {
        "nouns": list(NOUNS),
        "colours": list(COLOURS),
        "sizes": list(SIZES),
        "relations": [ways[0] for ways in RELATIONS.values()],
        "settings": [ways[0] for ways in SETTINGS.values()],
    }


class _Writer:
    """Builds a caption from pieces and remembers which characters speak of what."""

    def __init__(self) -> None:
        self.text = ""
        self.mentions: list[Mention] = []

    def say(self, words: str) -> None:
        self.text += words

    def mention(
        self,
        words: str,
        kind: Literal["noun", "colour", "size", "setting"],
        things: tuple[int, ...],
    ) -> None:
        start = len(self.text)
        self.text += words
        self.mentions.append(Mention(start, len(self.text), kind, things))

    def done(self) -> Caption:
        return Caption(self.text, tuple(self.mentions))


def caption(layout: Layout, rng: Random) -> Caption:
    """A caption in words drawn from `rng`: things, colours, sizes and setting in several wordings.

    Colours (one in six), sizes and settings are left out at times; 8 % carry filler words. Of one
    thing alone 6 % name it by letters without meaning: the letter tokens are trained too, and a
    word that was never seen draws something rather than nothing.
    """
    return _tell(layout, rng, wording="free")


def object_caption(layout: Layout, rng: Random, *, colours: bool = True) -> Caption:
    """As `caption`, but nouns, relation and setting are always said, and colours where asked."""
    return _tell(layout, rng, wording="clear" if colours else "plain")


def _tell(layout: Layout, rng: Random, wording: Literal["clear", "plain", "free"]) -> Caption:
    out = _Writer()
    free = wording == "free"
    n = len(layout.things)
    same_noun = n > 1 and len({t.noun for t in layout.things}) < n
    with_colours = wording == "clear" or (free and rng.random() < 0.84) or same_noun
    say_setting = layout.setting != "none" and (not free or rng.random() < 0.88)
    if layout.setting == "none":
        say_setting = rng.random() < 0.12
    phrase = rng.choice(SETTINGS[layout.setting])
    setting_first = say_setting and layout.setting != "none" and rng.random() < 0.1
    articles = rng.choices(("a", "the", ""), (70, 10, 20))[0]
    filler = free and rng.random() < 0.08
    gibberish = free and n == 1 and rng.random() < 0.06

    if not setting_first and rng.random() < 0.2:
        out.say(rng.choice(PREFIXES))
    if setting_first:
        out.mention(phrase, "setting", ())
        out.say(", ")
    for i, thing in enumerate(layout.things):
        if i:
            out.say(_link(layout, i, rng))
        words: list[tuple[str, Literal["noun", "colour", "size"] | None]] = []
        if filler and i == 0:
            words.append((_unknown(rng) if rng.random() < 0.5 else rng.choice(FILLERS), None))
        if thing.size and rng.random() < 0.7:
            words.append((rng.choice(SIZES[thing.size]), "size"))
        if with_colours:
            words.append((thing.colour, "colour"))
        words.append((_unknown(rng), None) if gibberish else (thing.noun, "noun"))
        if articles == "a":
            out.say("an " if words[0][0][0] in "aeiou" else "a ")
        elif articles:
            out.say(articles + " ")
        for k, (word, kind) in enumerate(words):
            out.say(" " if k else "")
            if kind is None:
                out.say(word)
            else:
                out.mention(word, kind, (i,))
    if say_setting and not setting_first:
        out.say(" ")
        out.mention(phrase, "setting", ())
    return out.done()


def _link(layout: Layout, i: int, rng: Random) -> str:
    if len(layout.things) == 2:
        return f" {rng.choice(RELATIONS[layout.relation])} "
    return " and " if i == len(layout.things) - 1 else ", "


def _unknown(rng: Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(rng.choice(letters) for _ in range(rng.randint(3, 8)))
