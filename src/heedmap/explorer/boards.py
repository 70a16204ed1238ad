"""The page of an explanation: a board on which one number is taken apart, step by step.

One HTML file that needs nothing else. All of it is written here, without a script; what is shown
stands in `explain.json`, which is in the page, too, to be downloaded.
"""

from collections.abc import Sequence
from html import escape

from PIL import Image

from heedmap.explorer.bars import Column, brief, digits, html_table
from heedmap.explorer.documents import as_script, document, link, page_part
from heedmap.explorer.lessons import Lesson, marked
from heedmap.figures import overlays
from heedmap.files.explanations import ExplanationFile, Shown
from heedmap.files.notes import to_json

_BY = {
    "asked": "as asked for",
    "kept": "where the word draws most here, of what the run kept, but no more than half",
    "drawn": "where the word draws most here at this step, but no more than half",
    "middle": "the middle step",
}
_CODE = """\
import base64, json, numpy as np

with open("explain.json", encoding="utf-8") as file:
    told = json.load(file)
given = {{name: np.frombuffer(base64.b64decode(held["float32"]), "<f4").reshape(held["shape"])
         for name, held in told["given"].items() if isinstance(held, dict)}}
q, k, v = (given[name][{head}].astype(float) for name in ("query", "key", "value"))
s = k @ q * told["given"]["scale"]{mask}
p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()      # told["shown"]["probabilities"]
o = {acted} @ v  # told["shown"]["output"]
w_o = given["weight"].T.astype(float)  # torch keeps W_O transposed
brought = np.linalg.norm({acted}[:, None] * v @ w_o[{rows}], axis=1)  # told["shown"]["brought"]
y = np.array(told["shown"]["joined"]) @ w_o{added}  # told["shown"]["together"]
y /= told["given"]["factor"]"""


def board(told: ExplanationFile, shown: Shown, image: Image.Image) -> str:
    """The page of an explanation.

    Args:
        told: what `explain.json` holds.
        shown: its numbers.
        image: the picture of the run.
    """
    return document(
        page_part("board/board.html"),
        f"{told.about.word} at {told.about.at[0]},{told.about.at[1]}",
        page_part("board/board.css"),
        page_part("board/board.js") + page_part("page/framed.js") + "bindFrame();\n",
        body=_Board(told, shown, image).body(),
        data=as_script(to_json(told)),
    )


class _Board:
    """The parts of a page, each a section."""

    def __init__(self, told: ExplanationFile, shown: Shown, image: Image.Image) -> None:
        self.told, self.shown, self.about, self.image = told, shown, told.about, image
        self.lesson = Lesson(told, shown)

    def body(self) -> str:
        """All of it."""
        boxes = "".join(
            f"<section><h2><i>{number}</i>{title}</h2>{inner}</section>"
            for number, (title, inner) in enumerate([self.place(), *self.lesson.sections()])
        )
        return f"{self.header()}<main>{boxes}</main>{self.every()}{self.again()}"

    # --- what is looked at ---

    def header(self) -> str:
        """The prompt, and the number in a sentence."""
        about, shown = self.about, self.shown
        p = sum(shown.acted[t] for t in about.tokens)
        most = max(range(len(shown.acted)), key=lambda t: shown.acted[t])
        rest = ""
        if most not in self.lesson.mine:
            token = escape(self.told.tokens[most].text)
            rest = f" Most goes to <bdi>{token}</bdi>: {brief(shown.acted[most])}."
        return (
            f'<header><h1>heedmap <span>· how a number comes about</span></h1><p class="prompt">'
            f'{self.prompt()}</p><p class="lead">At pixel {about.at[0]},{about.at[1]}, in head '
            f"{about.head} of {escape(about.short)}, at step {about.step} of 0–{about.steps - 1}, "
            f"<b>{digits(p)}</b> of the attention goes to <b>{escape(about.word)}</b>.{rest} Here "
            "is how that number comes about, in the order in which the model computes it.</p>"
            "</header>"
        )

    def prompt(self) -> str:
        """The prompt with the words marked that are meant, wherever they stand."""
        prompt, done, made = self.about.prompt, 0, ""
        for start, end in self.about.spans:
            # Words of a phrase are one mark, with the space between them.
            joins = made.endswith("</mark>") and not prompt[done:start].strip()
            before, rest = escape(prompt[done:start]), f"{escape(prompt[start:end])}</mark>"
            made = made.removesuffix("</mark>") + before if joins else f"{made}{before}<mark>"
            made, done = made + rest, end
        return made + escape(prompt[done:])

    def place(self) -> tuple[str, str]:
        """The picture with the place, and where in the model."""
        about = self.about
        (width, height), (h, w), (row, column) = about.size, about.grid, about.place
        x, y, cell_w, cell_h = column * width / w, row * height / h, width / w, height / h
        box = f'x="{x:g}" y="{y:g}" width="{cell_w:g}" height="{cell_h:g}"'
        dot = max(width, height) / 110
        picture = link(overlays.enlarge(self.image, short_side=1), "png", optimize=True)
        drawn = (
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="The picture, the place '
            f'marked"><image href="{picture}" width="{width}" height="{height}"/>'
            f'<rect class="casing" {box}/><rect class="cell" {box}/>'
            f'<circle cx="{about.at[0] + 0.5}" cy="{about.at[1] + 0.5}" r="{dot:g}"/></svg>'
        )
        number, many = about.passes
        passes = f"{number} of 0–{many - 1} within the step" if many > 1 else ""
        kept = (
            ""
            if about.kept is None
            else f"the run's own record is at most {about.kept:.1e} from it"
        )
        facts = [
            ("pixel", f"{about.at[0]},{about.at[1]} of {width}×{height}, from the upper left"),
            ("place", f"row {row}, column {column} of a grid of {h}×{w}, counted from 0"),
            ("layer", f"{about.short} ({about.layer})"),
            ("head", f"{about.head} of 0–{about.heads - 1}"),
            ("step", f"{about.step} of 0–{about.steps - 1}; timestep {about.timestep:g}"),
            ("pass", passes),
            ("branch", "the negative prompt" if about.branch == "negative" else ""),
            ("chosen", self.chosen()),
            ("as saved", kept),
            ("model", f"{about.model}, {about.dtype}, seed {about.seed}"),
        ]
        listed = "".join(f"<dt>{name}</dt><dd>{escape(said)}</dd>" for name, said in facts if said)
        warned = ""
        if about.changed:
            names = ", ".join(about.changed)
            warned = f'<p class="note">Not as the run noted it: {escape(names)}.</p>'
        return "The place", f'<div class="place">{drawn}<dl>{listed}</dl></div>{warned}'

    def chosen(self) -> str:
        """Why this layer, step and head."""
        by: dict[str, list[str]] = {}
        for axis, how in self.about.chosen.items():
            by.setdefault(how, []).append(axis)
        return "; ".join(f"{_listed(axes)} {_BY[how]}" for how, axes in by.items())

    # --- all of it ---

    def every(self) -> str:
        """All tokens, the padding too, with all their numbers."""
        shown = self.shown
        named = {
            "Q·K": shown.scores,
            "scaled": shown.scaled,
            "masked": shown.masked,
            "P": shown.probabilities,
            "P unscaled": shown.unscaled,
            "P as it acted": shown.acted,
            "‖P·V W_O‖": shown.brought,
            "of all heads": shown.all_brought,
        }
        columns = [Column(values, "digits") for values in named.values()]
        rows = [
            f"<tr{marked('mine', token.position in self.lesson.mine)}><th>{token.position} "
            f"<bdi>{escape(token.text)}</bdi></th>"
            + "".join(column.one(token.position) for column in columns)
            + "</tr>"
            for token in self.told.tokens
        ]
        return (
            f'<details class="all"><summary>All {len(self.told.tokens)} tokens, all numbers'
            f'</summary><div class="wide">{html_table(["token", *named], rows)}</div></details>'
        )

    def again(self) -> str:
        """How to compute it oneself."""
        h, given = self.about.head, self.told.given
        d_v = given.value.shape[-1]
        added = {"bias": given.bias, "residual": given.residual}
        code = _CODE.format(
            head=h,
            mask="" if given.mask is None else f' + given["mask"][{h}]',
            acted="p" if given.edited is None else f'given["edited"][{h}]',
            rows=f"{h * d_v}:{(h + 1) * d_v}",
            added="".join(f' + given["{name}"]' for name, held in added.items() if held),
        )
        return (
            '<div class="all"><h2>Compute it again</h2><p class="note">explain.json holds what the '
            "model had, in float32, and all that is shown here, computed of it in float64.</p>"
            f'<pre>{escape(code)}</pre><p><a id="download" class="get" download="explain.json" '
            "hidden>Download explain.json</a></p></div>"
        )


def _listed(names: Sequence[str]) -> str:
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last
