"""The page of an explanation: what it says, and that nothing a user typed is markup."""

import re
from dataclasses import replace

import numpy as np
import pytest
from making import data_of, made_explanation
from msgspec import structs

from heedmap.io.explanations import as_packed
from heedmap.io.notes import to_json
from heedmap.page import boards


def page(made) -> str:
    return boards.board(made.content(("explain.json",)), made.shown, made.image)


def test_it_holds_the_file():
    made = made_explanation()
    assert data_of(page(made)) == to_json(made.content(("explain.json",)))


def test_it_needs_nothing_else():
    made = page(made_explanation())
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", made)
    assert "https:" not in made and "http:" not in made
    assert not re.search(r"\son\w+=|style=", made)  # the policy would refuse them
    assert "default-src 'none'" in made


def test_what_a_user_typed_is_text():
    word = "<img src=x onerror=alert(1)>"
    made = page(made_explanation(word=word, prompt=f"a {word} & {word}"))
    assert "<img" not in made and "&lt;img src=x" in made


def test_the_place_is_marked():
    made = page(made_explanation())
    # Row 4 and column 2 of a grid of 6×8 over 128×96 pixels: cells of 16×16.
    assert '<rect class="cell" x="32" y="64" width="16" height="16"/>' in made
    assert 'cx="40.5" cy="72.5"' in made
    assert "row 4, column 2 of a grid of 6×8, counted from 0" in made
    assert "in the saved maps; step the middle" in made


@pytest.mark.parametrize(
    ("prompt", "spans", "shown"),
    [
        ("a red house", [(6, 11)], "a red <mark>house</mark>"),
        ("A RED  House", [(2, 5), (7, 12)], "A <mark>RED  House</mark>"),
        ("red, house", [(0, 3), (5, 10)], "<mark>red</mark>, <mark>house</mark>"),
        ("at a <sea>", [(3, 4)], "at <mark>a</mark> &lt;sea&gt;"),
        ("house, house", [(7, 12)], "house, <mark>house</mark>"),
        ("at sea", [], "at sea"),
    ],
)
def test_the_words_that_are_meant_are_marked_in_the_prompt(prompt, spans, shown):
    made = made_explanation()
    about = structs.replace(made.about, prompt=prompt, spans=tuple(spans))
    assert f'<p class="prompt">{shown}</p>' in page(replace(made, about=about))


def test_what_is_not_as_it_was_is_told():
    made = made_explanation()
    changed = structs.replace(made.about, changed=("versions.torch",), passes=(1, 2))
    made = page(replace(made, about=changed))
    assert "differ from the run: versions.torch." in made and "1 of 0–1 within the step" in made
    assert "within the step" not in page(made_explanation())  # of one pass there is nothing to say
    step = f"step {changed.step} of 0–{changed.steps - 1}"
    assert step in made and f"<dd>{step.removeprefix('step ')}; timestep" in made
    assert f"<dt>head</dt><dd>{changed.head} of 0–{changed.heads - 1}</dd>" in made


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
        # W_O is one matrix wherever it is named, of the shape that is shown.
        assert names["w_o"].shape == (12, 10) and "(1 × 12) · (12 × 10)" in page(made)
        assert "W_O (12 × 10)" in page(made) and "W_Oᵀ" not in page(made)
