"""`heedmap words` and `heedmap layers`: the tokens of a prompt, and the layers of a model."""

import json
from dataclasses import asdict

from cli.calling import PROMPT, error_of, invoke, run_command, run_json, usage_error_of
from heedmap.backends import layer_shapes
from heedmap.text.tokenization import tokenize


def test_json_is_the_librarys_table(embedded):
    prompt = "a red house next to a blue tree"
    found = run_json("words", prompt)
    table = tokenize(prompt, embedded.tokenizer)
    assert [word["text"] for word in found["words"]] == [word.text for word in table.words]
    assert [tuple(word["tokens"]) for word in found["words"]] == [
        word.tokens for word in table.words
    ]
    assert [token["text"] for token in found["tokens"]] == [one.text for one in table.tokens]


def test_words_prints_a_table(model):
    lines = run_command("words", "a (red:1.5) house").splitlines()
    assert lines[0].split() == ["#", "word", "tokens", "positions", "weight"]
    assert [line.split()[1] for line in lines[1:4]] == PROMPT.split()
    assert lines[2].split()[-1] == "1.5"


def test_unknown_words_of_the_embedded_model_give_a_warning():
    result = invoke("words", "a (Horse:1.5), a red robot house")
    assert result.exit_code == 0 and "'Horse'" in result.stderr and "'robot'" in result.stderr


def test_a_missing_prompt_or_model_is_refused():
    usage_error_of("words")
    error_of("words", "a house", "--model", "nonsense")


SHORT = ["down 0.0", "down 1.0", "mid 0", "up 1.0", "up 1.1", "up 2.0", "up 2.1"]


def test_layers_prints_every_layer(model):
    lines = run_command("layers").splitlines()
    assert "128×128 pixels" in lines[0]
    rows = [line.split() for line in lines[2:9]]
    assert [" ".join(row[:2]) for row in rows] == SHORT
    assert rows[0][2:] == ["16×16", "2×8", "256×16", "77×16", "256×77", "256×16"]


def test_json_has_the_shapes_at_another_size(model):
    found = run_json("layers", "--size", "104x176")
    shapes = layer_shapes.layer_shapes(model, size=(104, 176))
    assert found["layers"] == json.loads(json.dumps([asdict(layer) for layer in shapes]))


def test_sizes_that_the_model_cannot_draw_are_refused(model):
    error_of("layers", "--size", "100x100")
