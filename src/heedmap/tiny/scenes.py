"""The drawn world: scenes with exact masks, made from a seed.

A scene is laid out (`Layout`: which things, where, in which setting), drawn (`Scene`: the picture
and one exact mask a thing) and told (`Caption`: a text, and which characters of it speak of which
things). All of it is a pure function of its seed, so the truth about any picture can be made again.

Each thing has a natural colour (`NATURAL`), in which it is drawn where a caption tells none.

Held-out: `is_held_out(layout)` is true for about one combination of things, colours and setting in
eight, and for the pairs in `UNSEEN_PAIRS` always; training must skip those layouts. Seeds from
`HELD_OUT_SEED` on are for evaluation.
"""

from heedmap.tiny.captions import Caption, Mention, caption, full_caption, object_caption
from heedmap.tiny.drawing import SHADES, SIZE, Scene, draw
from heedmap.tiny.layouts import (
    HELD_OUT_SEED,
    UNSEEN_PAIRS,
    Kind,
    Layout,
    Thing,
    is_held_out,
    lay_out,
)
from heedmap.tiny.world import (
    COLOURS,
    FILLERS,
    NATURAL,
    NOUNS,
    NUMBERS,
    PLURALS,
    PREFIXES,
    RELATIONS,
    SETTINGS,
    SIZES,
    tints,
    vocabulary,
)

__all__ = [
    "COLOURS", "FILLERS", "HELD_OUT_SEED", "NATURAL", "NOUNS", "NUMBERS", "PLURALS", "PREFIXES",
    "RELATIONS", "SETTINGS", "SHADES", "SIZE", "SIZES", "UNSEEN_PAIRS", "Caption", "Kind", "Layout",
    "Mention", "Scene", "Thing", "caption", "draw", "full_caption", "is_held_out", "lay_out",
    "object_caption", "tints", "vocabulary",
]  # fmt: skip
