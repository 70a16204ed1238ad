"""Words and numbers that a page shows about runs and edits, as plain JSON types."""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from heedmap.errors import HeedmapError, as_sentence, plural, signed
from heedmap.io.reports import EditReport, Measures, returned
from heedmap.io.settings import Settings
from heedmap.io.values import to_json
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.selections import stability_said
from heedmap.text.alignment import pair_words
from heedmap.text.prompts import is_content, said_of
from heedmap.text.weights import parse_weights, token_weights
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair
    from heedmap.results.runs import Run


def run_summary(run: "Run") -> dict[str, Any]:
    """Return what a page says of a run.

    `own` is "located" or "edited" if the run uses a picture of the user's; `model` is the option
    that `repeat` and `explain` need if the model had no name; `rest` is shown at first.
    """
    settings = run.settings
    black = "the safety checker replaced this image with black"
    notes = [said_of(settings.untaught or ()), black if settings.nsfw_content_detected else ""]
    return {
        "settings": settings_rows(settings),
        "model": "--model MODEL" if settings.model == settings.pipeline else "",
        "untaught": " ".join(as_sentence(note) for note in notes if note),
        "own": "located" if settings.located else "edited" if settings.given else "",
        "weights": [] if settings.edit is not None else prompt_weights(run),
        "stability": {
            name: {number: stability_said(one) for number, one in maps.stability.items()}
            for name, maps in (("prompt", run.maps), ("concepts", run.concepts))
            if maps is not None and maps.stability
        },
        "rest": strongest_word(run.maps),
    }


def edit_summary(pair: "Pair") -> dict[str, Any]:
    """Return what a page says of an edit: its words and weights, its sentence and its tables."""
    about, table = pair.about, pair.edited.maps.tokens
    weights = _by_word(table, about.weights)
    matches = pair_words(pair.source.maps.tokens, table).pairs
    parts = [f"“{table.words[number].text}” ×{signed(weight)}" for number, weight in weights]
    return {
        "words": [[a.number, b.number] for a, b in matches if a and b],
        "changed": to_json(about.words),
        "weights": weights,
        "why": as_sentence("; ".join([about.why, *parts])),
        "notes": [as_sentence(note) for note in about.notes or ()],
        "figures": edit_tables(about, blended=pair.blend is not None),
        "rest": strongest_word(pair.edited.maps, about.words.edited),
    }


def strongest_word(maps: HeatMaps, among: Collection[int] = ()) -> int | None:
    """Return the number of the content word whose map has the largest standard deviation.

    It is one of `among` if any of these is a content word; None if there are no words.
    """
    words = [word for word in maps.words if is_content(word.text)] or maps.words
    numbers = [word.number for word in words if not among or word.number in among]
    numbers = numbers or [word.number for word in words]
    plain = maps.without_shared_scale()
    heats = {number: plain.at(number) for number in numbers}
    return max(numbers, key=lambda number: np.std(heats[number].values, dtype=float), default=None)


def prompt_weights(run: "Run") -> list[tuple[int, float]]:
    """List the weights that the pipeline read in a prompt as [word number, weight]."""
    table = run.maps.tokens
    try:
        parsed = parse_weights(run.settings.prompt)
    except HeedmapError:
        return []
    by_token = token_weights(parsed.spans, table) if parsed.text == table.prompt else {}
    return _by_word(table, by_token)


def _by_word(table: TokenTable, by_token: Mapping[int, float]) -> list[tuple[int, float]]:
    weights = [(word.number, by_token.get(word.tokens[0], 1.0)) for word in table.read_words]
    return [(number, weight) for number, weight in weights if weight != 1]


def edit_tables(report: EditReport, *, blended: bool) -> dict[str, Any]:
    """Return the tables of an edit: how much the image changed, and how the attention did."""
    where, back = "the mask" if blended else "the changed words", report.reconstruction
    sides = report.change.sides().items()
    rows = {
        "how": report.kind,
        "kind of edit": report.purpose,
        "mask of": report.masked_by,
        "your picture": None if back is None else returned(back.psnr_db),
        "attention moved": f"{report.moved:.1%}",
        "acted (layers × steps)": plural(report.sites, "time"),
        "self-attention from the source": plural(report.self_sites, "time"),
    }
    return {
        "change": [[f"{side} of {where}", *_measures(part)] for side, part in sides],
        "attention": [[name, text] for name, text in rows.items() if text is not None],
    }


def _measures(change: Measures) -> list[str]:
    values = (change.mse, ".2g"), (change.psnr_db, ".1f"), (change.ssim, "z.2f")
    texts = ("–" if value is None else f"{value:{form}}" for value, form in values)
    return [f"{change.share * 100:.0f}\u00a0%", *texts]


def settings_rows(settings: Settings) -> list[list[str]]:
    """List settings as table rows; each entry of a nested setting has its own row."""
    values = to_json(settings)
    values.pop("text", None)  # the prompt, without weights
    values["size"] = "×".join(map(str, values["size"]))
    rows: list[list[str]] = []
    for name, value in values.items():
        nested = value if isinstance(value, Mapping) else {"": value}
        rows += [[f"{name}: {key}" if key else name, _text(one)] for key, one in nested.items()]
    return [row for row in rows if row[1]]


def _text(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) < 1000 else f"{text[:1000]}…"  # a mask has many bits
