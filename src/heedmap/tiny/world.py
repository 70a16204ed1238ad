"""What there is in the drawn world, and in which words it is spoken of."""

from heedmap.tiny.shapes import DRAWINGS

RGB = tuple[int, int, int]

NOUNS: tuple[str, ...] = tuple(DRAWINGS)
PLURALS: dict[str, str] = {noun: noun + "s" for noun in NOUNS} | {
    "fish": "fish", "butterfly": "butterflies", "cactus": "cacti",
}  # fmt: skip
COLOURS: dict[str, RGB] = {
    "red": (224, 48, 44),
    "orange": (246, 142, 34),
    "yellow": (252, 218, 58),
    "green": (66, 168, 72),
    "blue": (52, 108, 226),
    "purple": (136, 68, 190),
    "pink": (250, 150, 196),
    "white": (247, 247, 244),
    "black": (42, 40, 46),
    "grey": (140, 143, 150),
    "brown": (126, 76, 42),
}
NATURAL: dict[str, str] = {
    "cat": "orange", "dog": "brown", "fish": "blue", "snail": "brown", "butterfly": "yellow",
    "house": "white", "car": "red", "boat": "white", "balloon": "red", "rocket": "grey",
    "tree": "green", "flower": "pink", "mushroom": "red", "cactus": "green",
}  # fmt: skip
"""The colour that each thing has by itself; only of such a thing a caption may leave it out."""
NUMBERS: dict[int, str] = {2: "two", 3: "three"}
SETTINGS: dict[str, tuple[str, ...]] = {
    "none": ("on a plain background",),
    "meadow": ("in a meadow", "on a meadow", "on grass", "on the grass"),
    "night": ("at night", "in the night", "under the stars"),
    "beach": ("on the beach", "at the beach", "by the sea"),
    "snow": ("in the snow", "in snow", "in winter"),
    "sunset": ("at sunset", "in the sunset", "in the evening"),
}
SIZES: dict[str, tuple[str, ...]] = {"small": ("small", "little"), "big": ("big", "large")}
RELATIONS: dict[str, tuple[str, ...]] = {
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
    "beside": ("next to", "beside"),
    "with": ("and", "with"),
}
PREFIXES = ("a photo of ", "a picture of ", "a drawing of ", "an image of ", "there is ")
FILLERS = ("lovely", "very", "nice", "old", "happy", "funny", "beautiful", "tiny cute", "shiny")


def vocabulary() -> frozenset[str]:
    """Every word that captions are made of, apart from the letters without meaning."""
    texts = (*NOUNS, *PLURALS.values(), *COLOURS, *NUMBERS.values(), *PREFIXES, "there are")
    ways = (*SETTINGS.values(), *SIZES.values(), *RELATIONS.values())
    told = (*texts, *FILLERS, "a an the and with", *(w for group in ways for w in group))
    return frozenset(" ".join(told).split())


def tints(colour: str, light: float = 1.0) -> dict[str, RGB]:
    """The shades in which a thing of a colour is painted: base, dark and light; roof and contour.

    White and black have no room on one side, so their shades lie closer together. A white house
    has a red roof; a black thing has a paler contour, so that it stands out from the night.
    """
    base = tuple(min(255, round(c * light)) for c in COLOURS[colour])
    dark = tuple(round(c * 0.76) for c in base)
    pale = tuple(round(c + (255 - c) * 0.45) for c in base)
    if colour == "white":
        dark, pale = (tuple(round(c * part) for c in base) for part in (0.84, 0.93))
    elif colour == "black":
        dark, pale = (tuple(round(c * part) for c in base) for part in (0.6, 1.7))
    elif colour == "grey":
        pale = tuple(round(c + (255 - c) * 0.25) for c in base)
    roof = (212, 70, 58) if colour == "white" else dark
    ink = (132, 128, 142) if colour == "black" else (38, 32, 48)
    named = {"base": base, "dark": dark, "light": pale, "roof": roof, "ink": ink}
    return {name: (r, g, b) for name, (r, g, b) in named.items()}
