"""The input fields of the tabs, each named like the argument that it sets."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from heedmap.errors import ArgumentError, quoted
from heedmap.options import AXES, EditOptions, LocateOptions
from heedmap.text import option_texts

PLACES = {
    "the left half": (0.0, 0.0, 0.5, 1.0),
    "the right half": (0.5, 0.0, 1.0, 1.0),
    "the upper half": (0.0, 0.0, 1.0, 0.5),
    "the lower half": (0.0, 0.5, 1.0, 1.0),
}
"""Left, top, right and bottom, as fractions of the image."""
_DEFAULT = "model default"


def names_in(text: str) -> list[str]:
    """Split a text at its commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


_EXPECTED: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    _integers: "whole numbers, such as 7, 8",
}


class Form:
    """The fields of a tab.

    Attributes:
        fields: the Gradio components, by name, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
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

    def arguments(self, values: Sequence[Any]) -> dict[str, Any]:
        """Read the values of the fields. Empty ones are left out: the called function's default.

        Raises:
            ArgumentError: if a text cannot be read.
        """
        given = {
            name: value
            for name, value in zip(self.fields, values, strict=True)
            if value is not None and not (isinstance(value, str) and not value.strip())
        }
        for name in self._readers.keys() & given.keys():
            read, text, label = self._readers[name], given[name], self.fields[name].label
            try:
                given[name] = read(text)
            except ValueError as error:
                expected = _EXPECTED.get(read)
                reason = f"{quoted(text)}: expected {expected}" if expected else error
                raise ArgumentError(f"{label}: {reason}") from error
        return given

    # --- fields of several tabs ---------------------------------------------------------------

    def seed(self) -> gr.Textbox:
        """Add the seed."""
        return self.text("seed", "Seed", int, placeholder="random", min_width=100)

    def seeds(self) -> gr.Textbox:
        """Add a list of seeds."""
        return self.text("seeds", "Seeds", _integers, placeholder="7, 8", min_width=120)

    def steps(self) -> gr.Textbox:
        """Add the number of steps."""
        return self.text("steps", "Steps", int, placeholder=_DEFAULT, min_width=100)

    def looks(self) -> gr.Textbox:
        """Add the number of times that the model looks at an image."""
        info, placeholder = "Each with other noise.", str(LocateOptions.steps)
        return self.text("steps", "Looks", int, placeholder=placeholder, min_width=120, info=info)

    def only(self, info: str | None = None) -> gr.Textbox:
        """Add the words whose places may change."""
        return self.text("only", "Only where", placeholder="cat->dog", info=info)

    def drawing(self, axes: Sequence[str]) -> None:
        """Add guidance, size, negative prompt, and the axes to keep, of which some are chosen."""
        with gr.Row():
            for name, read in (("guidance", float), ("width", int), ("height", int)):
                self.text(name, name.capitalize(), read, placeholder=_DEFAULT, min_width=100)
        self.text("negative", "Negative prompt")
        choices = [(f"{axis}s", axis) for axis in AXES]
        self.add("keep", gr.CheckboxGroup(choices, value=[*axes], label="Tell apart on the page"))

    def edit(self, read_window: Callable[[str], Any]) -> None:
        """Add the windows of an edit, what it protects, and whether weights sum to 1 again."""
        with gr.Row():
            for name, label in (("cross", "Cross-attention"), ("self_attention", "Self-attention")):
                info = "From the source up to: 0.8"
                self.text(
                    name, label, read_window, placeholder="by the edit", min_width=140, info=info
                )
        with gr.Row():
            self.text("protect", "Protect", names_in, placeholder="snow, tree", min_width=140)
            default = str(EditOptions.threshold)
            self.text("threshold", "Threshold", float, placeholder=default, min_width=100)
        label = "Let weighted attention sum to 1 again"
        self.add("renormalize", gr.Checkbox(EditOptions.renormalize, label=label))

    def place(self, number: int, label: str) -> None:
        """Add a word and the place in which it is kept: a half of the image, or a box."""
        info = "Or: left, top, right, bottom, in pixels."
        with gr.Row():
            self.text(f"word_{number}", label, placeholder="cat", min_width=120)
            where = gr.Dropdown(
                [*PLACES], label="in", allow_custom_value=True, min_width=160, info=info
            )
            self.add(f"place_{number}", where)


def size_of(given: dict[str, Any]) -> dict[str, Any]:
    """Replace width and height by the size."""
    size = given.pop("width", None), given.pop("height", None)
    return given if size == (None, None) else {**given, "size": size}


def box_of(where: str, size: tuple[int, int]) -> tuple[float, ...]:
    """Give the box in pixels of a place in an image of this size.

    Raises:
        ArgumentError: if the place is neither the name of a half nor a box.
    """
    if where in PLACES:
        sides = zip(size * 2, PLACES[where], strict=True)
        return tuple(float(round(side * part)) for side, part in sides)
    try:
        return option_texts.sides_in(where)
    except ValueError as error:
        raise ArgumentError(f"in: {error}") from error
