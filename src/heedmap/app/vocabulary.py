"""The words that the embedded model was taught, to click a prompt together."""

import html

import gradio as gr

from heedmap.models import cards

__all__ = ["shelf"]

_CLICK = """
const boxes = () => [...element.closest("[role=tabpanel]").querySelectorAll("textarea")]
  .slice(0, Number(element.querySelector("[data-boxes]").dataset.boxes));
let last = null;
document.addEventListener("focusin", (event) => {
  if (boxes().includes(event.target)) last = event.target;
});
element.addEventListener("click", (event) => {
  const word = event.target.closest("button[data-word]");
  if (!word) return;
  const box = boxes().includes(last) ? last : boxes()[0];
  const said = box.value.trimEnd();
  box.value = said ? `${said} ${word.dataset.word}` : word.dataset.word;
  box.dispatchEvent(new Event("input", { bubbles: true }));
});
"""


def shelf(boxes: int = 1) -> gr.HTML:
    """What a prompt for the embedded model can be put together of, each word a button.

    A click appends to the field that was written in last, of the first `boxes` of the tab.
    """
    return gr.HTML(of_phrases(boxes), js_on_load=_CLICK, elem_classes="shelf")


def of_phrases(boxes: int) -> str:
    """The buttons as HTML; nothing where the model's card has no list."""
    rows = [
        f"<dt>{html.escape(name.capitalize())}</dt><dd>{''.join(map(_button, words))}</dd>"
        for name, words in cards.phrases().items()
    ]
    if not rows:
        return ""
    said = "Words that the embedded model was taught: click them together"
    beyond = f"<p>{html.escape(cards.limits())}</p>"
    told = f"<details open><summary>{said}</summary><dl>{''.join(rows)}</dl>{beyond}</details>"
    return f'<div data-boxes="{boxes:d}">{told}</div>'


def _button(word: str) -> str:
    said = html.escape(word)
    return f'<button type="button" data-word="{said}">{said}</button>'
