"""The page of a result: one HTML file that shows where each word was read.

The file needs no server, network or framework. Its Content-Security-Policy forbids everything that
is not in the file. Text of a user is stored as JSON and shown as text. The page computes maps and
colours as `heedmap.maps` and `heedmap.figures` do, from the tables of `page.packing`.
"""

import base64
import hashlib
import html
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs
from PIL import Image

from heedmap.errors import as_sentence, format_number, plural
from heedmap.figures import overlays
from heedmap.figures.overlays import StepPictures
from heedmap.io.schemas import EditReport, returned, to_json
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.options import MASK_THRESHOLD
from heedmap.page.packing import as_script, pack
from heedmap.text.alignment import pair_words
from heedmap.text.prompts import is_content, untaught_warning
from heedmap.text.weights import parse_weights, token_weights
from heedmap.text.words import TokenTable

if TYPE_CHECKING:
    from heedmap.results.ablations import Ablation
    from heedmap.results.edits import EditResult
    from heedmap.results.runs import Run

LIMIT = 8_000_000
"""Bytes of a page."""
MASK_SIDE = 256  # the most pixels on the short side
_SCRIPTS = (
    "assets/maps",
    "assets/drawing",
    "assets/model",
    "assets/words",
    "assets/pictures",
    "assets/overview",
    "assets/controls",
)


def run_page(run: "Run", *, limit: int = LIMIT) -> str:
    """Return the page of a run, of at most `limit` bytes.

    If the maps do not fit, it shows windows of steps, or the mean over heads or steps.
    """
    return _page([run], run.settings.prompt, limit)


def pairs_page(
    pairs: Iterable[tuple[str, "EditResult"]],
    *,
    title: str = "",
    grid: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of edits: source and target side by side, wipe, difference, blend mask.

    Args:
        pairs: the label of each edit, such as "red ×2", and the edit.
        title: the title of the page. Default: the prompt of the last edit.
        grid: the labels of `columns`; and `rows`, each a label, None for the source, and the
            numbers of edits.
    """
    runs: list[Run] = []
    edits: list[dict[str, Any]] = []
    for label, pair in pairs:
        runs += [run for run in (pair.source, pair.edited) if run not in runs]
        blend = None
        if pair.blend is not None:
            blend = link(Image.fromarray(pair.blend), "png")
        edits.append(
            {
                "label": label,
                "source": runs.index(pair.source),  # edits of one source share its run
                "edited": runs.index(pair.edited),
                "blend": blend,
                **edit_summary(pair),
            }
        )
    return _page(
        runs,
        title or runs[-1].settings.prompt,
        pairs=edits,
        grid=grid,
    )


def ablation_page(ablation: "Ablation") -> str:
    """Return the page of an ablation: the image with and without the word, the heat, the change."""
    run = ablation.run
    table = run.maps.tokens
    pairs = [
        {
            "way": way,
            "words": _equal_words(table, other.maps.tokens),
            "why": ablation.verdict(way),
            "agreement": to_json(ablation.agreement[way]),
        }
        for way, other in ablation.without.items()
    ]
    matches = table.matches(ablation.word)
    numbers = [word.number for place in matches for word in place]
    return _page(
        [run, *ablation.without.values()],
        run.settings.prompt,
        pairs=pairs,
        ablation={"word": ablation.word, "numbers": numbers},
    )


def explanation_page(content: Mapping[str, Any], image: Image.Image) -> str:
    """Return the page of an explanation: the content of `explain.json`, and the image."""
    report = content["report"]
    x, y = report["at"]
    return assemble(
        "board/board",
        f"{report['word']} at {x},{y}",
        picture=link(overlays.to_rgb(image), "png", optimize=True),
        data=as_script(content),
    )


def frame(text: str) -> str:
    """Return a sandboxed frame that shows a page."""
    return (
        f'<iframe srcdoc="{html.escape(text)}" sandbox="allow-scripts allow-downloads" '
        f'allow="clipboard-write" title="heedmap" style="width:100%;height:900px;border:0">'
        "</iframe>"
    )


# --- documents --------------------------------------------------------------------------------


def assemble(name: str, title: str, *scripts: str, **parts: str) -> str:
    """Fill the template of a page with its style and scripts.

    Args:
        name: the path of its HTML, style and last script within this folder, without an ending.
        title: plain text.
        scripts: the paths of its other scripts, without an ending.
        parts: HTML, or JSON from `as_script`, in place of its name in two braces.
    """
    paths = ("assets/dom", *scripts, name)
    script = "".join(page_part(f"{path}.js") for path in paths)
    style = page_part("assets/base.css") + page_part(f"{name}.css")
    parts |= {
        "title": html.escape(title),
        "policy": f"default-src 'none'; img-src data: blob:; style-src {_source(style)}; "
        f"script-src {_source(script)}; base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
    }
    # In one pass: a part may contain braces.
    return re.sub(
        r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page_part(f"{name}.html")
    )


def _source(text: str) -> str:
    """Return the source of a style or script, as a policy allows it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page_part(name: str) -> str:
    """Read a file of a page by its path within this folder."""
    return resources.files("heedmap.page").joinpath(name).read_text(encoding="utf-8")


def link(image: Image.Image, kind: str, **options: Any) -> str:
    """Return an image as a data URL."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _page(
    runs: Sequence["Run"],
    title: str,
    limit: int = LIMIT,
    **content: Any,
) -> str:
    """Return a page of runs; `content` are the pairs, the grid or the ablation."""
    share = limit // len(runs)
    data: dict[str, Any] = {
        "runs": [
            {
                "size": run.image.size,
                "masks": masks_data(run.maps, share // 10),
                "steps": steps_data(run.step_pictures, share // 10),
                "references": [
                    link(reference.maps.sheet(), "webp") for reference in run.references
                ],
                "guide": to_json(run.guide_report),
                "guides": list(map(str, run.settings.guide)),
                "places": places_data(run.places),
                **picture_data(run.image, share // 2),
                **run_summary(run),
            }
            for run in runs
        ],
        "pairs": [],
        **content,
        "look": {
            "colours": {name: _colours(name) for name in overlays.COLORMAPS},
            "colour": overlays.COLORMAP,
            "signed": _colours(overlays.SIGNED),
            "opacity": overlays.OPACITY,
            "threshold": MASK_THRESHOLD,
            "light": overlays.LIGHT,
            "grey": overlays.GREY,
            "grey_several": overlays.GREY_SEVERAL,
            "hues": overlays.HUES,
        },
    }

    def page() -> str:
        return assemble("assets/page", title, *_SCRIPTS, data=as_script(data))

    budget = limit - len(page().encode()) - 700
    data["maps"] = pack([_recordings(run) for run in runs], budget)
    return page()


def _recordings(run: "Run") -> dict[str, Recording]:
    """Return the recordings of a run's prompts that have the layers and steps of the first."""
    first = run.maps.recording
    recordings = {"prompt": first}
    for name, maps in (("negative", run.negative_maps), ("concepts", run.concepts)):
        if maps is not None:
            other = maps.recording
            # A negative prompt has fewer if guidance was off.
            if (other.layers, other.timesteps) == (first.layers, first.timesteps):
                recordings[name] = other
    return recordings


def places_data(places: HeatMaps | None) -> list[dict[str, str]]:
    """Return the label of each place, and its overlay as a data URL."""
    if places is None:
        return []
    heats = [places.at(word.number) for word in places.words]
    return [
        {
            "label": heat.label,
            "picture": link(heat.overlay(), "webp"),
        }
        for heat in heats
    ]


def picture_data(image: Image.Image, budget: int) -> dict[str, Any]:
    """Return an image as a data URL, and whether it is exact: it is if it fits into the budget."""
    opaque = overlays.to_rgb(image)
    picture = link(opaque, "png", optimize=True)
    exact = len(picture) <= budget
    if not exact:
        picture = link(opaque, "webp", quality=90)
    return {"picture": picture, "exact": exact}


def masks_data(maps: HeatMaps, budget: int) -> list[dict[str, Any]]:
    """Return the soft mask of each phrase as an image, with the numbers of the phrase's words.

    There are none without refined maps, or if they do not fit into the budget.
    """
    if maps.recording.refined is None:
        return []
    part = min(1.0, MASK_SIDE / min(maps.recording.size))
    w, h = (round(part * side) for side in maps.recording.size)
    masks: list[dict[str, Any]] = []
    for words in maps.tokens.phrases:
        mask = overlays.resize_map(maps.at(words[0].number).soft_mask(), (w, h))
        image = Image.fromarray(np.rint(mask * 255).astype(np.uint8))
        numbers = [word.number for word in words]
        masks.append({"words": numbers, "picture": link(image, "png", optimize=True)})
    return masks if sum(len(mask["picture"]) for mask in masks) <= budget else []


def steps_data(steps: StepPictures | None, budget: int) -> dict[str, Any] | None:
    """Return a mosaic of the images of a run's steps; None if its URL does not fit the budget."""
    if steps is None:
        return None
    mosaic = steps.mosaic()
    picture = link(mosaic, "webp", quality=85)
    if len(picture) > budget:
        return None
    return {
        "picture": picture,
        "across": mosaic.width // steps.size[0],
        "size": steps.size,
        "shows": steps.shows,
    }


def _colours(name: str) -> str:
    ramp = overlays.colour(np.linspace(0, 1, 256)[None], name)
    return base64.b64encode(ramp.tobytes()).decode("ascii")


# --- texts and numbers ------------------------------------------------------------------------


def run_summary(run: "Run") -> dict[str, Any]:
    """Return the texts about a run.

    `shareOf` is the share that the maps hold; `model` is the option that `repeat` and `explain`
    need if the model had no name; `rest` is the word shown at first.
    """
    settings = run.settings
    share = run.maps.recording.share_of
    table = run.maps.tokens
    notes = [untaught_warning(settings.untaught or ())]
    if settings.nsfw_content_detected:
        notes.append("the safety checker replaced this image with black")
    weights: Mapping[int, float] = {}
    if settings.edit is None:
        weights = token_weights(parse_weights(settings.prompt).spans, table)
    return {
        "settings": to_json(settings),
        "model": "--model MODEL" if settings.model == settings.pipeline else "",
        "untaught": " ".join(map(as_sentence, filter(None, notes))),
        "shareOf": share,
        "weights": _by_word(table, weights),
        "rest": strongest_word(run.maps),
    }


def edit_summary(pair: "EditResult") -> dict[str, Any]:
    """Return the texts about an edit: its words and weights, its reason and its tables."""
    about = pair.report
    table = pair.edited.maps.tokens
    weights = _by_word(table, about.weights)
    parts = [
        f"“{table.words[number].text}” ×{format_number(weight)}"
        for number, weight in weights
    ]
    return {
        "words": _equal_words(pair.source.maps.tokens, table),
        "changed": to_json(about.words),
        "weights": weights,
        "why": as_sentence("; ".join([about.why, *parts])),
        "notes": [as_sentence(note) for note in about.notes or ()],
        "figures": edit_tables(about, blended=pair.blend is not None),
        "rest": strongest_word(pair.edited.maps, about.words.edited),
    }


def _equal_words(source: TokenTable, target: TokenTable) -> list[list[int]]:
    """Return the numbers of the words that correspond, in the source and in the target."""
    return [
        [a.number, b.number] for a, b in pair_words(source, target).pairs if a and b
    ]


def strongest_word(maps: HeatMaps, among: Collection[int] = ()) -> int | None:
    """Return the number of the content word whose map has the largest standard deviation.

    It is one of `among` if any of these is a content word; None if there are no words.
    """
    words = [word for word in maps.words if is_content(word.text)] or maps.words
    words = [word for word in words if word.number in among] or words
    return max(
        (word.number for word in words),
        key=lambda number: np.std(maps.at(number).values, dtype=float),
        default=None,
    )


def _by_word(
    table: TokenTable, by_token: Mapping[int, float]
) -> list[tuple[int, float]]:
    weights = [
        (word.number, by_token.get(word.tokens[0], 1.0)) for word in table.read_words
    ]
    return [(number, weight) for number, weight in weights if weight != 1]


def edit_tables(report: EditReport, *, blended: bool) -> dict[str, Any]:
    """Return the tables of an edit: the change of the image, and that of the attention."""
    region = "the mask" if blended else "the changed words"
    back = report.reconstruction
    rows = {
        "kind": report.kind,
        "purpose": report.purpose,
        "region from the maps of": report.masked_by,
        "your image": back and returned(back.psnr_db),
        "attention changed": f"{report.moved:.1%}",
        "attention edited (layers × steps)": plural(report.sites, "time"),
        "self-attention copied (layers × steps)": plural(report.self_sites, "time"),
    }
    changes: list[list[str]] = []
    for side, part in structs.asdict(report.change).items():
        row = [f"{side} of {region}", f"{part.share * 100:.0f}\u00a0%"]
        for name, form in (("mse", ".2g"), ("psnr_db", ".1f"), ("ssim", ".2f")):
            row.append(format_figure(getattr(part, name), form))
        changes.append(row)
    attention = [[name, text] for name, text in rows.items() if text is not None]
    return {"change": changes, "attention": attention}


def format_figure(value: float | None, form: str) -> str:
    """Write a figure of a table; a dash if it is not defined."""
    return "–" if value is None else format_number(value, form)
