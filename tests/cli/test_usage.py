"""What is typed that no verb can read: one sentence, with the nearest, however long it is."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from cli.calling import bad, call
from heedmap.cli.verbs import app

LETTERS = "x" * 50_000
VERBS = [one.name or one.callback.__name__ for one in app.registered_commands if one.callback]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["draw"], "there is no verb 'draw': `heedmap --help` lists them"),
        (["genrate", "a"], "there is no verb 'genrate': did you mean generate?"),
        (["grids"], "there is no verb 'grids': did you mean grid?\n"),  # "words" is not as near
        (["gen", "a"], "there is no verb 'gen': did you mean generate?"),
        (["e", "a"], "there is no verb 'e': did you mean edit or explain?"),
        ([""], "there is no verb '': `heedmap --help` lists them"),
        (["#"], "there is no verb '#': `heedmap --help` lists them"),
        (["--foo"], "`heedmap` has no option --foo: `heedmap --help` lists them; a text that beg"),
        (["--verison"], "`heedmap` has no option --verison: did you mean --version?"),
        (["generate", "a", "--sedd", "1"], "`heedmap generate` has no option --sedd: did you mean"),
        (["generate", "--sedd=1"], "has no option --sedd: did you mean --seed?"),
        (["generate", "-a cat"], "has no option -a: `heedmap generate --help` lists them; a text"),
        (["generate", "a", "--over", "steps"], "has no option --over: `heedmap inspect` has one"),
        (["inspect", "x", "--step", "3"], "has no option --step: did you mean --steps?"),
        (["explain", "x", "--layers", "up"], "has no option --layers: did you mean --layer?"),
        (["generate", "a", "--seeds", "3"], "has no option --seeds: did you mean --seed?"),
        (["edit", "a", "b", "--weight", "a=1"], "has no option --weight: `heedmap grid` has one"),
        (["edit", "a", "--count", "2"], "--count: `heedmap generate` and `heedmap grid` have one"),
        (["edit", "a", "b", "--cross", "0,1"], "such as 0.8; `heedmap grid` draws several\n"),
        (["inspect", "run", "house"], "for each text, and a word to look at after --word\n"),
        (["generate", "a", "red", "house"], "'red' is more than `heedmap generate` takes: put the"),
        (["generate", "red", "house"], "into one pair of quotation marks, and call it once for"),
        (["inspect"], "RUN is missing: expected the folder of a saved run; `heedmap inspect"),
        (["explain", "x", "--at", "1,2"], "--word is missing: expected a word, a phrase, or #N"),
        (["edit"], "SOURCE is missing: expected the prompt that is edited; `heedmap edit --help`"),
        (["generate", "a", "--seed"], "--seed has no value: expected one behind it"),
        (["generate", "a", "--force=1"], "--force has a value: expected none behind it"),
        (["generate", "a", "-q=1"], "has no option -=: "),
        (["generate", "a", "--seed", "1_0"], "--seed is '1_0': expected a whole number"),
        (["generate", "a", "--seed", "\u0661"], "--seed is '\u0661': expected a whole number"),
        (["generate", "a", "--guidance", "1_0"], "--guidance is '1_0': expected a finite number"),
        (["app", "--port", "7_860"], "--port is '7_860': expected a whole number from 0 to 65535"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)  # fmt: skip
def test_what_nobody_can_read(arguments: list[str], sentence: str):
    assert sentence in bad(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [LETTERS],
        [f"--{LETTERS}"],
        ["generate", "a", f"--{LETTERS}"],
        ["generate", "a", "--seed", LETTERS],
        ["generate", "a", "--size", LETTERS],
        ["generate", "a", "--keep", f"layer,{LETTERS}"],
        ["generate", "a", "--device", LETTERS],
        ["generate", "a", LETTERS],
        ["generate", "a", "--confine", LETTERS],
        ["edit", "a", "b", "--words", f"{LETTERS}=0.3", "--words", f"{LETTERS}=0.3"],
        ["grid", "a", "--weight", f"{LETTERS}=1", "--weight", f"{LETTERS}=2"],
        ["inspect", LETTERS],
        ["inspect", "x", "--heads", LETTERS],
        ["repeat", LETTERS],
        ["compare", LETTERS, LETTERS],
        ["words", "a", "--model", LETTERS],
        ["generate", "a", "--out", LETTERS],
        ["app", "--name", LETTERS],
        ["app", "--port", LETTERS],
    ],
    ids=lambda arguments: " ".join(text[:12] for text in arguments),
)
def test_what_is_echoed_is_bounded(arguments: list[str]):
    assert len(bad(*arguments)) < 500


def test_help_cuts_nothing_off_and_names_no_types_of_python():
    told = call("--help").stdout.split("Commands:")[1]
    assert "..." not in told  # no line of a verb is cut off
    verbs = [line.split()[0] for line in told.splitlines() if line.strip()]
    assert len(verbs) == 13
    for verb in verbs:
        told = call(verb, "--help").stdout
        assert not any(sign in told for sign in ("<str>", "<Path>", "<list", "{", "}")), verb


@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_as_wide_as_the_terminal(columns: int):
    told = subprocess.run(
        [sys.executable, "-m", "heedmap.cli", "generate", "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": str(columns)},
    ).stdout  # fmt: skip
    assert columns - 10 < max(map(len, told.splitlines())) <= columns


def test_help_comes_before_what_is_missing():
    for arguments in (["generate", "--help"], ["inspect", "-h"], ["compare", "--help"]):
        result = call(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_broken_between_words_alone(verb: str, monkeypatch: pytest.MonkeyPatch):
    said: dict[int, list[str]] = {}
    for width in (60, 80, 120, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        told = io.StringIO()
        with redirect_stdout(told), pytest.raises(SystemExit):
            app([*verb.split(), "--help"], prog_name="heedmap")
        assert max(map(len, told.getvalue().splitlines())) <= width
        said[width] = told.getvalue().split()
    assert said[60] == said[80] == said[120] == said[400]
    assert "..." not in " ".join(said[60]).partition("Commands:")[2]
