"""Pictures and lines of text at their places, worked out by hand."""

import numpy as np
import pytest
from matplotlib.textpath import TextPath
from PIL import Image

from heedmap.figures import blocks
from heedmap.figures.blocks import Block, LineAt, PictureAt
from heedmap.figures.lettering import Lines, font
from heedmap.figures.sheet import Sheet


def pixels(block: Block) -> np.ndarray:
    return np.asarray(Sheet.of(block).image())


def ink_ends(line: LineAt) -> float:
    """Where the ink of a line ends, from its outlines."""
    outlines = TextPath((line.x, 0), line.text, prop=font(line.text, line.size))
    return float(outlines.vertices[:, 0].max())


RED = Image.new("RGB", (30, 20), "red")
TWO = Lines(("one", "and two"), 10)


def test_blocks_stand_side_by_side_or_below():
    one, other = (
        Block.of(Image.new("RGB", size, colour))
        for size, colour in (((30, 20), "red"), ((10, 40), "blue"))
    )
    across, below = (blocks.beside([one, other], across=a, gap=32) for a in (True, False))
    assert (across.width, across.height) == (30 + 32 + 10, 40)
    assert (below.width, below.height) == (30, 20 + 32 + 40)
    across, below = pixels(across), pixels(below)
    assert across[39, 62].tolist() == below[91, 9].tolist() == [0, 0, 255]
    assert across[30, 0].tolist() == below[60, 20].tolist() == [255, 255, 255]


def test_nothing_beside_nothing():
    assert blocks.beside([], across=True, gap=9) == Block(0, 0)
    alone = blocks.beside([Block.of(RED)], across=True, gap=9)
    assert (alone.width, alone.height) == (30, 20)  # a gap is between two
    three = blocks.beside([Block(10, 5), Block(20, 30), Block(7, 7)], across=False, gap=3)
    assert (three.width, three.height) == (20, 5 + 3 + 30 + 3 + 7)


@pytest.mark.parametrize(("lean", "at"), [(0, 0), (0.5, 10), (1, 20)])
def test_what_is_less_high_stands_at_the_top_in_the_middle_or_at_the_foot(lean, at):
    tall = Block(5, 40)
    across = blocks.beside([tall, Block.of(RED)], across=True, lean=lean)
    (picture,) = across.things
    assert (picture.x, picture.y) == (5, at) and (across.width, across.height) == (35, 40)
    below = blocks.beside([Block(50, 5), Block.of(RED)], across=False, lean=lean)
    (picture,) = below.things
    assert (picture.x, picture.y) == (at, 5) and (below.width, below.height) == (50, 25)


def test_a_block_is_moved_with_all_that_is_in_it():
    line = LineAt(4, 12, "house", 9, blocks.INK)
    block = Block(60, 40, (PictureAt(1, 2, RED, (15, 10)), line))
    picture, words = blocks.beside([Block(100, 0), block], across=True).things
    assert (picture.x, picture.y, words.x, words.y) == (101, 2, 104, 12)
    assert picture.picture is RED and picture.size == (15, 10) and picture.outlined
    assert (words.text, words.size, words.colour) == ("house", 9, blocks.INK)
    assert (block.things[0].x, block.things[1].y) == (1, 12)


def test_a_picture_alone_has_no_outline_and_another_has():
    assert (pixels(Block.of(RED)) == (255, 0, 0)).all()
    outlined = pixels(Block.of(RED, RED.size))
    assert (outlined[1:-1, 1:-1] == (255, 0, 0)).all()
    for edge in (outlined[0], outlined[-1], outlined[:, 0], outlined[:, -1]):
        assert (edge == (205, 205, 209)).all()


def test_lines_stand_on_their_base_lines_below_one_another():
    block = Block.text(TWO, 80)
    first, second = block.things
    assert (block.width, block.height) == (80, 2 * 13)
    assert (first.text, second.text) == TWO.texts and first.x == second.x == 0
    assert (first.y, second.y) == (10, 10 + 13)  # a letter lower, and 1.3 of one
    assert first.size == second.size == 10 and first.colour == blocks.INK
    assert Block.text(Lines((), 10), 80) == Block(80, 0)


def test_lines_stand_in_the_middle_of_their_column():
    for line in Block.text(TWO, 80, blocks.SOFT, middle=True).things:
        assert line.colour == "#636368"
        assert line.x == pytest.approx(80 - ink_ends(line), abs=2)


def test_what_runs_from_the_right_begins_there():
    hebrew = Lines(("בית", "house"), 10)
    first, second = Block.text(hebrew, 80).things
    assert ink_ends(first) == pytest.approx(80, abs=2) and second.x == 0
    for line in Block.text(hebrew, 80, middle=True).things:
        assert line.x == pytest.approx(80 - ink_ends(line), abs=2)
