"""What Python calls its arguments, as it is typed: by the options that there are."""

import pytest
import typer

from heedmap import cli
from heedmap.cli import parsing, tongue
from heedmap.errors import ArgumentError, Either, Is, Named, Value, Written, sentence_of

VERBS = typer.main.get_command(cli.app).commands
TYPED = {opt for verb in VERBS.values() for one in verb.params for opt in one.opts}


def test_every_option_it_names_is_there():
    assert set(tongue.OPTIONS.values()) <= TYPED
    for name, option in tongue.OPTIONS.items():
        if name not in {"self_attention", "weights", "seeds", "swap", "pass_"}:
            assert option == "--" + name.replace("_", "-")


@pytest.mark.parametrize(
    ("part", "python", "typed"),
    [
        (Named("steps"), "steps", "--steps"),
        (Named("the seed"), "the seed", "--seed"),
        (Named("resolution"), "resolution", "resolution"),
        (Written("steps", slice(7, 9)), "steps=slice(7, 9, None)", "--steps 7:9"),
        (Written("steps", slice(7, 8)), "steps=slice(7, 8, None)", "--steps 7"),
        (Written("steps", slice(None, 8)), "steps=slice(None, 8, None)", "--steps :8"),
        (Written("keep", ["layer", "step"]), "keep=['layer', 'step']", "--keep layer,step"),
        (Written("heads", [0, 2]), "heads=[0, 2]", "--heads 0,2"),
        (Written("size", (512, 768)), "size=(512, 768)", "--size 512x768"),
        (Written("cross", (0.0, 0.8)), "cross=(0.0, 0.8)", "--cross 0.8"),
        (Written("self_attention", (0.2, 0.4)), "self_attention=(0.2, 0.4)", "--self 0.2:0.4"),
        (Written("only", "cat->dog"), "only='cat->dog'", "--only 'cat->dog'"),
        (Written("scale", "word"), "scale='word'", "--scale word"),
        (Is("steps", 0), "steps is 0", "--steps is 0"),
        (Is("the seed", -1), "the seed is -1", "--seed is -1"),
        (Is("guidance", 1.5), "guidance is 1.5", "--guidance is 1.5"),
        (Is("device", "tpu"), "device is 'tpu'", "--device is 'tpu'"),
        (Is("--keep", ["time"]), "--keep is ['time']", "--keep is time"),
        (Is("protect", []), "protect is []", "--protect is ''"),
        (Is("the weight of 'red'", 1e9), "the weight of 'red' is 1000000000.0",
         "the weight of 'red' is 1e+09"),
        (Value("cross", (0.0, 0.5)), "(0.0, 0.5)", "0.5"),
        (Either("hm.repeat(pipe)", "--model"), "hm.repeat(pipe)", "--model"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_a_part_of_a_sentence_in_both_tongues(part, python: str, typed: str):
    error = ArgumentError("pass ", part, ": it helps")
    assert str(error) == f"pass {python}: it helps"
    assert sentence_of(error.said, tongue.TYPED) == f"pass {typed}: it helps"


def test_what_is_shown_is_read_back_as_it_was():
    """Typed as shown, an option has the value that the sentence is about."""
    for text, name, read in (
        ("7:9", "steps", parsing.parse_range),
        ("7", "steps", parsing.parse_range),
        ("-1", "steps", parsing.parse_range),
        ("-3:", "steps", parsing.parse_range),
        ("512x768", "size", parsing.parse_size),
        ("0.8", "cross", parsing.parse_window),
        ("0.2:0.8", "cross", parsing.parse_window),
        ("0.2,0.4:0.6,1", "cross", parsing.parse_windows),
        ("0,2", "heads", parsing.parse_numbers),
        ("up,mid", "layers", parsing.parse_names),
        ("layer,step", "keep", parsing.parse_axes),
    ):
        value = read(text)
        said = sentence_of([Written(name, value)], tongue.TYPED)
        option, _, shown = said.partition(" ")
        assert option == tongue.OPTIONS[name] and read(shown) == value


def test_it_is_bounded_and_shows_no_control_characters():
    said = sentence_of([Written("layers", ["x" * 10_000])], tongue.TYPED)
    assert len(said) < 120
    said = sentence_of([Is("device", "\x1b[31m" * 100)], tongue.TYPED)
    assert len(said) < 400 and said.isprintable()
