"""The page of an explanation in a browser: each section has the numbers of its step."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import random_explanation


def read_rows(page: Any, title: str) -> dict[str, list[str]]:
    """The texts of the cells of a section's table, by the name of the row."""
    section = page.locator("section", has=page.get_by_role("heading", name=title))
    return {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()
        for row in section.locator("tbody tr").all()
    }


def test_each_section_has_the_numbers_of_its_step(load_page: Any):
    explanation = random_explanation(edited=True)
    page, head = load_page(explanation.page()).page, explanation.attention
    token = explanation.report.tokens[0]
    probability = explanation.probabilities[1, token]
    contribution = explanation.numbers["contributions"][token]
    for title, column, expected in (
        ("QK", -1, pytest.approx(head.scores[token], abs=1e-8)),
        ("Scaling by √d", 0, pytest.approx(head.scaled[token], rel=1e-3)),
        ("Scaling by √d", -1, pytest.approx(head.unscaled_probabilities[token], rel=1e-3)),
        ("softmax", 2, pytest.approx(head.probabilities[token], abs=1e-8)),
        ("softmax", 3, pytest.approx(probability, abs=1e-8)),
        ("contribution", -1, pytest.approx(contribution, abs=1e-8)),
    ):
        text = read_rows(page, title)["house"][column]
        assert float(text.replace("\u2212", "-")) == expected, title
    assert read_rows(page, "softmax")["sum"][2:] == ["1.00000000", "1.00000000"]
    assert float(read_rows(page, "All heads")["1"][1]) == pytest.approx(probability, rel=1e-3)
    assert f"{probability:.8f}" in page.locator(".lead").inner_text()


def test_the_position_and_the_words_are_marked_and_typed_text_is_text(load_page: Any):
    word = "<img src=x onerror=alert(1)>"
    explanation = random_explanation(word=word, prompt=f"🚀 a {word} & {word}")
    page = load_page(explanation.page()).page
    assert page.locator(".prompt mark").all_inner_texts() == [word]
    assert page.locator(".prompt").inner_text() == explanation.report.prompt
    # Row 4 and column 2 of a grid of 6×8 over 128×96 pixels: cells of 16×16.
    cell = page.locator("rect.cell")
    corners = [cell.get_attribute(name) for name in ("x", "y", "width", "height")]
    assert corners == ["32", "64", "16", "16"]
    facts = page.locator("section", has=page.locator(".place")).inner_text()
    assert re.search("row 4, column 2 of a grid of 6×8", facts)


def test_the_contribution_of_the_padding_is_the_norm_of_its_sum(load_page: Any):
    explanation = random_explanation(masked=False)
    padding = (replace(token, kind="pad") for token in explanation.tokens[-2:])
    explanation = replace(explanation, tokens=(*explanation.tokens[:-2], *padding))
    head = explanation.report.head
    weight = explanation.inputs.weight[:, head * 4 : head * 4 + 4]
    probabilities = explanation.attention.probabilities[4:, None]
    parts = probabilities * explanation.inputs.value[head, 4:] @ weight.T
    page = load_page(explanation.page()).page
    found = float(read_rows(page, "contribution")["2 × padding"][-1])
    assert found == pytest.approx(np.linalg.norm(parts.sum(axis=0)), abs=1e-6)
