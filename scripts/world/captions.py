"""What a scene of the drawn world is told by: a text, and which of its characters mean what."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from world.layouts import COLOURS, NOUNS, RELATIONS, SETTINGS, SIZES, Layout

PLURALS: dict[str, str] = {noun: noun + "s" for noun in NOUNS} | {
    "fish": "fish", "butterfly": "butterflies", "cactus": "cacti",
}  # fmt: skip
NUMBERS: dict[int, str] = {2: "two", 3: "three"}
PREFIXES = ("a photo of ", "a picture of ", "a drawing of ", "an image of ", "there is ")
FILLERS = ("lovely", "very", "nice", "old", "happy", "funny", "beautiful", "tiny cute", "shiny")
MentionKind = Literal["noun", "colour", "size", "count", "setting"]
Wording = Literal["clear", "plain", "free"]
Words = list[tuple[str, MentionKind | None]]


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters start..end of a caption that speak of `things` (indices), or of the setting."""

    start: int
    end: int
    kind: MentionKind
    things: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A text for a scene and what its words speak of."""

    text: str
    mentions: tuple[Mention, ...]


def vocabulary() -> frozenset[str]:
    """Every word that captions are made of, apart from the letters without meaning."""
    texts = (*NOUNS, *PLURALS.values(), *COLOURS, *NUMBERS.values(), *PREFIXES, "there are")
    ways = (*SETTINGS.values(), *SIZES.values(), *RELATIONS.values())
    told = (*texts, *FILLERS, "a an the and with", *(w for group in ways for w in group))
    return frozenset(" ".join(told).split())


def phrases() -> dict[str, list[str]]:
    """What a prompt can be put together of, by what it says: each in its plainest wording."""
    return {
        "nouns": list(NOUNS),
        "numbers": list(NUMBERS.values()),
        "plurals": [plural for noun, plural in PLURALS.items() if plural != noun],
        "colours": list(COLOURS),
        "sizes": list(SIZES),
        "relations": [ways[0] for ways in RELATIONS.values()],
        "settings": [ways[0] for ways in SETTINGS.values()],
    }


def caption(layout: Layout, rng: Random) -> Caption:
    """A caption in words drawn from `rng`: things, colours, sizes and setting in several wordings.

    Sizes and settings are left out at times, colours only of things that have their natural one
    (six in ten of those, but never of two things of one noun); 8 % carry filler words. Things that
    are alike are told by a number, or now and then by the plural alone. Of one thing alone 6 % name
    it by letters without meaning: the letter tokens are trained too, and a word that was never seen
    draws something rather than nothing.
    """
    return _Teller(layout, rng, "free").tell()


def object_caption(layout: Layout, rng: Random, *, colours: bool = True) -> Caption:
    """As `caption`, but nouns, number, relation and setting are always said.

    Colours too; with `colours=False` those alone that are not natural.
    """
    return _Teller(layout, rng, "clear" if colours else "plain").tell()


class _Teller:
    """Builds one caption from pieces and remembers which characters speak of what."""

    def __init__(self, layout: Layout, rng: Random, wording: Wording) -> None:
        self.layout, self.rng, self.wording = layout, rng, wording
        self.free = wording == "free"
        self.text = ""
        self.mentions: list[Mention] = []
        nouns = {thing.noun for thing in layout.things}
        self.alike = layout.relation == "several"
        self.twins = not self.alike and len(nouns) < len(layout.things)

    def mention(self, words: str, kind: MentionKind | None, things: tuple[int, ...]) -> None:
        start = len(self.text)
        self.text += words
        if kind is not None:
            self.mentions.append(Mention(start, len(self.text), kind, things))

    def tell(self) -> Caption:
        """The caption."""
        layout, rng = self.layout, self.rng
        say_setting = layout.setting != "none" and (not self.free or rng.random() < 0.88)
        if layout.setting == "none":
            say_setting = rng.random() < 0.12
        phrase = rng.choice(SETTINGS[layout.setting])
        first = say_setting and layout.setting != "none" and rng.random() < 0.1
        articles = rng.choices(("a", "the", ""), (70, 10, 20))[0]
        filler = self.free and rng.random() < 0.08
        unknown = self.free and len(layout.things) == 1 and rng.random() < 0.06
        if not first and rng.random() < 0.2:
            prefix = rng.choice(PREFIXES)
            self.text += prefix.replace(" is ", " are ") if self.alike else prefix
        if first:
            self.mention(phrase, "setting", ())
            self.text += ", "
        if self.alike:
            self.say_several(articles, filler)
        else:
            for i in range(len(layout.things)):
                self.text += self.link(i) if i else ""
                self.say_one(i, articles, filler and i == 0, unknown)
        if say_setting and not first:
            self.text += " "
            self.mention(phrase, "setting", ())
        return Caption(self.text, tuple(self.mentions))

    def say_one(self, i: int, articles: str, filler: bool, unknown: bool) -> None:
        """One thing, with its article."""
        words = self.adjectives(i, filler)
        noun = self.layout.things[i].noun
        words.append((_unknown(self.rng), None) if unknown else (noun, "noun"))
        if articles == "a":
            articles = "an" if words[0][0][0] in "aeiou" else "a"
        self.text += f"{articles} " if articles else ""
        self.say(words, (i,))

    def say_several(self, articles: str, filler: bool) -> None:
        """Things that are alike, by number or (one in four, in free captions) the plural alone."""
        things = self.layout.things
        plural = PLURALS[things[0].noun]
        bare = self.free and plural != things[0].noun and self.rng.random() < 0.25
        words = self.adjectives(0, filler)
        if not bare:
            words.insert(0, (NUMBERS[len(things)], "count"))
        words.append((plural, "noun"))
        self.text += "the " if articles == "the" else ""
        self.say(words, tuple(range(len(things))))

    def adjectives(self, i: int, filler: bool) -> Words:
        """What is said of a thing before its noun."""
        thing, rng, words = self.layout.things[i], self.rng, Words()
        if filler:
            words.append((_unknown(rng) if rng.random() < 0.5 else rng.choice(FILLERS), None))
        if thing.size and rng.random() < 0.7:
            words.append((rng.choice(SIZES[thing.size]), "size"))
        silent = self.wording == "plain" or (self.free and rng.random() < 0.6)
        if not (thing.natural and silent) or self.twins:
            words.append((thing.colour, "colour"))
        return words

    def say(self, words: Words, things: tuple[int, ...]) -> None:
        for k, (word, kind) in enumerate(words):
            self.text += " " if k else ""
            self.mention(word, kind, things)

    def link(self, i: int) -> str:
        """What stands before thing `i`."""
        if len(self.layout.things) == 2:
            return f" {self.rng.choice(RELATIONS[self.layout.relation])} "
        return " and " if i == len(self.layout.things) - 1 else ", "


def _unknown(rng: Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(rng.choice(letters) for _ in range(rng.randint(3, 8)))
