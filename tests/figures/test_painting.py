"""Blocks as pixels: the same as matplotlib's figure of them, the other way to draw them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.patheffects import Normal, Stroke
from PIL import Image

from heedmap.figures import layout, painting
from heedmap.figures.blocks import INK, SOFT, Block, LineAt, PictureAt
from heedmap.figures.layout import Panel, ScaleBar
from heedmap.figures.lettering import drawable
from heedmap.figures.sheet import Sheet

TEXTS = (
    *(
        "a red house next to a blue tree",
        "it's 5 $ & <b>",
        "$x^2$",
        "한국어 🏠",
        "हिन्दी क्षि",
        "שלום",
    ),
    *("scale: shared by all words", "up to 0.141", "fi ffl AVAToW", "", "…", "¿qué?", "\u0301e"),
)


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def some_block(seed: int) -> Block:
    random = np.random.default_rng(seed)
    width, height = (int(n) for n in random.integers(40, 400, 2))
    things: list[PictureAt | LineAt] = []
    for n in range(4):
        x, y = (int(side) for side in random.integers(-9, 200, 2))
        size = (int(random.integers(1, 120)), int(random.integers(1, 120)))
        picture = noise(*(int(side) for side in random.integers(1, 99, 2)), seed + n)
        things.append(PictureAt(x, y, picture, size, outlined=bool(random.integers(2))))
    for _ in range(3):
        x, y = (float(side) for side in random.random(2) * 300)
        text = drawable(TEXTS[random.integers(len(TEXTS))])
        colour = f"#{int(random.integers(2**24)):06x}"
        things.append(LineAt(x, y, text, int(random.integers(8, 40)), colour))
    order = random.permutation(len(things))
    return Block(width, height, tuple(things[int(at)] for at in order))


def assert_alike(block: Block) -> None:
    painted = painting.painted(block)
    figure = Sheet.of(block).image()
    assert (
        (painted.mode, painted.size) == ("RGB", figure.size) == ("RGB", (block.width, block.height))
    )
    np.testing.assert_array_equal(np.asarray(painted), np.asarray(figure))


@pytest.mark.parametrize("seed", range(24))
def test_painted_to_the_bit_as_the_figure(seed):
    assert_alike(some_block(seed))


@pytest.mark.parametrize("text", TEXTS)
def test_sheets_to_the_bit_as_their_figures(text):
    panels = [Panel(word, noise(96, 64, n), f"up to {n}") for n, word in enumerate(text.split())]
    body = layout.in_rows([Panel("", noise(96, 64, 9), "the picture"), *panels])
    laid = layout.laid_out(body, title=text, note=text[::-1], bar=ScaleBar("raw", 0, 1))
    assert_alike(laid.block)
    assert np.array_equal(np.asarray(laid.image()), np.asarray(laid.figure().image()))
    assert laid.figure().title == drawable(text)


def test_nothing_is_white():
    assert painting.painted(Block(3, 2)).getcolors() == [(6, (255, 255, 255))]


def test_in_the_dark_letters_are_light_and_pictures_as_they_are():
    picture = noise(9, 7)
    lines = (LineAt(20, 30, "house", 20, INK), LineAt(20, 60, "note", 16, SOFT))
    block = Block(120, 80, (PictureAt(80, 4, picture, (9, 7), False), *lines))
    day, night = (np.asarray(painting.painted(block, dark=dark)) for dark in (False, True))
    paper = (28, 28, 31)
    assert tuple(night[0, 0]) == paper and tuple(day[0, 0]) == (255, 255, 255)
    np.testing.assert_array_equal(night[4:11, 80:89], np.asarray(picture))
    # Where by day there is ink, there is light by night, and nowhere else.
    written = (day[:, :78] < 200).any(axis=-1)
    assert written.any() and (night[:, :78][written].mean(axis=-1) > 60).all()
    assert (night[:, :78][(day[:, :78] == 255).all(axis=-1)] == paper).all()
    bright = [night[y].max() for y in (slice(14, 31), slice(46, 61))]
    assert bright[0] > bright[1] > 150  # what is soft stays softer
    framed = Block(12, 12, (PictureAt(1, 1, noise(8, 8), (8, 8)),))
    assert tuple(np.asarray(painting.painted(framed, dark=True))[1, 1]) == (74, 74, 80)


def test_pictures_are_where_the_block_says():
    picture = noise(7, 5)
    got = np.asarray(painting.painted(Block(20, 10, (PictureAt(4, 2, picture, (7, 5), False),))))
    np.testing.assert_array_equal(got[2:7, 4:11], np.asarray(picture))
    got = got.copy()
    got[2:7, 4:11] = 255
    assert (got == 255).all()


def test_pixels_count_from_the_foot_and_have_an_outline():
    picture = noise(8, 6)
    plain = painting.pixels(picture, (8, 6), 0)
    np.testing.assert_array_equal(plain[::-1, :, :3], np.asarray(picture))
    assert (plain[..., 3] == 255).all()
    thick = painting.pixels(picture, (8, 6), 2)
    np.testing.assert_array_equal(thick[2:-2, 2:-2], plain[2:-2, 2:-2])
    edge = np.ones((6, 8), dtype=bool)
    edge[2:-2, 2:-2] = False
    assert (thick[edge] == (205, 205, 209, 255)).all()


def test_no_style_that_is_set_elsewhere_is_seen():
    block = some_block(3)
    plain = painting.painted(block).tobytes()
    loud = {
        "text.color": "red", "text.antialiased": False, "text.hinting": "native",
        "font.weight": "bold", "font.size": 30, "path.sketch": (3, 9, 2), "text.usetex": True,
        "path.simplify": False, "agg.path.chunksize": 100, "lines.linewidth": 9,
        "path.effects": [Stroke(linewidth=9, foreground="red"), Normal()],
        "figure.facecolor": "black", "lines.antialiased": False,
    }  # fmt: skip
    with rc_context(loud):  # type: ignore[arg-type]
        assert painting.painted(block).tobytes() == plain


def test_no_figure_is_imported():
    code = (
        "import sys; from heedmap.figures import layout\n"
        "layout.laid_out(layout.Block(9, 9), title='a house').image()\n"
        "assert not {'matplotlib.figure', 'matplotlib.axes', 'mpl_toolkits'} & set(sys.modules)"
    )
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": path})
