"""Whose results are whose: a number by chance, given with the page, and nothing else."""

from pathlib import Path

import pytest

from app.serving import Served
from heedmap.app.visitors import visitor_of

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

NUMBER = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (f"heedmap-visitor={NUMBER}", NUMBER),
        (f"other=1; heedmap-visitor={NUMBER}; more=2", NUMBER),
        (f'heedmap-visitor="{NUMBER}"', NUMBER),
        ("", ""),
        ("heedmap-visitor=", ""),
        (f"heedmap-visitor={NUMBER[:-1]}", ""),
        (f"heedmap-visitor={NUMBER}0", ""),
        (f"heedmap-visitor={NUMBER.upper()}", ""),
        ("heedmap-visitor=../../etc/passwd", ""),
        (f"heedmap-visitor={'/' * 32}", ""),
        ("\x00;;==", ""),
        (f"Heedmap-Visitor={NUMBER}", ""),
    ],
)
def test_a_number_and_nothing_else(said: str, found: str):
    assert visitor_of(said) == found


def test_who_opens_the_page_is_given_one_once(server: Served):
    given = [server.ask("/", Cookie="")[2]["set-cookie"] for _ in range(2)]
    assert given[0] != given[1] and visitor_of(given[0])
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=31536000"):
        assert part in given[0]
    assert server.ask("/")[2]["set-cookie"] is None  # who has one keeps it
    for path in ("/config", "/results", "/theme.css"):
        assert server.ask(path, Cookie="")[2]["set-cookie"] is None
    assert server.ask("/", auth="ann:wrong", Cookie="")[2]["set-cookie"] is None


def test_where_all_see_all_nobody_is_given_one(model, tmp_path: Path):
    with Served(tmp_path, {}) as alone:
        assert alone.ask("/", Cookie="")[2]["set-cookie"] is None
        assert alone.ask("/results", Cookie="")[0] == 200
