"""Lines of text: whole, within their column, in fonts that have every character."""

import time
import warnings

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import fontManager
from matplotlib.textpath import TextPath
from PIL import Image

from heedmap.errors import HeedmapWarning
from heedmap.figures import layout, lettering
from heedmap.figures.lettering import drawable, fit_text, font, runs_left

LONG = "extraordinarily-" * 18 + "long"
DEJAVU = fontManager.findfont("DejaVu Sans")


def forget() -> None:
    for cached in (lettering._families, lettering._family, lettering._width, lettering._spelled):
        cached.cache_clear()


@pytest.fixture
def only_dejavu(monkeypatch):
    """A machine without any other font."""
    entries = [one for one in fontManager.ttflist if one.fname == DEJAVU]
    monkeypatch.setattr(fontManager, "ttflist", entries)
    forget()
    yield
    monkeypatch.undo()
    forget()


def characters(path: str) -> dict[int, str]:
    """What a font can draw, by another reader than ours."""
    with TTFont(path, fontNumber=0) as read:
        return read.getBestCmap()


def ink_ends(text: str, size: int) -> float:
    """Where the ink of a line ends, from its outlines."""
    outlines = TextPath((0, 0), text, prop=font(text, size))
    return float(outlines.vertices[:, 0].max())


# --- what can be drawn ------------------------------------------------------------------------


def test_spelled_where_there_is_no_glyph(only_dejavu):
    assert drawable("한국 house 🏠!") == "U+D55C·AD6D house U+1F3E0·!"
    assert drawable("a한") == "a·U+D55C"
    assert drawable("\u1112\u1161\u11ab") == "U+D55C"  # jamo, composed
    assert drawable("👩\u200d💻 ❤\ufe0f") == "U+1F469·1F4BB ❤"
    assert drawable(" a\n\tb\u00a0 c\u200b ") == "a b c"
    assert drawable("\x00\ud800\ue000\u3164") == "U+0000·D800·E000·3164"
    assert drawable("\u202ea\u2066b\u200f") == "ab"  # nothing turns the line around


def test_a_script_that_no_font_has_is_warned_of(only_dejavu):
    for text, scripts in (("빨간 집 house", 1), ("집 家 家", 2), ("a red house", 0)):
        for _ in range(2):  # of a text that was spelled before, too
            with warnings.catch_warnings(record=True, action="always") as warned:
                drawable(text)
            assert [one.category for one in warned] == [HeedmapWarning] * scripts


def test_what_cannot_be_seen(only_dejavu):
    """Joiners shape the letters that they stand between; of all else there is nothing to draw."""
    assert drawable("a\u200cb\u200dc") == "a\u200cb\u200dc"
    assert drawable("\u200da") == "a" and drawable("한\u200da") == "U+D55C·a"
    assert drawable("a\ufe00b\ufe0f") == "ab" and drawable("\ufdfd") != ""
    assert drawable("a\u2800b") == "a·U+2800·b"  # a glyph without ink


def test_the_first_thousand_signs():
    assert drawable("x" * 1000) == "x" * 1000
    assert drawable("x" * 1001) == "x" * 1000 + "…"


@pytest.mark.parametrize(
    "text",
    [
        *("plain", "한국어 집", "日本の家", "בית אדום", "بيت أحمر", "हिन्दी", "🏠👩\u200d💻"),
        *("e\u0301\u0327 ﷽", "\U0010fffd", "$x^2$ \\alpha", "\u0645\u06cc\u200c\u062e\u0648"),
    ],
)
def test_every_character_has_its_font(text):
    line = drawable(text)
    paths = [fontManager.findfont(family) for family in font(line, 12).get_family()]
    assert len(set(paths)) == len(paths) and paths[0] == DEJAVU
    known = set[int]().union(*map(characters, paths))
    assert [sign for sign in line if ord(sign) not in known] == []
    assert len(TextPath((0, 0), line, prop=font(line, 12)).vertices) > 0  # and none is missed


def test_a_mark_that_the_font_of_its_letter_lacks_is_spelled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lettering, "_family", lambda sign: {"e": "A", "?": None}.get(sign, "B"))
    monkeypatch.setattr(lettering, "_has", lambda family, sign: (family, sign) == ("B", "\u0323"))
    assert lettering._lacking("e\u0323 \u0323x\u0323?\u200de") == ".x....xj."


def test_another_family_helps_out():
    stix, dejavu = characters(fontManager.findfont("STIXGeneral")), characters(DEJAVU)
    lacking = (chr(code) for code in sorted(stix) if code not in dejavu and chr(code).isalpha())
    sign = next(sign for sign in lacking if drawable(sign) == sign)
    assert drawable(f"a{sign}b") == f"a{sign}b"
    assert len(font(f"a{sign}b", 12).get_family()) == 2
    assert font("ab", 12).get_family() == ["DejaVu Sans"]


def test_no_symbols_under_the_numbers_of_letters():
    assert not [name for name in lettering._families() if name.startswith(("cm", "STIXSize"))]
    assert not [name for name in lettering._families() if "Last" in name]


def test_fonts_are_plain_whatever_the_style():
    plain = font("a house", 12)
    weight = (plain.get_style(), plain.get_variant(), plain.get_weight(), plain.get_stretch())
    assert weight == ("normal", "normal", 400, "normal")
    assert plain.get_size_in_points() == 12


# --- in lines ---------------------------------------------------------------------------------


@example("漢\u0301", 96)  # a letter and a mark of two fonts, where there is a Chinese one
@example("W漢漢-", 96)  # a word wider than the column that ends in a joint
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("abWi-é漢שב\u0301", min_size=1, max_size=30), max_size=30).map(" ".join),
    st.integers(96, 500),
)
def test_text_is_set_whole_and_within_its_column(text, width):
    block = fit_text(text, width, size=24)
    assert "".join(block.texts).replace(" ", "") == drawable(text).replace(" ", "")
    assert 11 <= block.size <= 24
    assert block.width <= width + 1
    for line in block.texts:
        assert ink_ends(line, block.size) <= width + 1
    if block.size > 11:  # only the smallest size may break words or run past two lines
        assert len(block.texts) <= 2
        assert " ".join(block.texts) == drawable(text)


@pytest.mark.parametrize("text", ["house", LONG, "a " * 200, "gjpqÅÉ", "בית אדום ליד עץ"])
def test_widths_are_those_of_the_outlines(text):
    block = fit_text(text, 160, size=24)
    for line, wide in zip(block.texts, block.widths, strict=True):
        assert wide - 3 <= ink_ends(line, block.size) <= wide + 1
    assert block.width == np.ceil(max(block.widths))


def test_lines_are_as_full_as_they_can_be():
    block = fit_text("one two three four " * 40, 300, size=24)
    for line, after in zip(block.texts, block.texts[1:], strict=False):
        assert ink_ends(f"{line} {after.split()[0]}", 11) > 300 - 2
    assert fit_text("", 300, size=24).texts == ()
    assert fit_text("house", 300, size=24) == fit_text(" house\n", 300, size=24)


@pytest.mark.parametrize("size", range(11, 25))
def test_the_largest_size_at_which_it_fits(size):
    """A word of ten letters grows by six pixels or so with each size."""
    room = int(ink_ends("houseboats", size)) + 2
    assert fit_text("houseboats", room, size=24) == fit_text("houseboats", room, size=size)
    assert fit_text("houseboats", room, size=24).size == size
    two = fit_text("houseboats houseboats", room, size=24)  # two lines are enough
    assert (two.texts, two.size) == (("houseboats",) * 2, size)
    one = fit_text("houseboats houseboats", 2 * room + size, size=24, lines=1)
    assert one.texts == ("houseboats houseboats",) and abs(one.size - size) <= 1


def test_a_joint_far_back_is_no_place_to_break():
    room = int(ink_ends("m" * 12, 11)) + 2
    assert fit_text("m" * 8 + "-" + "m" * 8, room, size=11).texts == ("m" * 8 + "-", "m" * 8)
    first, *rest = fit_text("m-" + "m" * 30, room, size=11).texts
    assert len(first) >= 12 and "".join([first, *rest]) == "m-" + "m" * 30
    # Nor is one that a mark stands on.
    first, *_ = fit_text("m" * 8 + "-\u0301" + "m" * 8, room, size=11).texts
    assert len(first) > 10
    for line in fit_text("m" * 9 + "-" + "m" * 60, room, size=11).texts:
        assert ink_ends(line, 11) <= room + 1


def test_words_are_broken_behind_their_joints():
    assert all(line.endswith("-") for line in fit_text(LONG, 200, size=24).texts[:-1])
    mixed = fit_text("a " + "w" * 60 + " b", 200, size=24).texts
    assert mixed[0].startswith("a") and mixed[-1].endswith("b") and len(mixed) <= 5


def test_marks_stay_with_their_letters_and_too_many_do_no_harm():
    text = "e\u0327\u0323" * 200  # nothing composes the two marks
    lines = fit_text(text, 112, size=16).texts
    assert len(lines) > 5 and all(line.startswith(("e", "\u0229")) for line in lines)
    assert len(fit_text("a" + "\u0327" * 3000, 112, size=16).texts) < 600


def test_where_a_line_begins():
    assert runs_left("בית house") and runs_left("123 بيت")
    assert not runs_left("house בית") and not runs_left("123") and not runs_left("")


@pytest.mark.parametrize(
    "text",
    [
        *("a wonderful house " * 20_000, "w" * 20_000, "\u0301" * 20_000, "a\u0301" * 20_000),
        *(" ".join(map(str, range(20_000))), "한국어" * 7000, "-" * 20_000, "\U0001d518" * 20_000),
    ],
    ids=["words", "letters", "marks", "marked", "numbers", "korean", "joints", "rare"],
)
def test_of_texts_without_end_the_beginning_is_set_and_nothing_else_measured(text):
    drawable(text[:1000])  # the fonts of its characters are known
    lettering._width.cache_clear()
    began = time.process_time()
    block = fit_text(text, 200, size=22)
    assert time.process_time() - began < 1
    assert lettering._width.cache_info().misses < 4000
    line = " ".join(text.split())
    assert "".join(block.texts).replace(" ", "") == drawable(line[:1000] + "…").replace(" ", "")


def test_a_figure_of_texts_without_end_is_drawn_at_once():
    """Each line of a figure takes its time: 20,000 numbers took nine seconds."""
    numbers, picture = " ".join(map(str, range(20_000))), Image.new("RGB", (64, 64))
    panel = layout.Panel(numbers, picture, numbers)
    table = layout.table([(numbers, [numbers, picture])], ["a", numbers])
    bar = layout.ScaleBar(numbers, numbers, numbers)
    for body in (layout.in_rows([panel]), table):
        sheet = layout.framed(body, title=numbers, note=numbers, bar=bar)
        assert max(sheet.get_size_inches() * 72) < 4000
        assert len(sheet.texts) + len(sheet.artists) < 500
