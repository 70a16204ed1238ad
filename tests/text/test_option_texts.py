"""Texts of options, as both the command line and the app read them."""

import pytest

from heedmap.text import option_texts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("red=-2:3:6", ("red", [-2, -1, 0, 1, 2, 3])),
        ("red=0,1,3", ("red", [0, 1, 3])),
        ("a=b=0,0.5,…,2", ("a=b", [0, 0.5, 1, 1.5, 2])),
        (" red house = 1.5 ", ("red house", [1.5])),
    ],
)
def test_strips(text: str, found: object):
    assert option_texts.strip_in(text) == found


def test_windows():
    assert option_texts.windows_in("0,0.2,...,0.6, 0.1:0.9") == [
        (0, 0), (0, 0.2), (0, 0.4), (0, 0.6), (0.1, 0.9)
    ]  # fmt: skip


def test_pixels_and_words():
    assert option_texts.pixel_in("40, 72") == (40, 72)
    assert option_texts.word_in("red house") == "red house" and option_texts.word_in("#2") == 2
    assert option_texts.word_in("# 02 ") == 2 and option_texts.word_in("2") == "2"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (option_texts.strip_in, "red"),
        (option_texts.strip_in, "=1"),
        (option_texts.strip_in, "red=1:2"),
        (option_texts.strip_in, "red=1:2:100000"),
        (option_texts.strip_in, "red=1:2:2.5"),
        (option_texts.strip_in, "red=nan"),
        (option_texts.strip_in, "red=1e999"),
        (option_texts.strip_in, "red=0,…,1"),
        (option_texts.strip_in, "red=0,0.3,…,1"),
        (option_texts.strip_in, "red=0,0,…,1"),
        (option_texts.window_in, "0.9:0.1"),
        (option_texts.windows_in, "0,2"),
        (option_texts.windows_in, ""),
        (option_texts.pixel_in, "7,"),
        (option_texts.pixel_in, "1,2,3"),
        (option_texts.pixel_in, "1,2.5"),
        (option_texts.word_in, "#x"),
        (option_texts.word_in, "#"),
        (option_texts.box_in, "cat=a,b,c,d"),
        (option_texts.box_in, "cat=0,0,nan,3"),
    ],
)
def test_unreadable_texts(read, text: str):
    with pytest.raises(ValueError):
        read(text)
