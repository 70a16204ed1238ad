"""The page of an explanation in a browser: each section has the numbers of its step."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import made_explanation
from msgspec import structs

from heedmap.text.words import Token


def rows(page: Any, title: str) -> dict[str, list[str]]:
    """The texts of the cells of a section's table, by the name of the row."""
    section = page.locator("section", has=page.get_by_role("heading", name=title))
    return {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()
        for row in section.locator("tbody tr").all()
    }


def test_each_section_has_the_numbers_of_its_step(show: Any):
    made = made_explanation(edited=True)
    page, one = show(made.page()).page, made.attention
    token = made.report.tokens[0]

    def number(title: str, column: int, row: str = "house") -> float:
        return float(rows(page, title)[row][column].replace("\u2212", "-"))

    assert number("QK", -1) == pytest.approx(one.scores[token], abs=1e-8)
    assert number("Scaling by √d", 0) == pytest.approx(one.scaled[token], rel=1e-3)
    assert number("Scaling by √d", -1) == pytest.approx(one.unscaled_probabilities[token], rel=1e-3)
    raised = math.exp(one.masked[token] - max(one.masked))
    assert number("softmax", 0) == pytest.approx(raised, abs=1e-8)
    assert number("softmax", 2) == pytest.approx(one.probabilities[token], abs=1e-8)
    assert number("softmax", 3) == pytest.approx(made.probabilities[1, token], abs=1e-8)
    assert number("softmax", 2, "sum") == number("softmax", 3, "sum") == 1
    assert number("contribution", -1) == pytest.approx(
        made.numbers["contributions"][token], abs=1e-8
    )
    assert number("All heads", 1, "1") == pytest.approx(made.probabilities[1, token], rel=1e-3)
    assert "hides 1 of 6 tokens: −∞" in page.locator("main").inner_text()
    lead = page.locator(".lead").inner_text()
    assert f"{made.probabilities[1, token]:.8f} of the attention goes to house" in lead


def test_the_contribution_of_the_padding_is_the_norm_of_its_sum(show: Any):
    made = made_explanation(masked=False)
    two = (*made.tokens[:-2], *(replace(one, kind="pad") for one in made.tokens[-2:]))
    page = show(replace(made, tokens=two).page()).page
    head = slice(made.report.head * 4, made.report.head * 4 + 4)
    value, weight = made.inputs.value[made.report.head], made.inputs.weight
    each = made.attention.probabilities[4:, None] * value[4:] @ weight[:, head].T
    together = float(np.linalg.norm(each.sum(axis=0)))
    assert together < 0.99 * np.linalg.norm(each, axis=1).sum()
    found = rows(page, "contribution")["2 × padding"][-1]
    assert float(found) == pytest.approx(together, abs=1e-6)


def test_the_output_names_the_residual_and_other_parts(show: Any):
    made = made_explanation()
    given = structs.replace(made.inputs, residual=np.ones(10), factor=2.0, bias=None)
    given = structs.replace(given, added=np.ones(12))
    page = show(replace(made, inputs=given).page()).page
    way = page.locator("section", has=page.get_by_role("heading", name="output of the layer"))
    assert "W_O + input) / 2" in way.inner_text() and "image prompt" in way.inner_text()


def test_the_position_and_the_words_are_marked_and_typed_text_is_text(show: Any):
    word = "<img src=x onerror=alert(1)>"
    made = made_explanation(word=word, prompt=f"🚀 a {word} & {word}")
    opened = show(made.page())
    page = opened.page
    assert page.locator(".prompt mark").all_inner_texts() == [word]
    assert page.locator(".prompt").inner_text() == made.report.prompt
    # Row 4 and column 2 of a grid of 6×8 over 128×96 pixels: cells of 16×16.
    box = page.locator("rect.cell")
    assert [box.get_attribute(name) for name in ("x", "y", "width", "height")] == [
        "32", "64", "16", "16"
    ]  # fmt: skip
    facts = page.locator("section", has=page.locator(".place")).inner_text()
    assert re.search("row 4, column 2 of a grid of 6×8", facts) and "the middle step" in facts
    with page.expect_download() as download:
        page.get_by_role("link", name="Download explain.json").click()
    assert download.value.suggested_filename == "explain.json"


def test_adjacent_tokens_are_marked_as_one_word(show: Any):
    made = made_explanation()
    parts = (Token(3, 3, "ho", 6, 8, "text"), Token(4, 4, "use", 8, 11, "text"))
    tokens = (*made.tokens[:3], *parts, made.tokens[5])
    for positions, marks in (((3, 4), ["house"]), ((2, 3, 4), ["red", "house"])):
        report = structs.replace(made.report, tokens=positions)
        page = show(replace(made, report=report, tokens=tokens).page()).page
        assert page.locator(".prompt mark").all_inner_texts() == marks
