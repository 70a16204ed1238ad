"""`heedmap layers`: the shapes that it prints, at any width."""

import json
import re
from dataclasses import asdict

import pytest

from cli.calling import bad, good
from heedmap.models import dimensions

CROSS = "{}.attentions.{}.transformer_blocks.0.attn2".format
NAMES = [
    CROSS("down_blocks.0", 0),
    CROSS("down_blocks.1", 0),
    CROSS("mid_block", 0),
    CROSS("up_blocks.1", 0),
    CROSS("up_blocks.1", 1),
    CROSS("up_blocks.2", 0),
    CROSS("up_blocks.2", 1),
]
SHORT = ["down 0.0", "down 1.0", "mid 0", "up 1.0", "up 1.1", "up 2.0", "up 2.1"]


def test_layers_prints_every_layer_and_follows_the_first(model):
    lines = good("layers").splitlines()
    assert lines[0].endswith(", 128×128 pixels: 7 layers of cross-attention")
    assert lines[1].split() == [
        *("layer", "grid", "heads", "Q,", "output", "K,", "V", "scores"),
        *("its", "name", "in", "the", "model"),
    ]
    rows = [line.split() for line in lines[2:9]]
    assert [" ".join(row[:2]) for row in rows] == SHORT
    assert [row[-1] for row in rows] == NAMES
    assert rows[0][2:-1] == ["16×16", "2×8", "256×16", "77×16", "256×77"]
    assert rows[2][2:-1] == ["4×4", "2×16", "16×32", "77×32", "16×77"]
    assert lines[11] == f"{SHORT[0]}: {NAMES[0]}"
    followed = [" ".join(line.split()) for line in lines[12:]]
    assert followed[0] == "made of shape"
    assert followed[3] == "Q = X·W_Q (256 × 16) · (16 × 16) 256 × 16"
    assert followed[4] == "K = E·W_K (77 × 32) · (32 × 16) 77 × 16"
    assert followed[9] == "S_h = Q_h·K_hᵀ/√8 (256 × 8) · (8 × 77) 256 × 77"
    assert followed[13] == "Y = O·W_O + b (256 × 16) · (16 × 16) 256 × 16"
    assert len(followed) == 14


def test_layers_of_another_size(model):
    lines = good("layers", "--size", "104x176", "--layer", "mid").splitlines()
    assert ", 104×176 pixels: " in lines[0]
    assert [line.split()[2] for line in lines[2:5]] == ["22×13", "11×7", "6×4"]
    assert lines[11] == f"mid 0: {NAMES[2]}"
    assert "hidden states of 6 × 4 places" in lines[13]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("up", NAMES[3:]),
        (NAMES[1], NAMES[1:2]),
        ("up 2.1", NAMES[6:]),
        ("*attentions.1*", NAMES[4::2]),
    ],
)
def test_layers_follows_those_that_are_asked_for(model, wanted, found):
    lines = good("layers", "--layer", wanted).splitlines()
    assert [line.split(": ")[1] for line in lines[10:] if line.endswith("attn2")] == found
    about = json.loads(good("layers", "--layer", wanted, "--json"))
    assert [layer["name"] for layer in about["layers"]] == found


def test_layers_json_is_one_object(model):
    about = json.loads(good("layers", "--json"))
    assert about["size"] == [128, 128]
    shapes = dimensions.layer_shapes(model)
    assert about["layers"] == json.loads(json.dumps([asdict(layer) for layer in shapes]))


@pytest.mark.parametrize("columns", [80, 120])
def test_layers_at_a_terminal_folds_nothing(model, monkeypatch, columns: int):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", good("layers", "--layer", "*")).splitlines()
    assert max(map(len, lines)) <= columns
    rows = [" ".join(line.split()[:2]) for line in lines if line.split()[2:] and "77×" in line]
    assert rows == SHORT
    assert ("its name in the model" in "".join(lines)) == (columns == 120)
    whole = [line for line in lines if line.endswith("attn2") and ": " in line]
    assert whole == [f"{short}: {name}" for short, name in zip(SHORT, NAMES, strict=True)]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--layer", "sideways"], "no layer fits --layer sideways: expected down, mid, up or "),
        (["--size", "100x100"], "multiples of 8"),
    ],
)
def test_layers_says_what_is_wrong(model, arguments, part):
    assert part in bad("layers", *arguments)
