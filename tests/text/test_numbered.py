"""One of two equal words: "cat#2" is the second "cat", wherever a word is named."""

import numpy as np
import pytest
from making import same_pixels

import heedmap as hm
from heedmap.backends.prompts import prompt_table
from heedmap.errors import UnknownWordError
from heedmap.text.words import TokenTable

PROMPT = "a red cat, a blue cat and a cat"


@pytest.fixture(scope="module")
def table(random_model) -> TokenTable:
    return prompt_table(random_model, PROMPT)


@pytest.mark.parametrize(
    ("query", "numbers"),
    [("cat", (2, 5, 8)), ("cat#1", (2,)), ("CAT #2", (5,)), ('"cat#3"', (8,)), ("a#2", (3,))],
)
def test_a_number_names_one_place(table, query, numbers):
    found = [table.tokens_at(number) for number in numbers]
    assert table.find(query) == tuple(sorted(sum(found, ())))


@pytest.mark.parametrize("query", ["cat#4", "cat#0", "dog#1", "#2", "red cat#2"])
def test_a_place_that_there_is_not_is_unknown(table, query):
    with pytest.raises(UnknownWordError):
        table.find(query)


def test_the_text_of_the_prompt_comes_first(random_model):
    table = prompt_table(random_model, "cat#2 on cat and cat")
    assert [word.number for word in table.matches("cat#2")[0]] == [0, 1]
    assert table.find("cat#3") == table.tokens_at(5)


HOW = {"seed": 3, "steps": 2, "guidance": 3.0}


def test_a_numbered_word_is_edited_alone(random_model):
    run = hm.generate(random_model, PROMPT, edits=[hm.Reweight("cat#2", 0)], **HOW)
    assert run.maps["cat#2"].values.max() == 0 < run.maps["cat#1"].values.min()
    values = [run.maps[f"cat#{n}"].values for n in (1, 2, 3)]
    np.testing.assert_allclose(run.maps["cat"].values, sum(values), atol=1e-6)
    grid = hm.grid(random_model, PROMPT, weights={"cat#3": [0, 2]}, seeds=3, steps=2, guidance=3.0)
    assert [cell.result.edited.settings.prompt for cell in grid] == [
        f"a red cat, a blue cat and a (cat:{weight})" for weight in (0, 2)
    ]


def test_only_and_protect_name_one_place(random_model):
    pair = hm.edit(
        random_model,
        PROMPT,
        PROMPT.replace("blue cat", "blue dog"),
        only="cat#2->dog",
        protect=["cat#3"],
        **HOW,
    )
    assert pair.report.masked_by == "blue cat→blue dog"


def test_a_numbered_word_is_ablated_alone(random_model):
    edits = [hm.Reweight("cat#1", 2), hm.Confine("cat#3", (64, 0, 128, 128), along=["a#3"])]
    run = hm.generate(random_model, PROMPT, edits=edits, **HOW)
    found = hm.ablate(random_model, run, "cat#2", layers="up", steps=0)
    settings = found.without["prompt"].settings
    assert settings.prompt == "a red cat, a blue and a cat"
    assert settings.edits == ()  # their numbers may be those of other words now
    removal = hm.Reweight("cat#2", 0, layers="up", steps=0)
    expected = hm.generate(random_model, PROMPT, edits=[*edits, removal], **HOW)
    assert same_pixels(found.without["attention"].image, expected.image)
    assert same_pixels(found.run.image, run.image)
