"""The outlines of the drawn world, against geometry worked out by other means; its things."""

import math
from random import Random

import numpy as np
import pytest

from world import shapes, sprites


def area(points) -> float:
    """The area within an outline, by the shoelace formula."""
    x, y = np.array(points).T
    return abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2


def outline(part: shapes.Part) -> np.ndarray:
    """The outline of a part as points: of an ellipse, points on it."""
    if part.ellipse is None:
        return np.array(part.points)
    x, y, rx, ry, turn = part.ellipse
    angle = np.linspace(0, 2 * math.pi, 64)
    turned = (rx * np.cos(angle) + 1j * ry * np.sin(angle)) * np.exp(1j * turn)
    return np.stack([x + turned.real, y + turned.imag], axis=1)


@pytest.mark.parametrize("noun", sprites.DRAWINGS)
def test_a_thing_fills_its_box_with_its_colour(noun):
    for seed in range(8):
        parts = sprites.DRAWINGS[noun](Random(seed))
        points = np.concatenate([outline(part) for part in parts])
        assert np.abs(points).max() <= 1.1
        # It reaches across most of its box, in one direction at least.
        assert (points.max(0) - points.min(0)).max() > 1.4
        assert sum(area(outline(part)) for part in parts if part.shade == "base") > 0.1
