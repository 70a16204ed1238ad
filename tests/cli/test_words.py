"""`heedmap words`: the tokens of each word."""

from cli.calling import PROMPT, as_json, bad, call, good, misused
from heedmap.text.words import tokenize


def test_json_is_the_table_of_the_library(embedded):
    prompt = "a red house next to a blue tree"
    found = as_json("words", prompt)
    table = tokenize(prompt, embedded.tokenizer)
    assert [word["text"] for word in found["words"]] == [word.text for word in table.words]
    assert [tuple(word["tokens"]) for word in found["words"]] == [
        word.tokens for word in table.words
    ]
    assert [token["text"] for token in found["tokens"]] == [one.text for one in table.tokens]


def test_a_table(model):
    lines = good("words", "a (red:1.5) house").splitlines()
    assert lines[0].split() == ["#", "word", "tokens", "positions", "read", "weight"]
    assert [line.split()[1] for line in lines[1:4]] == PROMPT.split()
    assert lines[2].split()[-1] == "1.5"
    assert "weight" not in good("words", PROMPT)


def test_words_past_the_limit(model):
    found = as_json("words", "house " * 74 + "red tree")
    assert found["words"][-1]["missing"]
    lines = good("words", "house " * 74 + "red tree").splitlines()
    assert any(line.split()[-1] == "no" for line in lines[1:-2])


def test_words_that_the_embedded_model_does_not_know():
    result = call("words", "a (Horse:1.5), a red robot house")
    assert result.exit_code == 0 and "'Horse'" in result.stderr and "'robot'" in result.stderr
    (warning,) = as_json("words", "a (Horse:1.5), a red robot house")["warnings"]
    assert result.stderr == f"Warning: {warning}\n"


def test_no_prompt_and_no_model():
    misused("words")
    bad("words", "a house", "--model", "nonsense")
