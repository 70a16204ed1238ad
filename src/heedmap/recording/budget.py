"""The keys of the budget of attention."""

from dataclasses import replace

import numpy as np

from heedmap.recording.calls import Call
from heedmap.text.words import TokenTable

_GROUPS = {
    "text": "words",
    "start": "start",
    "end": "end",
    "pad": "padding",
    "image": "references",
}
"""The group of each kind of token."""


def budget_keys(table: TokenTable, call: Call) -> TokenTable:
    """Return a table with the group and the text of each key of a layer, and the entropy.

    The keys are those of the tokens of a prompt and, in joint attention, the row and column of the
    positions of the image, of its padding and of reference images.
    """
    groups = dict(_GROUPS)
    for kind in ("start", "end"):
        if len(table.positions(kind)) > len(table.encoder_positions):
            groups[kind] = "template"
    keys = [f"{groups[token.kind]} {token.text}" for token in table.tokens]
    if call.family.is_joint:
        parts = {
            "image": next(iter(call.grids.values())),
            "padding of the image": (1, call.layout.padding),
        }
        for number, grid in enumerate(call.references):
            parts[f"references {number}"] = grid
        for name, grid in parts.items():
            keys += [f"{name} {place}" for place in np.ndindex(grid)]
    return replace(TokenTable.of_texts([*keys, "entropy"]), prompt=table.prompt)
