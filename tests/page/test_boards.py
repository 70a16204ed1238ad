"""The page of an explanation: what it says, and that nothing a user typed is markup."""

import json
import re

from making import data_of, made_explanation

from heedmap.page import boards


def page(made) -> str:
    return boards.board(made.content(), made.image)


def test_it_holds_the_file():
    made = made_explanation()
    assert data_of(page(made)) == json.loads(json.dumps(made.content()))


def test_it_needs_nothing_else():
    made = page(made_explanation())
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", made)
    assert set(re.findall(r"https?:[^\"]+", made)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in made
