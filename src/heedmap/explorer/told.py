"""What a page tells of runs and edits in words and numbers, as plain JSON types."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedmap.errors import ArgumentError, HeedmapError, as_sentence, plural, signed
from heedmap.explorer.shown import PairLike, RunLike
from heedmap.files.ablations import MARK, Trust
from heedmap.files.notes import to_json
from heedmap.files.reports import EditReport, Measures, returned
from heedmap.files.settings import Reweighted, Settings
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.stability import stability_said
from heedmap.text.alignment import pair_words
from heedmap.text.vocabulary import said_of
from heedmap.text.weights import parse_weights, token_weights
from heedmap.text.words import TokenTable


def weighted(pair: PairLike) -> list[list[float]]:
    """The words of the edit whose attention is multiplied: [number, weight]."""
    return _by_word(pair.edited.maps.tokens, pair.about.weights)


def written_weights(run: RunLike) -> list[list[float]]:
    """The same of a run that is no edit: what was written into its prompt, and its `Reweight`s.

    Nothing where the brackets were no weights, as in the prompt of somebody's own call.
    """
    table = run.maps.tokens
    if run.settings.edit is not None:
        return []
    try:
        asked = parse_weights(run.settings.prompt)
        by_token = token_weights(asked.spans, table) if asked.text == table.prompt else {}
        for edit in run.settings.edits:
            if isinstance(edit, Reweighted):
                told = dict.fromkeys(table.find(edit.word), edit.weight)
                by_token = {**by_token, **{t: by_token.get(t, 1.0) * w for t, w in told.items()}}
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


def what_was_done(pair: PairLike) -> str:
    """In one sentence, without full stop, what was changed and what was therefore done."""
    words = {word.number: word.text for word in pair.edited.maps.tokens.words}
    parts = []
    for number, weight in weighted(pair):
        parts.append(f"“{words[int(number)]}” draws {signed(weight)} times its attention")
    if not parts:
        return pair.about.why
    scaled = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return (
        f"all words are the same; {scaled}"
        if pair.about.kind == "reweight"
        else (f"{pair.about.why}; {scaled}")
    )


def correspondence(pair: PairLike) -> tuple[dict[str, Any], str]:
    """Which word stands for which, [source, edited] by number, and which were changed; the kind."""
    source, edited = pair.source.maps.tokens, pair.edited.maps.tokens
    try:
        aligned = pair_words(source, edited)
        matched, kind = [(a, b) for a, b in aligned.pairs if a and b], aligned.kind
    except ArgumentError:  # too long to be aligned: only equal numbers of equal words
        both = zip(source.words, edited.words, strict=False)
        matched, kind = [(a, b) for a, b in both if a.text == b.text], ""
    words = [[a.number, b.number] for a, b in matched]
    return {"words": words, "changed": to_json(pair.about.words)}, kind


def figures(about: EditReport, *, blended: bool) -> dict[str, Any]:
    """The evidence: rows of how much changed, and of what was done to the attention."""
    where = "the mask" if blended else "the changed words"
    change, back = about.change.sides(), about.reconstruction
    table = [[f"{side} of {where}", *_measured(part)] for side, part in change.items()]
    said = [
        ["how", about.kind],
        *([] if about.purpose is None else [["kind of edit", about.purpose]]),
        *([] if about.masked_by is None else [["mask of", about.masked_by]]),
        *([] if back is None else [["your picture", returned(back.psnr_db)]]),
        ["attention moved", f"{about.moved:.1%}"],
        ["acted (layers × steps)", plural(about.sites, "time")],
        ["self-attention from the source", plural(about.self_sites, "time")],
    ]
    return {"change": table, "said": said}


def _measured(change: Measures) -> list[str]:
    """How much a part of the picture changed, in words of a table."""
    values = (change.mse, ".2g"), (change.psnr_db, ".1f"), (change.ssim, "z.2f")
    said = ("–" if value is None else f"{value:{form}}" for value, form in values)
    return [f"{change.share * 100:.0f}\u00a0%", *said]


def trust(maps: HeatMaps, causes: Mapping[str, Trust]) -> list[dict[str, Any]]:
    """How far maps are to be trusted, where that is known: of which words, and how it is told.

    By their numbers, of their map as it is read and as it is refined: how stable it is over noises,
    or how far it agrees with what changes where nothing attends to them.
    """
    found = [
        {"words": [number], "kind": "stable", "read": stability_said(held), "refined": ""}
        for number, held in (maps.stability or {}).items()
    ]
    for called, told in causes.items():
        tokens, ways = {*maps.tokens.find(called)}, told.columns
        words = [word.number for word in maps.words if not tokens.isdisjoint(word.tokens)]
        read, refined = ("" if one is None else f"{MARK}{one}" for one in (ways.heat, ways.refined))
        said = {"read": read, "refined": refined, "called": called}
        found.append({"words": words, "kind": "cause", **said})
    return found


def rows(settings: Settings) -> list[list[str]]:
    """The settings as rows of a table; what is nested becomes a row each."""
    found: list[list[str]] = []
    for name, value in to_json(settings).items():
        if isinstance(value, Mapping):
            found += [[f"{name}: {key}", _said(inner)] for key, inner in value.items()]
        elif name == "size" and isinstance(value, list):
            found.append([name, "×".join(map(str, value))])
        elif name != "text" or value != settings.prompt:
            found.append([name, _said(value)])
    return [row for row in found if row[1]]


def untaught_said(settings: Settings) -> str:
    """Give the sentences for words that the model was not taught and for a black image."""
    black = "the safety checker replaced this image with black"
    said = [said_of(settings.untaught or ()), black if settings.nsfw_content_detected else ""]
    return " ".join(map(as_sentence, filter(None, said)))


def beneath_prompts(runs: Sequence[RunLike], notes: Iterable[str] = ()) -> set[str]:
    """What a page tells beneath the prompts that it opens with, as it was told while drawing.

    Words that were not read or not taught, and what an edit notes.
    """
    maps = [run.maps for run in runs]
    maps += [run.negative_maps for run in runs if run.negative_maps is not None]
    strange = [run.settings.untaught or () for run in runs]
    every = dict.fromkeys(word for words in strange for word in words)  # told in one sentence
    said = {*notes, *(one.tokens.unread for one in maps), *map(said_of, strange), said_of([*every])}
    return said - {""}


def own_picture(settings: Settings) -> str:
    """What a run has to do with a picture of a user's own: "located" in it, or "edited" from it."""
    return "located" if settings.located else "edited" if settings.given else ""


def _said(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(_bare(value), ensure_ascii=False)


def _bare(value: Any) -> Any:
    """A setting without what is only for machines: the bits of a mask."""
    if isinstance(value, Mapping):
        return {key: _bare(inner) for key, inner in value.items() if key != "packed"}
    return [_bare(one) for one in value] if isinstance(value, list) else value
