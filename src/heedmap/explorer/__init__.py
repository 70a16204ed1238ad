"""The page of a run: one HTML file that shows which word acted where, and needs nothing else.

    Path("index.html").write_text(explorer.page(run), encoding="utf-8")

No server, no network, no framework: pictures, maps, style and script are in the file, and its
Content-Security-Policy forbids all else. What a user typed goes in as JSON and reaches the page as
text alone. The page computes maps and colours as `heedmap.maps` and `heedmap.figures` do, from
the tables of `explorer.packing`, whose docstring says how exact they are.
"""

import base64
import hashlib
import html
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError
from heedmap.explorer.packing import pack
from heedmap.explorer.repeating import repeat_edit, repeat_run
from heedmap.figures import overlays
from heedmap.files.notes import to_json
from heedmap.files.reports import EditReport, Measures
from heedmap.files.settings import Settings
from heedmap.maps.heatmaps import HeatMaps
from heedmap.text.alignment import pair_words

__all__ = ["frame", "packing", "page", "pair_page", "pairs_page"]

LIMIT, SMALL_LIMIT = 8_000_000, 3_000_000
"""Bytes of a page; the smaller where no picture has more pixels than `SMALL`."""
SMALL = 256 * 256
_WEBP = 16_383  # pixels on a side, the most that WebP has
SANDBOX = "allow-scripts allow-downloads"
"""What a page may do in a frame: its own work, and nothing of what it is in."""
_OWN = 120_000  # bytes of a page beside its pictures and tables: script, style, settings
# In this order: what is computed, what is chosen, what is seen of it, and what begins it all.
_SCRIPTS = (
    *("resizing.js", "maps.js", "drawing.js", "outlines.js"),
    *("elements.js", "state.js", "legend.js"),
    *("words.js", "pins.js", "pointing.js", "figures.js", "edits.js"),
    *(
        "steps.js",
        "controls.js",
        "downloads.js",
        "repeating.js",
        "about.js",
        "framed.js",
        "start.js",
    ),
)


class RunLike(Protocol):
    """What a page shows of a run: what `heedmap.results.runs.Run` has."""

    @property
    def image(self) -> Image.Image:
        """The picture."""
        ...

    @property
    def maps(self) -> HeatMaps:
        """Its heat maps."""
        ...

    @property
    def settings(self) -> Settings:
        """What it was made with."""
        ...

    @property
    def negative_maps(self) -> HeatMaps | None:
        """The heat maps of the negative prompt."""
        ...


class PairLike(Protocol):
    """What a page shows of an edit: what `heedmap.results.pairs.Pair` has."""

    @property
    def source(self) -> RunLike:
        """The run of the source prompt."""
        ...

    @property
    def edited(self) -> RunLike:
        """The run of the edited prompt."""
        ...

    @property
    def about(self) -> EditReport:
        """How it was edited and what it did."""
        ...

    @property
    def blend(self) -> np.ndarray | None:
        """Bool (H, W) where the edit was let in."""
        ...


def page(run: RunLike, *, limit: int | None = None) -> str:
    """The page of a run.

    Args:
        run: what to show.
        limit: bytes that the page may take. Left out: 3 MB for a picture of up to 256×256 pixels, 8
            MB for a larger one. Where the maps do not fit, steps are told apart in windows, or
            heads and steps each averaged over the other, and the page says so.
    """
    return _written([run], [], limit, {})


def pair_page(pair: PairLike, *, limit: int | None = None) -> str:
    """The page of an edit: source and target side by side, wipe, difference, blend mask."""
    return pairs_page([("", pair)], limit=limit)


def pairs_page(labelled: Iterable[tuple[str, PairLike]], *, limit: int | None = None) -> str:
    """The page of several edits, with a strip of all of them to choose from.

    Args:
        labelled: each edit with what tells it from the others, such as "red ×2".
        limit: as in `page`, of the whole.
    """
    runs: list[RunLike] = []
    places: dict[int, int] = {}  # by identity: edits of one source share its run
    pairs: list[dict[str, Any]] = []
    kinds: dict[int, str] = {}
    for label, pair in labelled:
        if pair.source.image.size != pair.edited.image.size:
            sizes = f"{pair.source.image.size} and {pair.edited.image.size}"
            raise ArgumentError(f"the pictures of an edit are {sizes}: expected one size")
        for run in (pair.source, pair.edited):
            if id(run) not in places:
                places[id(run)] = len(runs)
                runs.append(run)
        matched, kind = _correspondence(pair)
        kinds[places[id(pair.edited)]] = kind
        pairs.append(
            {
                "label": label,
                "source": places[id(pair.source)],
                "edited": places[id(pair.edited)],
                **matched,
                "figures": _figures(pair.about, pair.blend is not None),
                "why": pair.about.why,
                "blend": None if pair.blend is None else _blend(pair.blend),
            }
        )
    if not pairs:
        raise ArgumentError("the page has no edits: expected at least one")
    return _written(runs, pairs, limit, kinds)


def frame(text: str = "", *, address: str = "", height: int = 900) -> str:
    """A page, by its text or its address, within another: shut off from it but for downloads."""
    source = f'src="{address}"' if address else f'srcdoc="{html.escape(text, quote=True)}"'
    return (
        f'<iframe {source} sandbox="{SANDBOX}" allow="clipboard-write" title="heedmap" '
        f'style="width:100%;height:{height:d}px;border:0"></iframe>'
    )


# --- the data ---------------------------------------------------------------------------------


def _written(
    runs: Sequence[RunLike],
    pairs: list[dict[str, Any]],
    limit: int | None,
    kinds: Mapping[int, str],
) -> str:
    """The page of runs and of how they belong together; `kinds` is by the number of a run."""
    small = all(run.image.width * run.image.height <= SMALL for run in runs)
    limit = limit or (SMALL_LIMIT if small else LIMIT)
    shown = _pictures([run.image for run in runs], limit // 2)
    views = sum(1 + (run.negative_maps is not None) for run in runs)
    said = [
        {"settings": _settings(run.settings), "repeat": _repeats(run, kinds.get(number))}
        for number, run in enumerate(runs)
    ]
    taken = sum(len(link) for link, _ in shown) + len(_json({"said": said}))
    budget = (limit - _OWN - taken) // views
    told = []
    for run, (link, exact), texts in zip(runs, shown, said, strict=True):
        views = [{"name": "prompt", **pack(run.maps.recording, budget)}]
        if run.negative_maps is not None:
            views.append({"name": "negative", **pack(run.negative_maps.recording, budget)})
        told.append(
            {"picture": link, "exact": exact, "size": list(run.image.size), "views": views, **texts}
        )
    data = {
        "runs": told,
        "pairs": pairs,
        "look": {
            "colours": {name: _colours(name) for name in overlays.COLORMAPS},
            "colour": overlays.COLORMAP,
            "opacity": overlays.OPACITY,
            "light": overlays.LIGHT,
            "grey": overlays.GREY,
            "grey_several": overlays.GREY_SEVERAL,
            "hues": overlays.HUES,
        },
    }
    return _assembled(runs[-1].settings.prompt, data)


def _pictures(images: Sequence[Image.Image], budget: int) -> list[tuple[str, bool]]:
    """Each picture as a data URL, and whether it is exact: not if together they are too large."""
    opaque = [overlays.enlarge(image, short_side=1) for image in images]
    links = [_link(image, "png", optimize=True) for image in opaque]
    if sum(map(len, links)) <= budget:
        return [(link, True) for link in links]
    for image in opaque:
        image.thumbnail((_WEBP, _WEBP))
    return [(_link(image, "webp", quality=90, method=4), False) for image in opaque]


def _link(image: Image.Image, kind: str, **options: Any) -> str:
    file = io.BytesIO()
    image.save(file, kind.upper(), **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _blend(mask: np.ndarray) -> dict[str, Any]:
    image = Image.fromarray(np.asarray(mask, dtype=bool))
    return {"picture": _link(image, "png", optimize=True), "share": float(np.mean(mask))}


def _colours(name: str) -> str:
    """The 256 colours of a colour map, as its bytes."""
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], name)
    return base64.b64encode(ramp.tobytes()).decode("ascii")


def _correspondence(pair: PairLike) -> tuple[dict[str, Any], str]:
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


def _figures(about: EditReport, blended: bool) -> dict[str, Any]:
    """The evidence: rows of how much changed, and what the rules did."""
    where = "the mask" if blended else "the changed words"
    change = about.change.sides()
    rows = [[f"{side} of {where}", *_measured(figures)] for side, figures in change.items()]
    said = [
        ["kind", about.kind],
        *([] if about.masked_by is None else [["mask of", about.masked_by]]),
        ["attention moved", f"{about.moved:.1%}"],
        ["sites of cross-attention", str(about.sites)],
        ["sites of self-attention", str(about.self_sites)],
    ]
    return {"change": rows, "said": said}


def _measured(figures: Measures) -> list[str]:
    """How much a part of the picture changed, in words of a table."""
    values = (figures.mse, ".2g"), (figures.psnr_db, ".1f"), (figures.ssim, ".2f")
    said = ("–" if value is None else f"{value:{form}}" for value, form in values)
    return [f"{figures.share * 100:.0f}\u00a0%", *said]


def _settings(settings: Settings) -> list[list[str]]:
    """The settings as rows of a table; what is nested becomes a row each."""
    rows: list[list[str]] = []
    for name, value in to_json(settings).items():
        if isinstance(value, Mapping):
            rows += [[f"{name}: {key}", _said(inner)] for key, inner in value.items()]
        elif name == "size" and isinstance(value, list):
            rows.append([name, "×".join(map(str, value))])
        elif name != "text" or value != settings.prompt:
            rows.append([name, _said(value)])
    return [row for row in rows if row[1]]


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


def _repeats(run: RunLike, kind: str | None) -> list[list[str]]:
    if run.settings.edit is None:
        return repeat_run(run.settings, negative=run.negative_maps is not None)
    return repeat_edit(run.settings, kind)


# --- the page ---------------------------------------------------------------------------------


def _assembled(title: str, data: Mapping[str, Any]) -> str:
    style = _part("page.css")
    script = '"use strict";\n' + "\n".join(_part(name) for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; img-src data: blob:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "policy": html.escape(policy, quote=False),
        "style": style,
        "data": _json(data),
        "script": script,
    }
    # In one pass, so that nothing inside of a part is taken for a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _part("page.html"))


def _json(data: Mapping[str, Any]) -> str:
    """JSON that no HTML parser can mistake for the end of its element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return resources.files(__name__).joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
