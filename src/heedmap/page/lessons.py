"""The sections of an explanation: from query and keys to the output of the layer."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from heedmap.errors import plural
from heedmap.io.explanations import ExplanationFile, Shown, as_array
from heedmap.page.bars import Column, bar, brief, digits, html_table, strip

_SURE = 0.999  # a probability that leaves nothing for other tokens


class Lesson:
    """The computation of one number, step by step.

    Args:
        content: the content of `explain.json`.
        shown: the numbers computed from it.
    """

    def __init__(self, content: ExplanationFile, shown: Shown) -> None:
        self.content, self.about, self.shown = content, content.about, shown
        self.mine = set(content.about.tokens)
        pads = {token.position for token in content.tokens if token.kind == "pad"} - self.mine
        self.rows = [token for token in content.tokens if token.position not in pads]
        self.pads = sorted(pads)
        self.d = content.given.query.shape[1]

    def sections(self) -> list[tuple[str, str]]:
        """Return the title and HTML of each section, in the order of the computation."""
        return [
            *(self.given(), self.scores(), self.scaled(), self.masked()),
            *(self.softmax(), self.values(), self.heads(), self.together()),
        ]

    def given(self) -> tuple[str, str]:
        """Return the shapes of the inputs."""
        given, about, d = self.content.given, self.about, self.d
        heads, tokens, d_v = given.value.shape
        rows = [
            ("Q", f"1 × {d}", "the query of the position: its hidden state times W_Q"),
            ("K", f"{tokens} × {d}", "the key of each token: its text state times W_K"),
            ("V", f"{tokens} × {d_v}", "the value of each token: its text state times W_V"),
            ("QKᵀ", f"1 × {tokens}", "a score for each token"),
            ("P", f"1 × {tokens}", "a probability for each token, 1 in all"),
            ("PV", f"1 × {d_v}", "the output of the head"),
        ]
        body = "".join(
            f'<tr><th>{name}</th><td>{shape}</td><td class="word">{what}</td></tr>'
            for name, shape, what in rows
        )
        return (
            "Query, keys and values",
            f"<p>One position of the image attends to {tokens} tokens. Each of the {heads} heads "
            f"has its own queries and keys of {d} numbers; this is head {about.head}.</p>"
            f"<table><tbody>{body}</tbody></table>",
        )

    def scores(self) -> tuple[str, str]:
        """Return the scores QKᵀ."""
        q = as_array(self.content.given.query)[self.about.head]
        token = max(self.about.tokens, key=lambda t: self.shown.scores[t])
        k = as_array(self.content.given.key)[self.about.head, token]
        some = zip(q[:2], k[:2], strict=True)
        terms = " + ".join(f"{_factor(a)}·{_factor(b)}" for a, b in some)
        name = escape(self.content.tokens[token].text)
        strips = "".join(
            f"<span>{label}</span>{strip(numbers)}"
            for label, numbers in (("q", q), ("k", k), ("q·k", q * k))
        )
        return (
            "QKᵀ: how well does each key fit the query?",
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
        """Return the scaled scores, and P without the scale."""
        shown, scale = self.shown, self.content.given.scale
        root = math.isclose(scale, self.d**-0.5, rel_tol=1e-6)
        by = f"√{self.d} = {digits(1 / scale)}" if root else f"{digits(1 / scale)}"
        p, other = shown.probabilities, shown.unscaled
        does = "saturates" if max(other) > _SURE else "is sharper"
        said = (
            f"Without the scale, the softmax {does}: the largest probability would be "
            f"{digits(max(other))} instead of {digits(max(p))}, and the row would be as wide as "
            f"{_spread(other):.2f} equal probabilities instead of {_spread(p):.2f}."
        )
        if max(p) > _SURE:
            said = (
                f"The largest probability of this head is {digits(max(p))}, so the row looks the "
                "same without the scale. In other heads it does not."
            )
        return (
            f"÷ {'√d' if root else 'a number'}, and P without it",
            f"<p>A sum of {self.d} products grows with √{self.d}, so the scores are divided by "
            f"{by}. {said}</p>"
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
        """Return the scores with the mask, if there is one."""
        shown = self.shown
        pads = sum(shown.acted[t] for t in self.pads)
        if self.content.given.mask is None:
            said = "This model has no mask: the position attends to every token"
            if self.pads:
                said += f", including {len(self.pads)} of padding, which draw {brief(pads)} here"
            return "The mask", f"<p>{said}.</p>"
        mask = as_array(self.content.given.mask)[self.about.head]
        hidden = [t for t in range(len(mask)) if mask[t] < 0 and shown.probabilities[t] == 0]
        if not hidden:
            least, most = float(mask.min()), float(mask.max())
            added = f"{least + 0:g}" if least == most else f"from {least:g} to {most:g}"
            return "The mask", f"<p>It hides none of the {len(mask)} tokens: {added} is added.</p>"
        least = float(mask.min())
        added = "−∞" if math.isinf(least) else f"{least:g}"
        return (
            "The mask",
            f"<p>The mask hides {plural(len(hidden), 'token')} of {len(mask)}: {added} is added to "
            "their scores, and e to that power is 0."
            + (f" The padding draws exactly {brief(pads)}." if self.pads else "")
            + "</p>",
        )

    def softmax(self) -> tuple[str, str]:
        """Return the probabilities P."""
        shown = self.shown
        seen = [one for one in shown.masked if one is not None]
        top = max(seen)
        raised = [0.0 if one is None else math.exp(one - top) for one in shown.masked]
        total = sum(raised)
        said = (
            f"<p>The largest score, {digits(top)}, is subtracted from all scores, which changes no "
            f"probability. Then e to the power of each is divided by the sum, {digits(total)}.</p>"
        )
        p = shown.probabilities
        head = ["e^…", "", "P"]
        cells = [Column(raised, "digits"), Column(p, "bar", 1), Column(p, "digits")]
        sums = [digits(total), "", digits(sum(p))]
        if self.about.rule:
            said += "<p>An edit then changed the row, as the last column shows.</p>"
            head, cells = [*head, "as edited"], [*cells, Column(shown.acted, "digits")]
            sums.append(digits(sum(shown.acted)))
        return "The softmax: a row that sums to 1", said + self.table(head, cells, sums)

    def values(self) -> tuple[str, str]:
        """Return P V and the contribution of each token."""
        shown, (heads, _, d_v) = self.shown, self.content.given.value.shape
        channels = self.content.given.output.shape[0]
        some = ", ".join(map(brief, shown.output[:4]))
        length, rest = shown.heads[self.about.head].length, self.padding_brought()
        of_padding = " (of the padding together)" if self.pads else ""
        return (
            "P V: the contribution of each token",
            f"<p>The values of the tokens are multiplied by their probabilities and added: {d_v} "
            f"numbers ({some}, …). The head's {d_v} rows of W_O ({heads * d_v} × {channels}) turn "
            f"them into {channels} channels. The length of each token's part of these is its "
            f"contribution{of_padding}. A token with a large probability and a small value "
            "contributes little.</p>"
            + self.table(
                ["P", "", "‖P·V W_O‖"],
                [
                    Column(shown.acted, "brief"),
                    *(Column(shown.brought, how, rest=rest) for how in ("bar", "digits")),
                ],
                [digits(sum(shown.acted)), "", f"‖Σ‖ {digits(length)}"],
            ),
        )

    def padding_brought(self) -> float:
        """Return ‖P·V W_O‖ of the padding, which is less than the sum over its tokens."""
        given, head = self.content.given, self.about.head
        value = as_array(given.value)[head]
        weight = as_array(given.weight)[:, head * value.shape[1] :][:, : value.shape[1]]
        acted = np.array(self.shown.acted)
        return float(np.linalg.norm(weight @ (acted[self.pads] @ value[self.pads])))

    def heads(self) -> tuple[str, str]:
        """Return the probabilities and contributions of all heads."""
        heads, word = self.shown.heads, self.about.word
        most = max(one.length for one in heads) or 1
        shares = [0.0, 1.0, *(one.word for one in heads)]  # with a weight they may lie outside
        least, largest = min(shares), max(shares)
        rows = [
            f'<tr{marked("mine", n == self.about.head)}><th>{n}</th><td class="bar two">'
            f'{bar(one.word, least, largest)}</td><td>{brief(one.word)}</td><td class="bar two">'
            f"{bar(one.length, 0, most)}</td><td>{brief(one.word_length)}</td><td>"
            f"{brief(one.length)}</td></tr>"
            for n, one in enumerate(heads)
        ]
        head = ["head", "", f"P of {word}", "", f"contribution of {word}", "of all"]
        return (
            "All heads",
            f"<p>The {len(heads)} heads have their own queries and keys at this position, and may "
            f"disagree.</p>{html_table(head, rows)}",
        )

    def together(self) -> tuple[str, str]:
        """Return the output of the layer."""
        given, shown = self.content.given, self.shown
        (heads, _, d_v), (channels,) = given.value.shape, given.output.shape
        parts = [f"[O_0 … O_{heads - 1}] · W_O"]
        shapes = [f"(1 × {heads * d_v}) · ({heads * d_v} × {channels})"]
        if given.bias is not None:
            parts.append("b")
        if given.residual is not None:
            parts.append("input")
        way = " + ".join(parts)
        if given.factor != 1:
            way = f"({way}) / {given.factor:g}"
        extra = ""
        if given.added is not None:
            extra = "<p>The attention of an image prompt is added before W_O.</p>"
        bias = 0.0 if given.bias is None else float(np.linalg.norm(as_array(given.bias)))
        facts = [
            ("O", f"{heads} × {d_v} = {heads * d_v} numbers"),
            ("O · W_O", shapes[0]),
            ("‖b‖", digits(bias) if given.bias is not None else "no bias"),
            ("‖output‖", digits(float(np.linalg.norm(shown.together)))),
            ("the model's own", digits(float(np.linalg.norm(as_array(given.output))))),
            ("difference", f"at most {shown.difference:.1e} in a channel ({self.about.dtype})"),
        ]
        listed = "".join(f"<dt>{name}</dt><dd>{escape(said)}</dd>" for name, said in facts)
        strips = "".join(
            f"<span>{label}</span>{strip(np.asarray(numbers))}"
            for label, numbers in (("O", shown.joined), ("Y", shown.together))
        )
        return (
            "The output of the layer",
            f'{extra}<p class="way">Y = {way}</p><div class="strip">{strips}</div><dl>{listed}</dl>'
            '<p class="note">Y is added to the hidden state of this position.</p>',
        )

    def table(
        self, head: Sequence[str], columns: Sequence[Column], sums: Sequence[str] = ()
    ) -> str:
        """Return a table with a row for each token, one for the padding and one for the sums."""
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
    """Return the class attribute of an element, if it has the class."""
    return f' class="{name}"' if has else ""


def _factor(value: float) -> str:
    return f"({brief(value)})" if value < 0 else brief(value)


def _spread(shares: Sequence[float]) -> float:
    """Return e to the entropy of a row: the number of equal probabilities as wide as it."""
    return math.exp(-sum(p * math.log(p) for p in shares if p > 0))
