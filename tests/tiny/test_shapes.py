"""The outlines of the drawn world, against geometry worked out by other means."""

import math
from random import Random

import numpy as np
import pytest

from heedmap.tiny import scenes, shapes


def area(points) -> float:
    """The area within an outline, by the shoelace formula."""
    x, y = np.array(points).T
    return abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2


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


def test_every_noun_of_the_world_has_a_drawing():
    assert tuple(shapes.DRAWINGS) == scenes.NOUNS


@pytest.mark.parametrize("noun", shapes.DRAWINGS)
def test_a_thing_fills_its_box_and_stays_in_it(noun):
    for seed in range(8):
        parts = shapes.DRAWINGS[noun](Random(seed))
        points = np.concatenate([within(part) for part in parts])
        assert np.abs(points).max() <= 1.1
        # It reaches across most of its box, in one direction at least.
        assert (points.max(0) - points.min(0)).max() > 1.4


@pytest.mark.parametrize("noun", shapes.DRAWINGS)
def test_a_thing_has_the_colour_that_a_caption_speaks_of(noun):
    parts = shapes.DRAWINGS[noun](Random(0))
    base = sum(area(within(part)) for part in parts if part.shade == "base")
    assert base > 0.1


@pytest.mark.parametrize("noun", shapes.DRAWINGS)
def test_a_drawing_is_a_function_of_its_generator(noun):
    draw = shapes.DRAWINGS[noun]
    assert draw(Random(3)) == draw(Random(3))


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
