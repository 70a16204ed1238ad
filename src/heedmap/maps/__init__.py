"""From what was recorded to heat maps, masks and pictures of them.

A recording is data: attention probabilities at the axes that were kept, in memory and on disk.
Everything is numpy; no torch, so that a saved run opens at once.
"""

# pyright: reportUnsupportedDunderAll=false
__all__ = [
    "aims",
    "averages",
    "heatmaps",
    "layer_heads",
    "layer_names",
    "map_sheets",
    "recordings",
    "regions",
    "segments",
    "selections",
    "soft_masks",
    "stability",
    "timelines",
    "word_map",
    "word_sheets",
]
