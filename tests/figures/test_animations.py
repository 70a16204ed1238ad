"""Pictures that move: what a reader of GIFs finds in the file."""

import numpy as np
from making import gif_frames
from PIL import Image

from heedmap.figures.overlays import Animation


def colours(*rgb: tuple[int, int, int]) -> tuple[Image.Image, ...]:
    return tuple(Image.new("RGB", (20, 10), one) for one in rgb)


def test_each_frame_is_drawn_whole():
    """What stood still for a frame is drawn again where it is uncovered."""
    dark, light = colours((10, 10, 10), (240, 240, 240))
    part = light.copy()
    part.paste((10, 10, 10), (5, 2, 9, 6))
    found, *_ = gif_frames(Animation("x", (light, part, light, dark), (100,) * 4).gif())
    for one, frame in zip(found, (light, part, light, dark), strict=True):
        assert np.abs(np.asarray(one, int) - np.asarray(frame, int)).max() <= 15


def test_all_frames_share_one_palette_with_a_still_grain():
    """A colour that the palette lacks is the same mixture in each frame: nothing crawls."""
    ramp = np.linspace(0, 255, 64 * 64).reshape(64, 64, 1).repeat(3, axis=2).astype(np.uint8)
    ramp[..., 1] = ramp[::-1, :, 1]
    still = Image.fromarray(ramp)
    moving = still.copy()
    moving.paste((255, 0, 255), (0, 0, 8, 8))
    found, *_ = gif_frames(Animation("x", (still, moving, still), (100,) * 3).gif())
    one, two, three = (np.asarray(frame) for frame in found)
    assert np.array_equal(one[8:], two[8:]) and np.array_equal(one, three)
    assert len(np.unique(np.stack(found).reshape(-1, 3), axis=0)) <= 256


def test_an_animation_is_saved(tmp_path):
    moving = Animation("at <house>", colours((1, 2, 3), (4, 5, 6)), (100, 200))
    path = moving.save(tmp_path / "house.gif")
    assert path.read_bytes() == moving.gif()
    assert moving.save(path) == path
