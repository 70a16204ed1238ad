"""The lesson of a board: from a query and keys to what the layer puts out, a section each."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from heedmap.errors import plural
from heedmap.explorer.bars import Column, bar, brief, digits, html_table, strip
from heedmap.files.explanations import ExplanationFile, Shown, as_array

_SURE = 0.999  # from which share on a row is one token's


class Lesson:
    """The steps in which a number comes about.

    Args:
        told: what `explain.json` holds.
        shown: its numbers.
    """

    def __init__(self, told: ExplanationFile, shown: Shown) -> None:
        self.told, self.about, self.shown = told, told.about, shown
        self.mine = set(told.about.tokens)
        pads = {token.position for token in told.tokens if token.kind == "pad"} - self.mine
        self.rows = [token for token in told.tokens if token.position not in pads]
        self.pads = sorted(pads)
        self.d = told.given.query.shape[1]

    def sections(self) -> list[tuple[str, str]]:
        """Each with its title, in the order in which a model computes."""
        return [
            *(self.given(), self.scores(), self.scaled(), self.masked()),
            *(self.softmax(), self.values(), self.heads(), self.together()),
        ]

    def given(self) -> tuple[str, str]:
        """Shapes."""
        given, about, d = self.told.given, self.about, self.d
        heads, tokens, d_v = given.value.shape
        rows = [
            ("Q", f"1 × {d}", "what the place asks: its hidden state through W_Q"),
            ("K", f"{tokens} × {d}", "what each token answers: its text state through W_K"),
            ("V", f"{tokens} × {d_v}", "what each token has to give, through W_V"),
            ("QKᵀ", f"1 × {tokens}", "a score for each token"),
            ("P", f"1 × {tokens}", "a share for each token, 1 in all"),
            ("PV", f"1 × {d_v}", "what the head takes in"),
        ]
        body = "".join(
            f'<tr><th>{name}</th><td>{shape}</td><td class="word">{what}</td></tr>'
            for name, shape, what in rows
        )
        return (
            "What asks and what answers",
            f"<p>One place asks, {tokens} tokens answer. Each of the {heads} heads has {d} numbers "
            f"of its own; this is head {about.head}.</p><table><tbody>{body}</tbody></table>",
        )

    def scores(self) -> tuple[str, str]:
        """QKᵀ."""
        q = as_array(self.told.given.query)[self.about.head]
        token = max(self.about.tokens, key=lambda t: self.shown.scores[t])
        k = as_array(self.told.given.key)[self.about.head, token]
        some = zip(q[:2], k[:2], strict=True)
        terms = " + ".join(f"{_factor(a)}·{_factor(b)}" for a, b in some)
        name = escape(self.told.tokens[token].text)
        strips = "".join(
            f"<span>{label}</span>{strip(numbers)}"
            for label, numbers in (("q", q), ("k", k), ("q·k", q * k))
        )
        return (
            "QKᵀ: how well does each answer fit?",
            f'<p>Query and key are multiplied number by number and added up. For <bdi>{name}</bdi>:'
            f'</p><div class="strip">{strips}</div><p class="way">{terms} + … '
            f"= {digits(self.shown.scores[token])}</p>"
            + self.table(
                ["", "Q·K"],
                [Column(self.shown.scores, "bar", sums=False),
                 Column(self.shown.scores, "digits", sums=False)],
            ),
        )  # fmt: skip

    def scaled(self) -> tuple[str, str]:
        """√d, and the experiment without."""
        shown, scale = self.shown, self.told.given.scale
        root = math.isclose(scale, self.d**-0.5, rel_tol=1e-6)
        by = f"√{self.d} = {digits(1 / scale)}" if root else f"{digits(1 / scale)}"
        p, other = shown.probabilities, shown.unscaled
        does = "saturates" if max(other) > _SURE else "is sharper"
        said = (
            f"Without that, the softmax {does}: the largest share would be {digits(max(other))} "
            f"where it is {digits(max(p))}, and the row would be as wide as {_spread(other):.2f} "
            f"equal shares, where it is as wide as {_spread(p):.2f}."
        )
        if max(p) > _SURE:
            said = (
                f"This head is so sure here (the largest share is {digits(max(p))}) that the row "
                "would look alike without; in others it would not."
            )
        return (
            f"÷ {'√d' if root else 'a number'}, and what it would be without",
            f"<p>A sum of {self.d} products grows with √{self.d}; so it is divided by {by}. "
            f"{said}</p>"
            + self.table(
                [f"÷ √{self.d}" if root else "scaled", "", "P", "", "P without"],
                [
                    Column(shown.scaled, "brief", sums=False),
                    *(Column(p, "short bar", 1), Column(p, "brief")),
                    *(Column(other, "short bar", 1), Column(other, "brief")),
                ],
            ),
        )

    def masked(self) -> tuple[str, str]:
        """The mask, where there is one."""
        shown = self.shown
        pads = sum(shown.acted[t] for t in self.pads)
        if self.told.given.mask is None:
            said = "This model has no mask: every token may be seen"
            if self.pads:
                said += f", the {len(self.pads)} of the padding too, which draw {brief(pads)} here"
            return "The mask", f"<p>{said}.</p>"
        mask = as_array(self.told.given.mask)[self.about.head]
        hidden = [t for t in range(len(mask)) if mask[t] < 0 and shown.probabilities[t] == 0]
        if not hidden:
            least, most = float(mask.min()), float(mask.max())
            added = f"{least + 0:g}" if least == most else f"from {least:g} to {most:g}"
            return "The mask", f"<p>It hides none of the {len(mask)} tokens: {added} is added.</p>"
        least = float(mask.min())
        added = "−∞" if math.isinf(least) else f"{least:g}"
        return (
            "The mask",
            f"<p>{plural(len(hidden), 'token')} of the {len(mask)} may not be seen: {added} is "
            "added to each of their scores, and e to that is 0."
            + (f" The padding draws {brief(pads)}, to the last digit." if self.pads else "")
            + "</p>",
        )

    def softmax(self) -> tuple[str, str]:
        """The row of P."""
        shown = self.shown
        seen = [one for one in shown.masked if one is not None]
        top = max(seen)
        raised = [0.0 if one is None else math.exp(one - top) for one in shown.masked]
        total = sum(raised)
        said = (
            f"<p>Each score becomes e to its power (the largest, {digits(top)}, is taken off "
            f"first, which changes no share), and is divided by the sum, {digits(total)}.</p>"
        )
        p = shown.probabilities
        head = ["e^…", "", "P"]
        cells = [Column(raised, "digits"), Column(p, "bar", 1), Column(p, "digits")]
        sums = [digits(total), "", digits(sum(p))]
        if self.about.rule:
            said += "<p>An edit then changed the row: the last column is what acted.</p>"
            head, cells = [*head, "as edited"], [*cells, Column(shown.acted, "digits")]
            sums.append(digits(sum(shown.acted)))
        return "The softmax: a row that sums to 1", said + self.table(head, cells, sums)

    def values(self) -> tuple[str, str]:
        """P V, and what each token brought."""
        shown, (heads, _, d_v) = self.shown, self.told.given.value.shape
        channels = self.told.given.output.shape[0]
        some, pads = ", ".join(map(brief, shown.output[:4])), self.padding_brought()
        length = shown.heads[self.about.head].length
        return (
            "P V: what each token brought",
            f"<p>Each token's value is weighted by its share, and all are added up: {d_v} numbers, "
            f"({some}, …). W_O has {heads * d_v} × {channels} numbers: the head's {d_v} rows of it "
            f"make {channels} channels of them; the length of what each token brought there tells "
            "how much it did. A token with a large share and a small value does little.</p>"
            + self.table(
                ["P", "", "‖P·V W_O‖"],
                [
                    Column(shown.acted, "brief"),
                    Column(shown.brought, "bar", together=pads),
                    Column(shown.brought, "digits", together=pads),
                ],
                [digits(sum(shown.acted)), "", f"‖Σ‖ {digits(length)}"],
            ),
        )

    def padding_brought(self) -> float:
        """‖Σ P·V W_O‖ of the padding: vectors are added up, and not their lengths."""
        h, value = self.about.head, as_array(self.told.given.value)
        d_v = value.shape[2]
        acted = np.array([self.shown.acted[token] for token in self.pads])
        rows = as_array(self.told.given.weight)[:, h * d_v : (h + 1) * d_v]
        return float(np.linalg.norm(rows @ (acted @ value[h, self.pads])))

    def heads(self) -> tuple[str, str]:
        """All heads."""
        heads, word = self.shown.heads, self.about.word
        most = max(one.length for one in heads) or 1
        rows = [
            f'<tr{marked("mine", n == self.about.head)}><th>{n}</th><td class="bar two">'
            f'{bar(one.word, 0, 1)}</td><td>{brief(one.word)}</td><td class="bar two">'
            f"{bar(one.length, 0, most)}</td><td>{brief(one.word_length)}</td><td>"
            f"{brief(one.length)}</td></tr>"
            for n, one in enumerate(heads)
        ]
        head = ["head", "", f"P of {word}", "", f"brought by {word}", "in all"]
        return (
            "The heads side by side",
            f"<p>All {len(heads)} heads look from the same place with queries of their own, and "
            f"need not agree.</p>{html_table(head, rows)}",
        )

    def together(self) -> tuple[str, str]:
        """The layer's output."""
        given, shown = self.told.given, self.shown
        (heads, _, d_v), (channels,) = given.value.shape, given.output.shape
        parts = [f"[O_0 … O_{heads - 1}] · W_O"]
        shapes = [f"(1 × {heads * d_v}) · ({heads * d_v} × {channels})"]
        if given.bias is not None:
            parts.append("b")
        if given.residual is not None:
            parts.append("what went in")
        way = " + ".join(parts)
        if given.factor != 1:
            way = f"({way}) / {given.factor:g}"
        extra = ""
        if given.added is not None:
            extra = "<p>An image prompt's attention is added to the heads' before W_O.</p>"
        bias = 0.0 if given.bias is None else float(np.linalg.norm(as_array(given.bias)))
        facts = [
            ("side by side", f"{heads} × {d_v} = {heads * d_v} numbers"),
            ("O · W_O", shapes[0]),
            ("‖b‖", digits(bias) if given.bias is not None else "no bias"),
            ("‖output‖", digits(float(np.linalg.norm(shown.together)))),
            ("the model's own", digits(float(np.linalg.norm(as_array(given.output))))),
            ("apart", f"at most {shown.difference:.1e} in a channel ({self.about.dtype} rounds)"),
        ]
        listed = "".join(f"<dt>{name}</dt><dd>{escape(said)}</dd>" for name, said in facts)
        strips = "".join(
            f"<span>{label}</span>{strip(np.asarray(numbers))}"
            for label, numbers in (("O", shown.joined), ("Y", shown.together))
        )
        return (
            "The heads put together",
            f'{extra}<p class="way">Y = {way}</p><div class="strip">{strips}</div><dl>{listed}</dl>'
            '<p class="note">Y is added to the hidden state of this place, and the model goes on.'
            "</p>",
        )

    def table(
        self, head: Sequence[str], columns: Sequence[Column], sums: Sequence[str] = ()
    ) -> str:
        """A row for each token that is read, one for the padding, one for the sums."""
        rows = [
            f"<tr{marked('mine', row.position in self.mine)}><th><bdi>{escape(row.text)}</bdi></th>"
            + "".join(column.one(row.position) for column in columns)
            + "</tr>"
            for row in self.rows
        ]
        if self.pads:
            rest = "".join(column.several(self.pads) for column in columns)
            rows.append(f'<tr class="more"><th>{len(self.pads)} × padding</th>{rest}</tr>')
        if sums:
            last = "".join(f"<td>{escape(one)}</td>" for one in sums)
            rows.append(f'<tr class="sum"><th>sum</th>{last}</tr>')
        return html_table(["token", *head], rows)


def marked(name: str, has: bool) -> str:
    """The class of an element that may have it."""
    return f' class="{name}"' if has else ""


def _factor(value: float) -> str:
    return f"({brief(value)})" if value < 0 else brief(value)


def _spread(shares: Sequence[float]) -> float:
    """Over how many tokens alike a row is spread: e to its entropy, 1 where one has it all."""
    return math.exp(-sum(p * math.log(p) for p in shares if p > 0))
