"""The outlines of the drawn world, against geometry worked out by other means."""

import math
from random import Random

import numpy as np
import pytest

from world import shapes


def area(points) -> float:
    """The area within an outline, by the shoelace formula."""
    x, y = np.array(points).T
    return abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2


def test_a_box_and_a_polygon():
    made = shapes.box("base", -0.5, -0.25, 0.5, 0.25, inner=True)
    assert area(made.points) == pytest.approx(1 * 0.5)
    assert made.inner and made.contour and made.ellipse is None
    triangle = shapes.polygon("dark", (0, 0), (1, 0), (0, 1), contour=False)
    assert area(triangle.points) == pytest.approx(0.5) and not triangle.contour


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
    made = shapes.curve("base", *corners, steps=16)
    found = np.array(made.points)
    assert len(found) == 8 * 16
    for corner in corners:
        assert np.abs(found - corner).sum(axis=1).min() < 1e-12
    # Through eight points of a circle it is nearly that circle, and turns a little at each point.
    assert np.abs(np.hypot(*found.T) - 1).max() < 0.02
    assert area(found) == pytest.approx(math.pi, rel=0.02)
    way = np.diff(np.vstack([found, found[:1]]), axis=0)
    turns = np.angle(np.exp(1j * np.diff(np.arctan2(way[:, 1], way[:, 0]))))
    assert turns.min() > 0 and turns.max() < 0.2
