"""`heedmap words`: the table that it prints, of any prompt."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from making import random_pixart

from cli.calling import bad, call, good, in_a_process
from heedmap.text.tokens import tokenize
from heedmap.text.words import TokenTable


def test_words_prints_the_table(model):
    said = good("words", "a red house")
    rows = [line.split() for line in said.splitlines()]
    assert rows[0] == ["#", "word", "tokens", "positions", "read"]
    assert rows[1] == ["0", "a", "a", "1", "yes"]
    assert rows[2] == ["1", "red", "r", "e", "d", "2,", "3,", "4", "yes"]
    assert rows[3] == ["2", "house", "house", "5", "yes"]
    assert said.splitlines()[4] == "5 tokens of the 75 that the model can read."
    assert len(rows) == 5


def test_words_says_what_is_not_read(model):
    said = good("words", "house " * 74 + "red tree")
    lines = said.splitlines()
    assert lines[75].split() == ["74", "red", "r", "75", "in", "part"]
    assert lines[76].split() == ["75", "tree", "-", "-", "no"]
    assert lines[-1].startswith("2 words of 'house house ")
    assert lines[-1].endswith(
        "are not read, since the model reads 75 tokens of a prompt: 'red' (in part) and 'tree', "
        "from word 74 on; shorten the prompt, or move the word towards its start."
    )


def plain(table: TokenTable) -> Any:
    about = json.loads(json.dumps(asdict(table)))
    return {**about, "words": [{**word, "weight": 1.0} for word in about["words"]]}


def test_words_reads_weights_as_a_drawing_does(model):
    said = good("words", r"a (red:1.5) house, (big (old:2):0.5) \(x\)").splitlines()
    assert [line.split() for line in said[:5]] == [
        ["#", "word", "tokens", "positions", "read", "weight"],
        ["0", "a", "a", "1", "yes", "1"],
        ["1", "red", "r", "e", "d", "2,", "3,", "4", "yes", "1.5"],
        ["2", "house", "house", "5", "yes", "1"],
        ["3", "big", "b", "i", "g", "7,", "8,", "9", "yes", "0.5"],
    ]
    assert said[5].split()[1] == "old" and said[5].split()[-1] == "1"
    about = json.loads(good("words", "a (red:1.5) house", "--json"))
    assert about["prompt"] == "a red house"
    assert [word["weight"] for word in about["words"]] == [1, 1.5, 1]
    assert "is not closed" in bad("words", "a (red:1.5 house")
    assert "has no effect: the model reads" in bad("words", "house " * 75 + "(tree:2)")


def test_words_json_is_the_table(model):
    prompt = 'a "red" house, 집 🏠'
    said = json.loads(good("words", prompt, "--json"))
    assert said == {**plain(tokenize(prompt, model.tokenizer)), "warnings": []}


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "   ",
        "\n\n",
        "🏠",
        "빨간 집",
        "house " * 1000,
        "'\"`$(rm)",
        "[red]a[/red]",
        "\x1b[31mred\x07",
    ],
)
def test_words_of_hostile_prompts(model, prompt: str):
    said = call("words", prompt).stdout
    assert set(said) - {"\n"} <= {c for c in said if c.isprintable()}
    assert json.loads(call("words", prompt, "--json").stdout)["prompt"] == prompt


def test_markup_in_a_prompt_is_text(model):
    asked = ("generate", "[red] house [/]", "--steps", 1, "--seed", 1, "--out", "[red]")
    said = call(*asked).stdout
    assert said.startswith("[red]\n")
    assert "where “red” acted" in said
    assert "\x1b" not in call("words", "[bold]house[/bold] \x1b[31m").output


def test_words_of_the_embedded_model(embedded):
    """The tokenizer that `words` uses alone is the pipeline's."""
    prompt = "a red house next to a blue tree"
    about = json.loads(good("words", prompt, "--json"))
    assert about == {**plain(tokenize(prompt, embedded.tokenizer)), "warnings": []}
    assert [word["text"] for word in about["words"]] == prompt.split()


def test_words_and_layers_of_a_transformer(desk: Path):
    model = str(desk / "patches")
    random_pixart().save_pretrained(model)

    def said(*arguments: str) -> str:
        done = in_a_process(*arguments, "--model", model)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    rows = [line.split() for line in said("words", "a Red house").splitlines()]
    assert rows[1] == ["0", "a", "a", "a", "0,", "1", "yes"]
    assert rows[2] == ["1", "Red", "R", "e", "d", "2,", "3,", "4", "yes"]
    assert rows[4][:5] == ["6", "tokens", "of", "the", "299"]
    found = json.loads(said("layers", "--size", "64x48", "--json"))["layers"]
    assert [layer["name"] for layer in found] == [f"transformer_blocks.{n}.attn2" for n in range(3)]
    assert {tuple(layer["grid"]) for layer in found} == {(3, 4)}
    assert {tuple(layer["masked"]) for layer in found} == {(299, 294)}


def test_words_says_which_the_embedded_model_was_not_taught():
    told = "'Horse' and 'robot' are not words that this model was taught: it does what it can"
    done = call("words", "a (Horse:1.5), a red robot house")
    assert done.exit_code == 0 and done.stderr == f"Warning: {told}\n"
    as_json = call("words", "a (Horse:1.5), a red robot house", "--json")
    assert json.loads(as_json.stdout)["warnings"] == [told]
