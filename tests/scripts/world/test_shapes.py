"""The things of the drawn world fill their boxes."""

import math
from random import Random

import numpy as np
import pytest

from world import shapes, sprites


def outline(part: shapes.Part) -> np.ndarray:
    """The outline of a part as points: of an ellipse, points on it."""
    if part.ellipse is None:
        return np.array(part.points)
    x, y, rx, ry, turn = part.ellipse
    angle = np.linspace(0, 2 * math.pi, 64)
    turned = (rx * np.cos(angle) + 1j * ry * np.sin(angle)) * np.exp(1j * turn)
    return np.stack([x + turned.real, y + turned.imag], axis=1)


@pytest.mark.parametrize("noun", sprites.DRAWINGS)
def test_a_thing_fills_its_box(noun):
    for seed in range(8):
        parts = sprites.DRAWINGS[noun](Random(seed))
        points = np.concatenate([outline(part) for part in parts])
        assert np.abs(points).max() <= 1.1
        # It reaches across most of its box, in one direction at least.
        assert (points.max(0) - points.min(0)).max() > 1.4
