"""The page of an explanation: what it says, and that nothing a user typed is markup."""

import re
from dataclasses import replace

import numpy as np
import pytest
from making import data_of, made_explanation
from msgspec import structs

from heedmap.io.explanations import as_packed
from heedmap.io.values import to_json
from heedmap.page import boards


def page(made) -> str:
    return boards.board(made.content(("explain.json",)), made.image)


def test_it_holds_the_file():
    made = made_explanation()
    assert data_of(page(made)) == to_json(made.content(("explain.json",)))


def test_it_needs_nothing_else():
    made = page(made_explanation())
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", made)
    assert set(re.findall(r"https?:[^\"]+", made)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in made


def test_the_code_that_it_shows_computes_it(tmp_path, monkeypatch):
    """What stands on the page is run as it stands there."""
    from html import unescape

    for options in ({"masked": True}, {"masked": False, "edited": True}):
        made = made_explanation(**options)
        if not options["masked"]:
            given = structs.replace(made.given, residual=as_packed(np.ones(10)), factor=2.0)
            made = replace(made, given=given).with_added(made.joined + 1)
        folder = made.save(tmp_path / str(options["masked"]))
        monkeypatch.chdir(folder)
        (code,) = re.findall(r"<pre>(.*?)</pre>", page(made), re.S)
        names: dict = {}
        exec(unescape(code), names)
        assert names["p"] == pytest.approx(made.attention.probabilities, rel=1e-12)
        assert names["o"] == pytest.approx(made.shown.output, rel=1e-12)
        assert names["brought"] == pytest.approx(made.shown.brought, rel=1e-12)
        assert names["y"] == pytest.approx(made.shown.together, rel=1e-12)
        assert names["w_o"].shape == (12, 10)
