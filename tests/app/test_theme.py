"""How the app looks: as the page does, legible, and with nothing fetched from elsewhere."""

import re
from importlib import resources

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from heedmap.app.theme import style, theme


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", ["", "_dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("body_text_color", "body_background_fill"),
        ("body_text_color_subdued", "body_background_fill"),
        ("block_label_text_color", "block_background_fill"),
        ("block_info_text_color", "block_background_fill"),
        ("input_placeholder_color", "input_background_fill"),
        ("button_primary_text_color", "button_primary_background_fill"),
        ("button_primary_text_color", "button_primary_background_fill_hover"),
        ("button_secondary_text_color", "button_secondary_background_fill"),
    ],
)
def test_text_stands_out_from_its_ground(text, ground, dark):
    """By at least 4.5 to 1, as WCAG's level AA asks."""
    made = theme()
    low, high = sorted(luminance(getattr(made, name + dark)) for name in (text, ground))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_its_colours_are_those_of_the_page():
    page = resources.files("heedmap.explorer").joinpath("page", "page.css").read_text("utf-8")
    made = theme()
    for name in ("body_background_fill", "body_text_color", "color_accent"):
        assert getattr(made, name) in page, name
    for name in ("body_background_fill_dark", "body_text_color_dark", "slider_color_dark"):
        assert getattr(made, name) in page, name


def test_nothing_is_fetched():
    made = theme()
    drawn = made._get_theme_css().replace("http://www.w3.org/2000/svg", "")  # a name, no address
    assert not made._stylesheets
    for rules in (drawn, style()):
        assert not re.search(r"@import|https?:|url\((?!['\"]?data:)", rules)
