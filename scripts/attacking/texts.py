"""Fuzzed texts, through everything that reads one: prompts, words, options, fields, selections.

Each case is a text and one reader, drawn by the case's number. One in some hundreds goes through a
verb of the command line as a whole, and one in a thousand is drawn by the embedded model.
"""

import random
import re
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer
from typer.testing import CliRunner

from attacking.findings import Trouble, Wrong, trouble
from attacking.wording import any_text, written
from heedmap import checks, cli
from heedmap.app import messages, numbers, options
from heedmap.cli import parsing, serving
from heedmap.drawing import edit_plans
from heedmap.files import schemas
from heedmap.files.values import MAX_PROMPT
from heedmap.files.writing import slug
from heedmap.maps.aims import aimed
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Layer, Recording
from heedmap.models import pipelines
from heedmap.text import alignment, prompts, tokens, weights
from heedmap.text.saved_tables import check_table
from heedmap.text.words import TokenTable

# What the command line tells as one sentence, and the app as a refusal.
FINE = (typer.BadParameter,)

Case = dict[str, Any]


# --- what texts are read with -----------------------------------------------------------------


@cache
def _table(prompt: str) -> TokenTable:
    return tokens.tokenize(prompt, pipelines.tokenizer())


PROMPTS = ("a red house, a cat on grass", "the 猫 don't 🏠 <my-cat> 1.5 Ünïcödé", "cat " * 90)


@cache
def _maps() -> HeatMaps:
    """Maps of three layers with steps and heads, of no picture."""
    import numpy as np

    table = _table(PROMPTS[0])
    names = ("down_blocks.0.attentions.0.attn2", "mid_block.attn2", "up_blocks.1.attn2")
    layers = tuple(Layer(name, 2, (4, 4)) for name in names)
    positions = tuple(range(len(table.words) + 3))
    arrays = tuple(np.full((3, 2, 16, len(positions)), 0.1, dtype=np.float32) for _ in layers)
    keep: Any = frozenset({"layer", "step", "head"})
    steps = (3.0, 2.0, 1.0)
    return HeatMaps(Recording(layers, arrays, keep, steps, positions, table, (4, 4), (32, 32)))


@cache
def _pipe() -> Any:
    import diffusers
    import torch
    import transformers

    import heedmap

    for library in (diffusers, transformers):  # they warn programmers of prompts that are too long
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
    torch.set_num_threads(1)  # several wait for one another, and waiting counts
    pipe = heedmap.load()
    pipe.set_progress_bar_config(disable=True)
    # What is loaded once is no text's time.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", heedmap.HeedmapWarning)  # one step changes almost nothing
        heedmap.edit(pipe, "a cat", "a dog", seed=0, steps=1, size=(32, 32)).explorer()
    return pipe


def _number(text: str) -> Any:
    """What Python has for a text: a whole number, a number, a text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return {"None": None, "true": True}.get(text, text)


# --- the readers ------------------------------------------------------------------------------


def _weights(text: str) -> None:
    parsed = weights.parse_weights(text)
    if "\ud800" not in text and len(parsed.text) < 3000:
        weights.token_weights(parsed.spans, _table.__wrapped__(parsed.text))


def _inner(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader behind a door that lets no longer text through than a prompt may be."""
    return lambda text: read(text[:MAX_PROMPT])


def _escaped(text: str) -> None:
    found = weights.parse_weights(weights.escape(text))
    if found.spans or found.text != text:
        raise Wrong("unequal", "escape: a text is not read back as it was", "weights.escape")


def _tokenized(text: str) -> None:
    table = _table.__wrapped__(text)
    if schemas.validated(asdict(table), TokenTable, "it") != table:
        raise Wrong("unequal", "table: not read back as it was", "saved_tables.check_table")
    check_table(table)
    if "".join(word.text for word in table.words) and table.prompt != text:
        raise Wrong("unequal", "prompt: another", "tokens.tokenize")


def _found(text: str) -> None:
    _table(PROMPTS[len(text) % 3]).find(text)


def _phrased(text: str) -> None:
    _table(PROMPTS[len(text) % 3]).phrase(text)


def _found_in_itself(text: str) -> None:
    table = _table.__wrapped__(text)
    table.matches(text[len(text) // 2 :])


def _swapped(text: str) -> None:
    source, target = _table(PROMPTS[0]), _table("a blue tree, a dog on grass")
    for before, after in alignment.swap_of(text):
        source.phrase(before)
        target.phrase(after)


def _aligned(text: str) -> None:
    alignment.pair_words(_table(PROMPTS[0]), _table.__wrapped__(text))


def _weighed(text: str) -> None:
    before, _, after = text.partition(" ")
    weights.weighed(weights.parse_weights(PROMPTS[0]), _table(PROMPTS[0]), {before: _number(after)})


def _sized(text: str) -> None:
    size = parsing.parse_size(text)
    pipelines.check_size(SimpleNamespace(vae_scale_factor=8), size)
    options.Limits().check_size(size)


def _windowed(text: str) -> None:
    for window in parsing.parse_windows(text):
        edit_plans.read_window(window, "cross")


def _edited(text: str) -> None:
    from heedmap.recording.edits import Confine, Reweight, edit_from, note_of, rules_of

    word, _, said = text.partition("=")
    value = _number(said or word)
    made = [
        lambda: Reweight("cat", value), lambda: Reweight(word, 2.0),
        lambda: Confine("cat", (0, 0, 16, 16), strength=value),
        lambda: Confine("cat", (0, 0, 16, 16), start=value, end=value),
        lambda: Confine("cat", (0, 0, 16, 16), along=value),
        lambda: Confine("cat", value), lambda: Confine("cat", (0, 0, value, 16)),
        lambda: Confine(*parsing.parse_box(text)),
    ][len(text) % 8]  # fmt: skip
    edit = made()
    again = edit_from(note_of(edit))
    if again is None or note_of(again) != note_of(edit):
        raise Wrong("unequal", "edit: not read back as it was", "word_edits.edit_from")
    rules_of(edit, _table(PROMPTS[0]), (32, 32))


def _windows_given(text: str) -> None:
    word, _, said = text.partition("=")
    value = _number(said)
    edit_plans.read_window(value, "cross")
    edit_plans.read_windows({word: (value, 1)})


def _selected(text: str) -> None:
    maps, value = _maps(), _number(text)
    ways: list[dict[str, Any]] = [
        {"layers": text}, {"layers": parsing.parse_names(text)}, {"steps": value},
        {"heads": value}, {"resolution": value}, {"timesteps": (value, 0)}, {"heads": [value]},
    ]  # fmt: skip
    how = ways[len(text) % len(ways)]
    maps.select(**how).at(0)


def _ranged(text: str) -> None:
    steps = parsing.parse_range(text)
    if parsing.parse_range(parsing.show_range(steps)) != steps:
        raise Wrong("unequal", "range: not read back as it was", "parsing.show_range")
    _maps().select(steps=steps)


def _aimed(text: str) -> None:
    """What `explain` is asked for, in each of its fields."""
    recording, value = _maps().recording, _number(text)
    ways: list[dict[str, Any]] = [
        {"word": text}, {"word": value}, {"layer": text}, {"head": value}, {"step": value},
        {"at": (value, 1)}, {"at": value}, {"layer": "mid 0", "head": value},
    ]  # fmt: skip
    asked: dict[str, Any] = {"word": "cat", "at": (1, 1), **ways[len(text) % len(ways)]}
    aimed(recording.table, recording, size=(32, 32), steps=3, **asked)


def _mapped(text: str) -> None:
    maps = _maps()
    maps[text].mask()
    maps.share(text)


def _field(text: str) -> None:
    for read in (numbers.whole_number, numbers.real_number):
        read(text, "the seed")
    checks.text("the prompt", text, most=options.MOST_LETTERS)


def _message(text: str) -> None:
    import json

    said = {"data": [text, [text], _number(text)], "fn_index": 1, "session_hash": text[:64]}
    body = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")
    messages.parsed(messages.Event, body)


def _raw_message(text: str) -> None:
    for schema in (messages.Event, messages.Cancel, messages.Reset):
        messages.parsed(schema, text.encode("utf-8", "surrogatepass"))


def _users(text: str) -> None:
    serving.parse_users(text.split(" "))


def _named(text: str) -> None:
    name = slug(text, 48)
    if "/" in name or name in ("", ".", "..") or len(name.encode()) > 200:
        raise Wrong("name", f"name: {name!r}", "saving.slug")
    prompts.is_content(text)


def _called(text: str) -> None:
    """Through a verb as a whole: one line on stderr and exit code 2, or a result."""
    if "\0" in text:
        return  # no program can be given one
    verbs = (
        ["words", text, "--json"], ["words", text], ["inspect", text], ["repeat", text],
        ["compare", text, text], ["generate", "a cat", "--size", text],
        ["generate", "a cat", "--confine", text, "--size", "3x3"], ["edit", text, "--size", "3x3"],
        ["edit", "a cat", "a dog", "--only", text, "--size", "3x3"],
        ["grid", "a cat", "--weight", text, "--size", "3x3"],
        ["generate", "a cat", "--keep", text, "--size", "3x3"], ["layers", "--size", text],
    )  # fmt: skip
    chosen = verbs[sum(map(ord, text)) % len(verbs)]
    with tempfile.TemporaryDirectory(prefix="attack-cli-") as scratch:
        if chosen[0] in ("generate", "edit"):
            chosen = [*chosen, "--steps", "1", "--out", str(Path(scratch) / "out")]
            place = chosen.index("--size") + 1
            sides = re.split("[x×]", chosen[place].lower())
            if len(sides) == 2 and all(re.fullmatch(r"\s*0*\d{1,4}\s*", side) for side in sides):
                chosen[place] = "3x3"  # else it would be drawn
        told = CliRunner().invoke(cli.app, chosen, catch_exceptions=True)
    if told.exception is not None and not isinstance(told.exception, SystemExit):
        raise told.exception
    if told.exit_code not in (0, 2):
        raise Wrong("sentence", f"exit code: {told.exit_code}", f"heedmap {chosen[0]}")
    *usage, last = told.stderr.rstrip("\n").split("\n")
    plain = last.startswith("Error: ") and (not usage or usage[0].startswith("Usage: "))
    if told.exit_code == 2 and (not plain or told.stdout):
        raise Wrong("sentence", f"lines: {told.stderr[:150]!r}", f"heedmap {chosen[0]}")


def _drawn(text: str) -> None:
    """Drawn as a prompt, as a negative one, and as what a picture shall become."""
    import heedmap as hm

    how: dict[str, Any] = {"seed": 0, "steps": 1, "size": (32, 32)}
    which = len(text) % 3
    if which == 0:
        hm.generate(_pipe(), text, **how).explorer()
    elif which == 1:
        hm.generate(_pipe(), "a cat", negative=text, branches={"negative"}, **how).explorer()
    else:
        hm.edit(_pipe(), "a red house", text, **how).explorer()


READERS: dict[str, Callable[[str], Any]] = {
    "weights": _weights, "escape": _inner(_escaped), "tokenize": _tokenized, "find": _found,
    "phrase": _phrased, "matches": _found_in_itself, "only": _swapped, "align": _aligned,
    "weigh": _weighed, "size": _sized, "windows": _windowed, "edits": _edited,
    "window": _windows_given, "select": _selected, "range": _ranged, "maps": _mapped,
    "field": _field, "message": _message, "body": _raw_message, "users": _users,
    "slug": _inner(_named), "split": _inner(prompts.split_words), "fold": _inner(prompts.fold),
    "keys": _inner(prompts.word_keys),
    "word window": parsing.parse_word_window, "strip": parsing.parse_strip,
    "numbers": parsing.parse_numbers, "names": parsing.parse_names, "over": parsing.parse_over,
    "pixel": parsing.parse_pixel, "aim": _aimed,
    "box": parsing.parse_box, "axes": parsing.parse_axes, "verb": _called, "draw": _drawn,
}  # fmt: skip
# How often each is drawn: most equally, those that take long seldom.
_SELDOM = {"verb": 0.04, "draw": 0.02}
_SLOW = {"tokenize": 0.5, "matches": 0.5, "align": 0.5, "select": 0.5, "maps": 0.3}


class Attack:
    """Tries cases.

    Args:
        seed: of the draw.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._names = list(READERS)
        self._often = [_SELDOM.get(name, _SLOW.get(name, 1.0)) for name in self._names]
        self.told = {"characters": 0, "drawn": 0, "verbs": 0}
        _table(PROMPTS[0])  # what is loaded once is nobody's fault

    def __call__(self, number: int) -> tuple[Case, list[Trouble]]:
        """The case of a number, and what is wrong with it."""
        chance = random.Random(f"{self._seed} {number}")
        (reader,) = chance.choices(self._names, self._often)
        case = {"reader": reader, "text": any_text(chance)}
        return case, self.attempt(case)

    def attempt(self, case: Case) -> list[Trouble]:
        """What is wrong with a case."""
        reader, text = case["reader"], written(case["text"])
        self.told["characters"] += len(text)
        self.told["drawn"] += reader == "draw"
        self.told["verbs"] += reader == "verb"
        if reader == "draw":
            _pipe()
        wrong = trouble(lambda: READERS[reader](text), reader, fine=FINE)
        return [] if wrong is None else [wrong]
