"""The shapes that things are drawn with: outlines in a unit box.

Coordinates: x to the right, y downwards, both in [-1, 1]; the box is the thing's own square.
Colours are named by shade ("base" is the colour that a caption speaks of), so that one drawing
serves every colour.
"""

import math
from dataclasses import dataclass

Point = tuple[float, float]
INSET = {"inner": True, "contour": False}
"""How what lies upon another part is drawn: a thin line round it, no contour."""


@dataclass(frozen=True, slots=True)
class Part:
    """One filled outline of a thing; parts are painted in order, all over one common dark contour.

    `points` close on themselves. An `ellipse` (centre, radii, turn) is kept apart from them because
    its widened contour is known exactly. `inner` draws a thin line round the part.
    """

    shade: str
    points: tuple[Point, ...] = ()
    ellipse: tuple[float, float, float, float, float] | None = None
    inner: bool = False
    contour: bool = True


def mirrored(top: Point, *right: Point) -> list[Point]:
    """A symmetric outline: its top, its right side from there down, and its left side up again."""
    return [top, *right, *((-x, y) for x, y in reversed(right))]


def polygon(shade: str, *points: Point, inner: bool = False, contour: bool = True) -> Part:
    """A polygon through the points."""
    return Part(shade, tuple(points), None, inner, contour)


def box(shade: str, left: float, top: float, right: float, bottom: float, **kind: bool) -> Part:
    """An upright rectangle."""
    return polygon(shade, (left, top), (right, top), (right, bottom), (left, bottom), **kind)


def ellipse(
    shade: str, x: float, y: float, rx: float, ry: float, turn: float = 0.0, **kind: bool
) -> Part:
    """An ellipse about (x, y), turned by `turn` radians (clockwise on the picture)."""
    return Part(shade, (), (x, y, rx, ry, turn), **kind)


def curve(shade: str, *points: Point, steps: int = 5, **kind: bool) -> Part:
    """A smooth closed outline through the points (Catmull-Rom)."""
    out: list[Point] = []
    n = len(points)
    for i in range(n):
        p0, p1, p2, p3 = (points[(i + k - 1) % n] for k in range(4))
        for j in range(steps):
            t = j / steps
            a = (-0.5 * t + t * t - 0.5 * t**3, 1 - 2.5 * t * t + 1.5 * t**3)
            b = (0.5 * t + 2 * t * t - 1.5 * t**3, -0.5 * t * t + 0.5 * t**3)
            out.append(
                (
                    a[0] * p0[0] + a[1] * p1[0] + b[0] * p2[0] + b[1] * p3[0],
                    a[0] * p0[1] + a[1] * p1[1] + b[0] * p2[1] + b[1] * p3[1],
                )
            )
    return Part(shade, tuple(out), None, **kind)


def stroke(shade: str, width: float, *points: Point, **kind: bool) -> Part:
    """A line of the given width along the points, as a closed outline."""
    left: list[Point] = []
    right: list[Point] = []
    for i, (x, y) in enumerate(points):
        x0, y0 = points[max(i - 1, 0)]
        x1, y1 = points[min(i + 1, len(points) - 1)]
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        nx, ny = -(y1 - y0) / length * width / 2, (x1 - x0) / length * width / 2
        left.append((x + nx, y + ny))
        right.append((x - nx, y - ny))
    return Part(shade, (*left, *reversed(right)), None, **kind)
