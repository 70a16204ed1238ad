"""The input fields of the tabs, each named like the argument that it sets."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from heedmap.errors import ArgumentError
from heedmap.options import AXES, EditOptions
from heedmap.recording.edits import Confine
from heedmap.text import option_texts

MODEL_DEFAULT = "model default"


class Form:
    """The fields of a tab.

    Args:
        defaults: the arguments of empty fields; other empty fields are left to the function.

    Attributes:
        fields: the Gradio components, by name, in the order in which they were added.
    """

    def __init__(self, **defaults: Any) -> None:
        self.fields: dict[str, Any] = {}
        self._defaults = defaults
        self._readers: dict[str, Callable[[str], Any]] = {}

    def add(self, name: str, field: Any) -> Any:
        """Add a component."""
        self.fields[name] = field
        return field

    def text(
        self, name: str, label: str, read: Callable[[str], Any] | None = None, **options: Any
    ) -> gr.Textbox:
        """Add a text field, whose value `read` makes of its text."""
        if read is not None:
            self._readers[name] = read
        return self.add(name, gr.Textbox("", label=label, **options))

    def number(self, name: str, label: str, kind: type = int, **options: Any) -> gr.Textbox:
        """Add a field for a number, which may be empty."""

        def read(text: str) -> Any:
            try:
                return kind(text)
            except ValueError:
                expected = "a whole number" if kind is int else "a number"
                raise ValueError(f"{text!r}: expected {expected}") from None

        return self.text(name, label, read, **{"min_width": 100, **options})

    def buttons(self, name: str) -> None:
        """Add the buttons that start and cancel the call."""
        with gr.Row():
            self.start = gr.Button(name, variant="primary")
            self.cancel = gr.Button("Cancel", min_width=100)

    def arguments(self, values: Sequence[Any]) -> dict[str, Any]:
        """Read the values of the fields.

        Raises:
            ArgumentError: if a text cannot be read.
        """
        given = {
            name: value
            for name, value in zip(self.fields, values, strict=True)
            if value is not None and not (isinstance(value, str) and not value.strip())
        }
        for name in self._readers.keys() & given.keys():
            try:
                given[name] = self._readers[name](given[name])
            except ValueError as error:
                raise ArgumentError(f"{self.fields[name].label}: {error}") from error
        return {**self._defaults, **given}

    # --- fields of several tabs ---------------------------------------------------------------

    def seed_and_steps(self) -> gr.Textbox:
        """Add the seed, which is returned, and the number of steps."""
        with gr.Row():
            seed = self.number("seed", "Seed", placeholder="random")
            self.number("steps", "Steps", placeholder=MODEL_DEFAULT)
        return seed

    def only(self, info: str | None = None) -> gr.Textbox:
        """Add the words whose places may change."""
        return self.text("only", "Only where", placeholder="cat->dog", info=info)

    def drawing(self, axes: Sequence[str]) -> None:
        """Add guidance, size, negative prompt, and the axes to keep, of which some are chosen."""
        with gr.Row():
            self.number("guidance", "Guidance", float, placeholder=MODEL_DEFAULT)
            self.text(
                "size", "Size", option_texts.size_in, placeholder=MODEL_DEFAULT, min_width=100
            )
        self.text("negative", "Negative prompt")
        choices = [(f"{axis}s", axis) for axis in AXES]
        self.add("keep", gr.CheckboxGroup(choices, value=[*axes], label="Tell apart on the page"))

    def edit(self, window: Callable[[str], Any]) -> None:
        """Add the windows of an edit, what it protects, and whether weights sum to 1 again."""
        options: dict[str, Any] = {"placeholder": "by the edit", "min_width": 140}
        with gr.Row():
            for name, label in (("cross", "Cross-attention"), ("self_attention", "Self-attention")):
                self.text(name, label, window, info="From the source up to: 0.8", **options)
        with gr.Row():
            self.text(
                "protect", "Protect", option_texts.names_in, placeholder="snow, tree", min_width=140
            )
            self.number("threshold", "Threshold", float, placeholder=str(EditOptions.threshold))
        label = "Let weighted attention sum to 1 again"
        self.add("renormalize", gr.Checkbox(EditOptions.renormalize, label=label))


def lines_in(text: str) -> list[str]:
    """Split a text into its lines."""
    return [line for line in text.splitlines() if line.strip()]


def weights_in(text: str) -> dict[str, list[float]]:
    """Read lines of `WORD=WEIGHTS`."""
    return dict(option_texts.strip_in(line) for line in lines_in(text))


def boxes_in(text: str) -> list[Confine]:
    """Read lines of `WORD=LEFT,TOP,RIGHT,BOTTOM`."""
    return [Confine(*option_texts.box_in(line)) for line in lines_in(text)]
