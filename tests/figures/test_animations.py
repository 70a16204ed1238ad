"""Pictures that move: what a reader of GIFs finds in the file."""

import numpy as np
from making import gradient, largest_difference
from PIL import Image, ImageSequence

from heedmap.figures.overlays import Animation


def test_a_gif_shows_each_frame_whole_in_one_palette(tmp_path):
    """A colour that the palette lacks is the same in each frame: nothing crawls."""
    still = gradient(64, 64)
    moving = still.copy()
    moving.paste((255, 0, 255), (0, 0, 8, 8))
    path = Animation("house", (still, moving, still), (100, 200, 300)).save(tmp_path / "x.gif")
    found, durations = [], []
    with Image.open(path) as file:
        assert file.info["loop"] == 0  # for ever
        for frame in ImageSequence.Iterator(file):
            found.append(np.asarray(frame.convert("RGB")))
            durations.append(frame.info["duration"])
    one, two, three = found
    assert durations == [100, 200, 300]
    assert largest_difference(two[:8, :8], (255, 0, 255)) <= 15
    assert np.array_equal(one[8:], two[8:]) and np.array_equal(one, three)
    assert len(np.unique(np.stack(found).reshape(-1, 3), axis=0)) <= 256
