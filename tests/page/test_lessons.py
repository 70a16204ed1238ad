"""The lesson: each section has the numbers of the step that it tells of."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from making import made_explanation
from msgspec import structs

from heedmap.io.explanations import as_array, as_packed
from heedmap.page.bars import brief, digits, strip
from heedmap.page.lessons import Lesson, marked


def lesson(made) -> dict[str, str]:
    """The sections, by the first word of their titles."""
    sections = Lesson(made.content(()), made.shown).sections()
    assert len(sections) == 8
    names = ("given", "scores", "scaled", "mask", "softmax", "values", "heads", "together")
    return {name: inner for name, (_, inner) in zip(names, sections, strict=True)}


def cells(section: str, token: str) -> list[str]:
    """The texts in the row of a token."""
    (row,) = re.findall(rf"<tr[^>]*><th><bdi>{token}</bdi></th>(.*?)</tr>", section)
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", row)]


def test_each_step_has_its_numbers():
    made = made_explanation()
    told, one = lesson(made), made.attention
    assert cells(told["scores"], "house")[-1] == digits(one.scores[3])
    assert cells(told["scaled"], "house")[0] == brief(one.scaled[3])
    assert cells(told["scaled"], "house")[-1] == brief(one.unscaled_probabilities[3])
    assert cells(told["softmax"], "house")[-1] == digits(one.probabilities[3])
    raised = math.exp(one.masked[3] - max(one.masked))
    assert cells(told["softmax"], "house")[0] == digits(raised)
    assert cells(told["values"], "house")[-1] == digits(made.brought[3])
    assert '<tr class="mine"><th>1</th>' in told["heads"]
    assert told["heads"].count("<tr") == 4
    assert "3 × 4 = 12 numbers" in told["together"] and "(1 × 12) · (12 × 10)" in told["together"]
    assert "6 × 4" in told["given"]


def test_a_row_sums_to_1():
    for made in (made_explanation(), made_explanation(masked=False)):
        (row,) = re.findall('<tr class="sum">(.*?)</tr>', lesson(made)["softmax"])
        assert row.endswith("<td>1.00000000</td>")


def test_the_padding_brought_what_its_tokens_add_up_to():
    """Lengths do not add up: what one brings may take away from another's."""
    made = made_explanation(masked=False)
    two = (*made.tokens[:-2], *(structs.replace(one, kind="pad") for one in made.tokens[-2:]))
    told = lesson(replace(made, tokens=two))["values"]
    head = slice(made.about.head * 4, made.about.head * 4 + 4)
    value, weight = as_array(made.given.value)[made.about.head], as_array(made.given.weight)
    each = made.attention.probabilities[4:, None] * value[4:] @ weight[:, head].T
    together = float(np.linalg.norm(each.sum(axis=0)))
    assert together < 0.99 * np.linalg.norm(each, axis=1).sum()
    (row,) = re.findall(r'<tr class="more"><th>2 × padding</th>(.*?)</tr>', told)
    assert row.endswith(f"<td>{digits(together)}</td>")


def test_a_head_that_draws_less_than_nothing_stays_in_its_cell():
    made = made_explanation(edited=True)
    raised = as_array(made.given.edited)
    raised[:, 3] = [-1.5, 0.5, 2.5]
    told = lesson(replace(made, given=structs.replace(made.given, edited=as_packed(raised))))
    bars = re.findall(
        r'<th>\d</th><td class="bar two">.*?<rect x="(.*?)" y="0" width="(.*?)"', told["heads"]
    )
    assert [(float(x), float(wide)) for x, wide in bars] == [(0, 37.5), (37.5, 12.5), (37.5, 62.5)]


def test_the_mask():
    hidden, seen = (lesson(made_explanation(masked=masked)) for masked in (True, False))
    assert "hides 1 token of 6: −∞" in hidden["mask"] and "has no mask" in seen["mask"]
    (row,) = re.findall('<tr class="more"><th>1 × padding</th>(.*?)</tr>', hidden["softmax"])
    assert row.endswith("<td>0.00000000</td>")
    made = made_explanation()
    for held, said in ((0.0, "0 is added"), (-0.0, "0 is added"), (0.5, "from 0 to 0.5 is added")):
        mask = np.zeros((3, 6))
        mask[:, 5] = held
        given = structs.replace(made.given, mask=as_packed(mask))
        told = lesson(replace(made, given=given))["mask"]
        assert told == f"<p>It hides none of the 6 tokens: {said}.</p>"


def test_an_edit_has_a_column():
    told = lesson(made_explanation(edited=True))
    assert "as edited" in told["softmax"]
    assert "as edited" not in lesson(made_explanation())["softmax"]


def test_the_experiment_without_the_root():
    """The width of a row is e to its entropy."""
    made = made_explanation(masked=False)
    p, other = made.attention.probabilities, made.attention.unscaled_probabilities
    spread = [math.exp(-sum(x * math.log(x) for x in row)) for row in (other, p)]
    said = lesson(made)["scaled"]
    assert f"{spread[0]:.2f} equal probabilities instead of {spread[1]:.2f}." in said
    assert "the softmax is sharper: " in said and max(other) < 0.999
    most = structs.replace(made.given, query=as_packed(20 * made.query))
    assert "the softmax saturates: " in lesson(replace(made, given=most))["scaled"]
    sure = structs.replace(made.given, query=as_packed(1000 * made.query))
    assert "looks the same without" in lesson(replace(made, given=sure))["scaled"]
    # A row that is nearly sure, of 3 parts in 4, is told of as others are.
    query, key = np.zeros((3, 4)), np.zeros((3, 6, 4))
    query[:, 0], key[:, 3, 0] = 2, math.log(15)
    given = structs.replace(made.given, query=as_packed(query), key=as_packed(key))
    nearly = replace(made, given=given)
    assert nearly.attention.probabilities.max() == pytest.approx(0.75, rel=1e-6)
    assert "looks the same without" not in lesson(nearly)["scaled"]


def test_what_scores_are_divided_by_and_the_products_that_make_one():
    made = made_explanation()
    assert "by √4 = 2.00000000" in lesson(made)["scaled"]
    other = replace(made, given=structs.replace(made.given, scale=0.25))
    assert "by 4.00000000" in lesson(other)["scaled"]
    token = max(made.about.tokens, key=lambda t: made.attention.scores[t])
    q, k = made.query[1], made.key[1, token]
    assert strip(q * k) in lesson(made)["scores"] and (q * k).sum() == pytest.approx(
        made.attention.scores[token]
    )
    assert ") / " not in lesson(made)["together"]  # nothing is divided by 1


def test_what_else_is_added():
    made = made_explanation()
    given = structs.replace(made.given, residual=as_packed(np.ones(10)), factor=2.0, bias=None)
    told = lesson(replace(made, given=given).with_added(made.joined + 1))["together"]
    assert "input) / 2" in told and "no bias" in told and "image prompt" in told


@pytest.mark.parametrize(("has", "said"), [(True, ' class="x"'), (False, "")])
def test_a_class_where_there_is_one(has, said):
    assert marked("x", has) == said
