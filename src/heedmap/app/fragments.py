"""The pieces of HTML that the app shows; whatever a user typed becomes text here."""

import html
from urllib.parse import quote

from heedmap import explorer
from heedmap.app.jobs import State
from heedmap.app.upload_reader import OpenedUpload
from heedmap.app.worker import ResultSummary
from heedmap.errors import as_sentence

FRAME = 980
"""Pixels of a page's height until it tells its own; one of an older version never does."""


def of_state(state: State) -> str:
    """Where a job stands, for a person: its place in line, its progress, its end."""
    if state.phase == "waiting":
        jobs = "1 job is" if state.before == 1 else f"{state.before} jobs are"
        said = f"Waiting: {jobs} before yours." if state.before else "Your job is next."
        return _card(f"<p>{said}</p>{_bar(0, 0)}")
    if state.phase == "working":
        step = f": {state.step} of {state.steps} steps" if state.steps else ""
        picture = (
            f'<img src="{html.escape(state.preview)}" alt="What is drawn so far">'
            if state.preview
            else ""
        )
        doing = html.escape(state.doing or "Starting")
        return _card(f"<p>{doing}{step}</p>{_bar(state.step, state.steps)}{picture}")
    if state.phase == "cancelled":
        return _card("<p>Cancelled: nothing was saved.</p>", role="status")
    if state.phase == "failed":
        return of_trouble(state.sentence)
    return of_made(state.result)


def of_trouble(sentence: str) -> str:
    """Why something could not be done."""
    text = html.escape(as_sentence(sentence))
    return _card(f"<p>{text}</p>", role="alert", kind="trouble")


def of_made(made: ResultSummary) -> str:
    """What was made, where it is, and how to take it along."""
    notes = "".join(f"<p>{html.escape(as_sentence(note))}</p>" for note in made.notes)
    saved = f'<p>Saved as <span class="name">{html.escape(made.name)}</span></p>{notes}'
    return _shown(made.made_with, saved + _take(made.name))


def of_opened(opened: OpenedUpload) -> str:
    """What a visitor sent."""
    return _shown(opened.made_with, "<p>From your file; nothing of it is kept here.</p>")


def of_result(name: str) -> str:
    """The page of a result in the store."""
    return explorer.frame(address=f"./results/{quote(name)}/page", height=FRAME)


def of_page(token: str) -> str:
    """The page of what a visitor sent."""
    return explorer.frame(address=f"./pages/{token}", height=FRAME)


def of_head() -> str:
    """The name above all."""
    return "<header><h1>heedmap</h1><p>See which word of a prompt acted where.</p></header>"


def _bar(done: int, total: int) -> str:
    value = f' value="{done}" max="{total}"' if total else ""
    return f'<progress{value} aria-label="Progress"></progress>'


def _card(inner: str, *, role: str = "", kind: str = "") -> str:
    said = f' role="{role}"' if role else ""
    return f'<div class="{" ".join(["card", *([kind] if kind else [])])}"{said}>{inner}</div>'


def _shown(made_with: str, more: str) -> str:
    return _card(f"<p>{html.escape(made_with)}</p>{more}", role="status", kind="done")


def _take(name: str) -> str:
    return f'<a class="take" href="./results/{quote(name)}.zip" download>Download as zip</a>'
