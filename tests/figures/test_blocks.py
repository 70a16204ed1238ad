"""Pictures and lines of text at their places, worked out by hand."""

import numpy as np
import pytest
from PIL import Image

from heedmap.figures import blocks
from heedmap.figures.blocks import Block, LineAt, PictureAt
from heedmap.figures.lettering import Lines
from heedmap.figures.sheet import Sheet


def pixels(block: Block) -> np.ndarray:
    return np.asarray(Sheet.of(block).image())


RED = Image.new("RGB", (30, 20), "red")
TWO = Lines(("one", "and two"), 10)


def test_blocks_stand_side_by_side_or_below():
    one, other = (
        Block.of(Image.new("RGB", size, colour))
        for size, colour in (((30, 20), "red"), ((10, 40), "blue"))
    )
    across, below = (blocks.beside([one, other], across=a) for a in (True, False))
    assert (across.width, across.height) == (30 + 32 + 10, 40)
    assert (below.width, below.height) == (30, 20 + 32 + 40)
    across, below = pixels(across), pixels(below)
    assert across[39, 62].tolist() == below[91, 9].tolist() == [0, 0, 255]
    assert across[30, 0].tolist() == below[60, 20].tolist() == [255, 255, 255]


def test_nothing_beside_nothing():
    assert blocks.beside([], across=True) == Block(0, 0)
    alone = blocks.beside([Block.of(RED)], across=True)
    assert (alone.width, alone.height) == (30, 20)  # a gap is between two
    three = blocks.beside([Block(10, 5), Block(20, 30), Block(7, 7)], across=False, gap=3)
    assert (three.width, three.height) == (20, 5 + 3 + 30 + 3 + 7)


def test_a_block_is_moved_with_all_that_is_in_it():
    line = LineAt(4, 12, "house", 9, blocks.INK)
    block = Block(60, 40, (PictureAt(1, 2, RED, (15, 10)), line))
    picture, words = block.at(100, 200)
    assert (picture.x, picture.y, words.x, words.y) == (101, 202, 104, 212)
    assert picture.picture is RED and picture.size == (15, 10) and picture.outlined
    assert (words.text, words.size, words.colour) == ("house", 9, blocks.INK)
    assert (block.things[0].x, block.things[1].y) == (1, 12)


def test_a_picture_alone_has_no_outline_and_another_has():
    assert (pixels(Block.of(RED)) == (255, 0, 0)).all()
    outlined = pixels(Block(30, 20, (PictureAt(0, 0, RED, RED.size),)))
    assert (outlined[1:-1, 1:-1] == (255, 0, 0)).all()
    for edge in (outlined[0], outlined[-1], outlined[:, 0], outlined[:, -1]):
        assert (edge == (205, 205, 209)).all()


@pytest.mark.parametrize(
    ("size", "corner"), [((40, 30), (10, 20)), ((20, 30), (20, 20)), ((39, 11), (10, 29))]
)
def test_a_picture_stands_in_the_middle_of_its_place(size, corner):
    at = blocks.picture_at(RED, (10, 20, 40, 30), size)
    assert (at.x, at.y) == corner and at.size == size and at.outlined


def test_lines_stand_on_their_base_lines_below_one_another():
    first, second = blocks.lines_at(TWO, 7, 100, 80)
    assert (first.text, second.text) == TWO.texts and first.x == second.x == 7
    assert (first.y, second.y) == (110, 110 + 13)  # a letter lower, and 1.3 of one
    assert first.size == second.size == 10 and first.colour == blocks.INK
    soft = blocks.lines_at(TWO, 7, 100, 80, colour=blocks.SOFT, middle=True)
    assert [(one.x, one.colour) for one in soft] == [(37, "#636368"), (22, "#636368")]


def test_what_runs_from_the_right_begins_there():
    hebrew = Lines(("בית", "house"), (20.0, 50.0), 10)
    assert [one.x for one in blocks.lines_at(hebrew, 7, 0, 80)] == [7 + 60, 7]
    assert [one.x for one in blocks.lines_at(hebrew, 7, 0, 80, middle=True)] == [37, 22]
