"""Words and numbers that a page shows about runs and edits, as plain JSON types."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heedmap.errors import ArgumentError, HeedmapError, as_sentence, plural, signed
from heedmap.io.reports import EditReport, Measures, returned
from heedmap.io.schemas import MARK, Trust
from heedmap.io.settings import Reweighted, Settings
from heedmap.io.values import to_json
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.selections import stability_said
from heedmap.text.alignment import pair_words
from heedmap.text.vocabulary import said_of
from heedmap.text.weights import parse_weights, token_weights
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair
    from heedmap.results.runs import Run


def edit_weights(pair: "Pair") -> list[list[float]]:
    """List the weighted words of an edit as [word number, weight]."""
    return _by_word(pair.edited.maps.tokens, pair.about.weights)


def prompt_weights(run: "Run") -> list[list[float]]:
    """List the weighted words of a run that is not an edit as [word number, weight].

    These are the weights written into the prompt, times those of its `Reweight` edits. There are
    none if the pipeline read the brackets as text.
    """
    table = run.maps.tokens
    if run.settings.edit is not None:
        return []
    try:
        parsed = parse_weights(run.settings.prompt)
        by_token = token_weights(parsed.spans, table) if parsed.text == table.prompt else {}
        for edit in run.settings.edits:
            if isinstance(edit, Reweighted):
                for token in {*table.find(edit.word)}:
                    by_token[token] = by_token.get(token, 1.0) * edit.weight
    except HeedmapError:
        return []
    return _by_word(table, by_token)


def _by_word(table: TokenTable, by_token: Mapping[int, float]) -> list[list[float]]:
    found: list[list[float]] = []
    for word in table.read_words:
        weights = {by_token.get(position, 1.0) for position in word.tokens}
        if len(weights) == 1 and weights != {1.0}:
            found.append([word.number, *weights])
    return found


def edit_summary(pair: "Pair") -> str:
    """Say in one sentence, without full stop, what an edit changed."""
    words = {word.number: word.text for word in pair.edited.maps.tokens.words}
    parts = [
        f"“{words[int(number)]}” draws {signed(weight)} times its attention"
        for number, weight in edit_weights(pair)
    ]
    if not parts:
        return pair.about.why
    weights = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    why = "all words are the same" if pair.about.kind == "reweight" else pair.about.why
    return f"{why}; {weights}"


def matching_words(pair: "Pair") -> dict[str, Any]:
    """Match the words of both prompts as [source, edited] numbers, and list the changed ones."""
    source, edited = pair.source.maps.tokens, pair.edited.maps.tokens
    try:
        matches = [(a, b) for a, b in pair_words(source, edited).pairs if a and b]
    except ArgumentError:  # too long to be aligned
        both = zip(source.words, edited.words, strict=False)
        matches = [(a, b) for a, b in both if a.text == b.text]
    words = [[a.number, b.number] for a, b in matches]
    return {"words": words, "changed": to_json(pair.about.words)}


def edit_tables(report: EditReport, *, blended: bool) -> dict[str, Any]:
    """Return the tables of an edit: how much the image changed, and how the attention did."""
    where = "the mask" if blended else "the changed words"
    back = report.reconstruction
    change = [
        [f"{side} of {where}", *_measures(part)] for side, part in report.change.sides().items()
    ]
    attention = [
        ["how", report.kind],
        *([] if report.purpose is None else [["kind of edit", report.purpose]]),
        *([] if report.masked_by is None else [["mask of", report.masked_by]]),
        *([] if back is None else [["your picture", returned(back.psnr_db)]]),
        ["attention moved", f"{report.moved:.1%}"],
        ["acted (layers × steps)", plural(report.sites, "time")],
        ["self-attention from the source", plural(report.self_sites, "time")],
    ]
    return {"change": change, "said": attention}


def _measures(change: Measures) -> list[str]:
    values = (change.mse, ".2g"), (change.psnr_db, ".1f"), (change.ssim, "z.2f")
    texts = ("–" if value is None else f"{value:{form}}" for value, form in values)
    return [f"{change.share * 100:.0f}\u00a0%", *texts]


def trust_notes(maps: HeatMaps, trust: Mapping[str, Trust]) -> list[dict[str, Any]]:
    """Describe how far maps can be trusted.

    Args:
        maps: the heat maps, with their stability where a picture was located.
        trust: the agreement of attention and cause by ablated word.

    Returns:
        For each word or phrase its word numbers, and a note for its map as read and as refined.
    """
    found = [
        {"words": [number], "kind": "stable", "read": stability_said(held), "refined": ""}
        for number, held in (maps.stability or {}).items()
    ]
    for phrase, agreement in trust.items():
        tokens, way = {*maps.tokens.find(phrase)}, agreement.columns
        words = [word.number for word in maps.words if not tokens.isdisjoint(word.tokens)]
        read, refined = ("" if one is None else f"{MARK}{one}" for one in (way.heat, way.refined))
        notes = {"read": read, "refined": refined, "called": phrase}
        found.append({"words": words, "kind": "cause", **notes})
    return found


def settings_rows(settings: Settings) -> list[list[str]]:
    """List settings as table rows; each entry of a nested setting has its own row."""
    found: list[list[str]] = []
    for name, value in to_json(settings).items():
        if isinstance(value, Mapping):
            found += [[f"{name}: {key}", _text(inner)] for key, inner in value.items()]
        elif name == "size" and isinstance(value, list):
            found.append([name, "×".join(map(str, value))])
        elif name != "text" or value != settings.prompt:
            found.append([name, _text(value)])
    return [row for row in found if row[1]]


def image_warnings(settings: Settings) -> str:
    """Return the sentences about words the model was not taught and about a blackened image."""
    black = "the safety checker replaced this image with black"
    said = [said_of(settings.untaught or ()), black if settings.nsfw_content_detected else ""]
    return " ".join(map(as_sentence, filter(None, said)))


def picture_use(settings: Settings) -> str:
    """Return "located" or "edited" if the run uses a picture of the user's, else ""."""
    return "located" if settings.located else "edited" if settings.given else ""


def model_option(settings: Settings) -> str:
    """Return the option that `repeat` and `explain` need if the model had no name."""
    return "--model MODEL" if settings.model == settings.pipeline else ""


def _text(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return (
        value if isinstance(value, str) else json.dumps(_without_masks(value), ensure_ascii=False)
    )


def _without_masks(value: Any) -> Any:
    """Remove the bits of masks from a setting."""
    if isinstance(value, Mapping):
        return {key: _without_masks(inner) for key, inner in value.items() if key != "packed"}
    return [_without_masks(one) for one in value] if isinstance(value, list) else value
