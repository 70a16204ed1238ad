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


def test_a_box_has_its_area():
    assert area(shapes.box("base", -0.5, -0.25, 0.5, 0.25).points) == pytest.approx(1 * 0.5)


def test_a_stroke_is_as_wide_as_told_and_as_long_as_its_line():
    rng = Random(0)
    for _ in range(20):
        x0, y0, x1, y1 = (rng.uniform(-1, 1) for _ in range(4))
        line = shapes.stroke("base", 0.2, (x0, y0), (x1, y1))
        assert area(line.points) == pytest.approx(0.2 * math.hypot(x1 - x0, y1 - y0))
    straight = shapes.stroke("base", 0.1, (0, 0), (0.5, 0), (1, 0))
    assert {round(y, 9) for _, y in straight.points} == {0.05, -0.05}


def test_a_curve_goes_through_its_points_and_is_smooth():
    corners = [(math.cos(t), math.sin(t)) for t in np.arange(8) * math.pi / 4]
    points = np.array(shapes.curve("base", *corners, steps=16).points)
    np.testing.assert_allclose(points[::16], corners, atol=1e-12)
    # Through eight points of a circle it is nearly that circle, and turns a little at each point.
    assert np.abs(np.hypot(*points.T) - 1).max() < 0.02
    way = np.diff(np.vstack([points, points[:1]]), axis=0)
    turns = np.angle(np.exp(1j * np.diff(np.arctan2(way[:, 1], way[:, 0]))))
    assert turns.min() > 0 and turns.max() < 0.2


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
