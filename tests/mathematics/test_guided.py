"""Maps brought to a picture's edges, beside the definition of the guided filter in float64."""

import numpy as np
import pytest

from heedmap.mathematics.probabilities import SMOOTH, guided


def by_definition(picture, values, radius):
    """He, Sun and Tang, eq. 14 to 16, window by window; beyond the border there is its mirror."""
    side = 2 * radius
    guide = np.pad(picture / 255, ((side, side), (side, side), (0, 0)), mode="reflect")
    values = np.pad(values.astype(np.float64), side, mode="reflect")
    h, w = values.shape
    slopes = np.zeros((h, w, 4))
    for y in range(radius, h - radius):
        for x in range(radius, w - radius):
            window = slice(y - radius, y + radius + 1), slice(x - radius, x + radius + 1)
            colours, around = guide[window].reshape(-1, 3), values[window].ravel()
            away = colours - colours.mean(0)
            spread = away.T @ away / len(away) + SMOOTH * np.eye(3)
            slope = np.linalg.solve(spread, away.T @ (around - around.mean()) / len(away))
            slopes[y, x] = *slope, around.mean() - slope @ colours.mean(0)
    made = np.zeros((h, w))
    for y in range(side, h - side):
        for x in range(side, w - side):
            window = slice(y - radius, y + radius + 1), slice(x - radius, x + radius + 1)
            mean = slopes[window].reshape(-1, 4).mean(0)
            made[y, x] = mean[:3] @ guide[y, x] + mean[3]
    return made[side : h - side, side : w - side].clip(0, 1)


@pytest.mark.parametrize(("height", "width", "radius"), [(12, 12, 3), (9, 20, 4), (8, 11, 1)])
def test_the_guided_filter_equals_the_definition(height, width, radius):
    rng = np.random.default_rng(height)
    picture = rng.integers(0, 256, (height, width, 3), np.uint8)
    maps = rng.random((2, height, width), dtype=np.float32)
    maps[1] = maps[1] > 0.5  # of which a linear function of colours goes below 0 and above 1
    made = guided(picture, maps, radius)
    assert made.dtype == np.float32
    # The mirror of what was found around the border is not what is found around its mirror.
    inner = slice(radius, -radius), slice(radius, -radius)
    for one, values in zip(made, maps, strict=True):
        np.testing.assert_allclose(
            one[inner], by_definition(picture, values, radius)[inner], atol=1e-5
        )


def blurred_edge(at, width, blur):
    """A row that rises from 0 to 1 around a place."""
    return np.clip((np.arange(width) + 0.5 - at) / (2 * blur) + 0.5, 0, 1)


@pytest.mark.parametrize("scale", [1, 4])
def test_edges_of_a_map_move_to_edges_of_the_image(scale):
    """The map rises around pixel 40, blurred by 10; the picture turns from blue to red at 36."""
    width = 80 * scale
    picture = np.zeros((32 * scale, width, 3), np.uint8)
    picture[:, : 36 * scale] = 60, 90, 200
    picture[:, 36 * scale :] = 200, 60, 60
    values = np.tile(blurred_edge(40 * scale, width, 10 * scale), (1, 32 * scale, 1))
    made = guided(picture, values.astype(np.float32), 12 * scale)[0]
    assert made.min() == 0  # a linear function of colours goes below
    assert made.max() <= 1
    crossing = (made >= 0.5).argmax(axis=1)
    assert np.abs(crossing - 36 * scale).max() <= scale
    assert made[:, 36 * scale + 1].min() - made[:, 36 * scale - 2].max() > 0.4


@pytest.mark.parametrize("shape", [(3, 3), (4, 50), (7, 7)])
@pytest.mark.parametrize("radius", [1, 12, 500])
def test_images_smaller_than_the_filter_are_filtered(shape, radius):
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (*shape, 3), np.uint8)
    maps = rng.random((3, *shape), dtype=np.float32)
    made = guided(picture, maps, radius)
    assert made.shape == maps.shape
    assert np.isfinite(made).all()
    assert 0 <= made.min() <= made.max() <= 1


@pytest.mark.parametrize("cells", [16, 8])
def test_a_filtered_map_is_not_shifted(cells):
    """Whatever part of the pixels is looked at, nothing moves."""
    h, w = 250, 333
    y, x = np.mgrid[:h, :w]
    radius = round(1.5 * h / cells)
    middle = [(side - 1) / 2 for side in (h, w)]
    away = (y - middle[0]) ** 2 + (x - middle[1]) ** 2
    blob = np.exp(-away / (2 * (h / 8) ** 2))[None].astype(np.float32)
    flat = guided(np.full((h, w, 3), 128, np.uint8), blob, radius)[0].astype(np.float64)
    centre = [float((flat * at).sum() / flat.sum()) for at in (y, x)]
    np.testing.assert_allclose(centre, middle, atol=0.02)
