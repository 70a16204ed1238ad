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


def test_windows_and_sides():
    assert option_texts.windows_in("0,0.2,...,0.6, 0.1:0.9") == [
        (0, 0), (0, 0.2), (0, 0.4), (0, 0.6), (0.1, 0.9)
    ]  # fmt: skip
    assert option_texts.sides_in("0, 0,64,128.5") == (0, 0, 64, 128.5)


def test_pixels_and_words():
    assert option_texts.pixel_in("40, 72") == (40, 72)
    assert option_texts.word_in("red house") == "red house" and option_texts.word_in("#2") == 2
    assert option_texts.word_in("# 02 ") == 2 and option_texts.word_in("2") == "2"
    assert option_texts.word_in("#999999999") == 999_999_999


@pytest.mark.parametrize(
    ("read", "text", "part"),
    [
        (option_texts.strip_in, "red", "red"),
        (option_texts.strip_in, "=1", "=1"),
        (option_texts.strip_in, "red=1:2", "1:2"),
        (option_texts.strip_in, "red=1:2:100000", "1:2:100000"),
        (option_texts.strip_in, "red=nan", "nan"),
        (option_texts.strip_in, "red=1e999", "1e999"),
        (option_texts.strip_in, "red=0,…,1", "0,…,1"),
        (option_texts.strip_in, "red=0,0.3,…,1", "0,0.3,…,1"),
        (option_texts.window_in, "0.9:0.1", "0.9:0.1"),
        (option_texts.windows_in, "0,2", "2"),
        (option_texts.windows_in, "", ""),
        (option_texts.pixel_in, "7,", "7,"),
        (option_texts.pixel_in, "1,2,3", "1,2,3"),
        (option_texts.pixel_in, "1,2.5", "1,2.5"),
        (option_texts.word_in, "#x", "#x"),
        (option_texts.word_in, "#", "#"),
        (option_texts.word_in, "#-1", "#-1"),
        (option_texts.word_in, "##2", "##2"),
        (option_texts.word_in, "#1_0", "#1_0"),
        (option_texts.word_in, "#\u0662", "#\u0662"),  # Python would read these digits
        (option_texts.word_in, "#\u00b2", "#\u00b2"),
        (option_texts.word_in, "#1000000000", "#1000000000"),
        (option_texts.pixel_in, "nan,1", "nan,1"),
        (option_texts.sides_in, "1,2,3", "1,2,3"),
        (option_texts.sides_in, "a,b,c,d", "a,b,c,d"),
        (option_texts.sides_in, "0,0,nan,3", "0,0,nan,3"),
        (option_texts.sides_in, "0,0,1,1e999", "0,0,1,1e999"),
    ],
)
def test_what_cannot_be_read_names_the_part_that_is_meant(read, text: str, part: str):
    with pytest.raises(option_texts.Unreadable) as error:
        read(text)
    assert error.value.text == part and error.value.expected


def test_a_number_of_more_digits_than_python_reads_is_none():
    with pytest.raises(option_texts.Unreadable):
        option_texts.word_in(f"#{'9' * 5000}")
