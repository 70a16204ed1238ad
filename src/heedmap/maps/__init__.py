"""From what was recorded to heat maps, masks and pictures of them.

A recording is data: attention probabilities at the axes that were kept, in memory and on disk.
Everything is numpy; no torch, so that a saved run opens at once.
"""

# pyright: reportUnsupportedDunderAll=false
