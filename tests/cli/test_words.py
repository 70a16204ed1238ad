"""`heedmap words`: the tokens of each word."""

from pathlib import Path

from making import random_pixart

from cli.calling import PROMPT, as_json, bad, call, good, in_a_process, misused
from heedmap.text.tokens import tokenize


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


def test_of_a_transformer_with_layers(desk: Path):
    random_pixart().save_pretrained(desk / "patches")
    done = in_a_process("words", "a Red house", "--model", "patches")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[2] == ["1", "Red", "R", "e", "d", "2,", "3,", "4", "yes"]
    found = as_json("layers", "--size", "64x48", "--model", "patches")["layers"]
    assert [layer["name"] for layer in found] == [f"transformer_blocks.{n}.attn2" for n in range(3)]
    assert {tuple(layer["grid"]) for layer in found} == {(3, 4)}


def test_no_prompt_and_no_model():
    misused("words")
    bad("words", "a house", "--model", "nonsense")
