"""The things of the drawn world: each fills its box and bears its colour."""

import math
from random import Random

import numpy as np
import pytest

from scripts.world.test_shapes import area
from world import shapes, sprites


def within(part: shapes.Part) -> np.ndarray:
    """The outline of a part as points: of an ellipse, points on it."""
    if part.ellipse is None:
        return np.array(part.points)
    x, y, rx, ry, turn = part.ellipse
    angle = np.linspace(0, 2 * math.pi, 64)
    along, across = rx * np.cos(angle), ry * np.sin(angle)
    return np.stack(
        [
            x + along * math.cos(turn) - across * math.sin(turn),
            y + along * math.sin(turn) + across * math.cos(turn),
        ],
        axis=1,
    )


@pytest.mark.parametrize("noun", sprites.DRAWINGS)
def test_a_thing_fills_its_box_and_stays_in_it(noun):
    for seed in range(8):
        parts = sprites.DRAWINGS[noun](Random(seed))
        points = np.concatenate([within(part) for part in parts])
        assert np.abs(points).max() <= 1.1
        # It reaches across most of its box, in one direction at least.
        assert (points.max(0) - points.min(0)).max() > 1.4


@pytest.mark.parametrize("noun", sprites.DRAWINGS)
def test_a_thing_has_the_colour_that_a_caption_speaks_of(noun):
    parts = sprites.DRAWINGS[noun](Random(0))
    base = sum(area(within(part)) for part in parts if part.shade == "base")
    assert base > 0.1
