"""The page of an explanation, which shows how one number is computed.

It is one HTML file. The page also holds `explain.json`, which can be downloaded from it.
"""

from collections.abc import Sequence
from html import escape

from PIL import Image

from heedmap.figures import overlays
from heedmap.io.explanations import ExplanationFile, Shown
from heedmap.io.notes import to_json
from heedmap.page.bars import Column, brief, digits, html_table
from heedmap.page.documents import as_script, document, link, page_part
from heedmap.page.lessons import Lesson, marked

_BY = {
    "asked": "given",
    "kept": "in which the word draws most here, but no more than half, in the saved maps",
    "drawn": "in which the word draws most here, but no more than half, at this step",
    "middle": "the middle step",
}
_CODE = """\
import base64, json, numpy as np

with open("explain.json", encoding="utf-8") as file:
    content = json.load(file)
given = {{name: np.frombuffer(base64.b64decode(held["float32"]), "<f4").reshape(held["shape"])
         for name, held in content["given"].items() if isinstance(held, dict)}}
q, k, v = (given[name][{head}].astype(float) for name in ("query", "key", "value"))
s = k @ q * content["given"]["scale"]{mask}
p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()      # content["shown"]["probabilities"]
o = {acted} @ v  # content["shown"]["output"]
w_o = given["weight"].T.astype(float)  # torch keeps W_O transposed
brought = np.linalg.norm({acted}[:, None] * v @ w_o[{rows}], axis=1)  # content["shown"]["brought"]
y = np.array(content["shown"]["joined"]) @ w_o{added}  # content["shown"]["together"]
y /= content["given"]["factor"]"""


def board(content: ExplanationFile, shown: Shown, image: Image.Image) -> str:
    """Return the page of an explanation.

    Args:
        content: the content of `explain.json`.
        shown: the numbers computed from it.
        image: the image of the run.
    """
    return document(
        page_part("board/board.html"),
        f"{content.about.word} at {content.about.at[0]},{content.about.at[1]}",
        page_part("board/board.css"),
        page_part("board/board.js") + page_part("assets/framed.js") + "bindFrame();\n",
        body=_Board(content, shown, image).body(),
        data=as_script(to_json(content)),
    )


class _Board:
    """The parts of the page."""

    def __init__(self, content: ExplanationFile, shown: Shown, image: Image.Image) -> None:
        self.content, self.shown, self.about, self.image = content, shown, content.about, image
        self.lesson = Lesson(content, shown)

    def body(self) -> str:
        """Return the whole body."""
        boxes = "".join(
            f"<section><h2><i>{number}</i>{title}</h2>{inner}</section>"
            for number, (title, inner) in enumerate([self.place(), *self.lesson.sections()])
        )
        return f"{self.header()}<main>{boxes}</main>{self.every()}{self.again()}"

    # --- what is looked at ---

    def header(self) -> str:
        """Return the prompt, and the number in a sentence."""
        about, shown = self.about, self.shown
        p = sum(shown.acted[t] for t in about.tokens)
        most = max(range(len(shown.acted)), key=lambda t: shown.acted[t])
        rest = ""
        if most not in self.lesson.mine:
            token = escape(self.content.tokens[most].text)
            rest = f" Most goes to <bdi>{token}</bdi>: {brief(shown.acted[most])}."
        return (
            f'<header><h1>heedmap <span>· how a number is computed</span></h1><p class="prompt">'
            f'{self.prompt()}</p><p class="lead">At pixel {about.at[0]},{about.at[1]}, in head '
            f"{about.head} of {escape(about.short)}, at step {about.step} of 0–{about.steps - 1}, "
            f"<b>{digits(p)}</b> of the attention goes to <b>{escape(about.word)}</b>.{rest} The "
            "sections show how the model computes that number, in order.</p>"
            "</header>"
        )

    def prompt(self) -> str:
        """Return the prompt with the explained words marked."""
        prompt, done, made = self.about.prompt, 0, ""
        for start, end in self.about.spans:
            # Adjacent words share one mark.
            joins = made.endswith("</mark>") and not prompt[done:start].strip()
            before, rest = escape(prompt[done:start]), f"{escape(prompt[start:end])}</mark>"
            made = made.removesuffix("</mark>") + before if joins else f"{made}{before}<mark>"
            made, done = made + rest, end
        return made + escape(prompt[done:])

    def place(self) -> tuple[str, str]:
        """Return the image with the position marked, and facts about the layer and step."""
        about = self.about
        (width, height), (h, w), (row, column) = about.size, about.grid, about.place
        x, y, cell_w, cell_h = column * width / w, row * height / h, width / w, height / h
        box = f'x="{x:g}" y="{y:g}" width="{cell_w:g}" height="{cell_h:g}"'
        dot = max(width, height) / 110
        picture = link(overlays.enlarge(self.image, short_side=1), "png", optimize=True)
        drawn = (
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="The image, with the '
            f'position marked"><image href="{picture}" width="{width}" height="{height}"/>'
            f'<rect class="casing" {box}/><rect class="cell" {box}/>'
            f'<circle cx="{about.at[0] + 0.5}" cy="{about.at[1] + 0.5}" r="{dot:g}"/></svg>'
        )
        number, many = about.passes
        passes = f"{number} of 0–{many - 1} within the step" if many > 1 else ""
        kept = "" if about.kept is None else f"the saved maps differ by at most {about.kept:.1e}"
        facts = [
            ("pixel", f"{about.at[0]},{about.at[1]} of {width}×{height}, from the upper left"),
            ("position", f"row {row}, column {column} of a grid of {h}×{w}, counted from 0"),
            ("layer", f"{about.short} ({about.layer})"),
            ("head", f"{about.head} of 0–{about.heads - 1}"),
            ("step", f"{about.step} of 0–{about.steps - 1}; timestep {about.timestep:g}"),
            ("pass", passes),
            ("branch", "the negative prompt" if about.branch == "negative" else ""),
            ("chosen", self.chosen()),
            ("saved maps", kept),
            ("model", f"{about.model}, {about.dtype}, seed {about.seed}"),
        ]
        listed = "".join(f"<dt>{name}</dt><dd>{escape(said)}</dd>" for name, said in facts if said)
        warned = ""
        if about.changed:
            names = ", ".join(about.changed)
            warned = f'<p class="note">Settings that differ from the run: {escape(names)}.</p>'
        return "The position", f'<div class="place">{drawn}<dl>{listed}</dl></div>{warned}'

    def chosen(self) -> str:
        """Say how the layer, step and head were chosen."""
        by: dict[str, list[str]] = {}
        for axis, how in self.about.chosen.items():
            by.setdefault(how, []).append(axis)
        return "; ".join(f"{_listed(axes)} {_BY[how]}" for how, axes in by.items())

    # --- all of it ---

    def every(self) -> str:
        """Return a table of all tokens, with all numbers."""
        shown = self.shown
        named = {
            "Q·K": shown.scores,
            "scaled": shown.scaled,
            "masked": shown.masked,
            "P": shown.probabilities,
            "P unscaled": shown.unscaled,
            "P after edits": shown.acted,
            "‖P·V W_O‖": shown.brought,
            "of all heads": shown.all_brought,
        }
        columns = [Column(values, "digits") for values in named.values()]
        rows = [
            f"<tr{marked('mine', token.position in self.lesson.mine)}><th>{token.position} "
            f"<bdi>{escape(token.text)}</bdi></th>"
            + "".join(column.one(token.position) for column in columns)
            + "</tr>"
            for token in self.content.tokens
        ]
        return (
            f'<details class="all"><summary>All {len(self.content.tokens)} tokens, all numbers'
            f'</summary><div class="wide">{html_table(["token", *named], rows)}</div></details>'
        )

    def again(self) -> str:
        """Return Python that computes the numbers."""
        h, given = self.about.head, self.content.given
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
            '<div class="all"><h2>Compute it again</h2><p class="note">explain.json holds the '
            "inputs of the layer in float32, and the numbers of this page in float64.</p>"
            f'<pre>{escape(code)}</pre><p><a id="download" class="get" download="explain.json" '
            "hidden>Download explain.json</a></p></div>"
        )


def _listed(names: Sequence[str]) -> str:
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last
