"""The pieces of HTML that the app shows; whatever a user typed becomes text here."""

import html

from heedmap import explorer
from heedmap.app.jobs import State
from heedmap.app.workshop import Made
from heedmap.pairs import Pair
from heedmap.runs import Run

FRAME = 980
"""Pixels of the page's height; on narrow screens the style gives it more."""


def of_state(state: State) -> str:
    """Where a job stands, for a person: its place in line, its progress, its end."""
    if state.phase == "waiting":
        jobs = "1 job is" if state.before == 1 else f"{state.before} jobs are"
        said = f"Waiting: {jobs} before yours." if state.before else "Your job is next."
        return _card(f"<p>{said}</p>{_bar(0, 0)}")
    if state.phase == "working":
        step = f": step {state.step} of {state.steps}" if state.steps else ""
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
    text = html.escape(" ".join(sentence.split()))
    return _card(f"<p>{text[:1].upper()}{text[1:]}</p>", role="alert", kind="trouble")


def of_made(made: Made) -> str:
    """What was made, where it is, and how to take it along."""
    notes = "".join(f"<p>{html.escape(_sentence(note))}</p>" for note in made.notes)
    saved = f'Saved as <span class="name">{made.name}</span>'
    take = f'<a class="take" href="./results/{made.name}.zip" download>Download as zip</a>'
    return _card(
        f"<p>{html.escape(figures(made.result))}</p><p>{saved}</p>{notes}{take}",
        role="status",
        kind="done",
    )


def of_shown(result: Run | Pair, name: str = "") -> str:
    """What is looked at again; `name` is the one on the shelf."""
    take = f'<a class="take" href="./results/{name}.zip" download>Download as zip</a>'
    said = "" if name else "<p>From your file; nothing of it is kept here.</p>"
    return _card(
        f"<p>{html.escape(figures(result))}</p>{said}{take if name else ''}",
        role="status",
        kind="done",
    )


def of_page(result: Run | Pair) -> str:
    """The result's own page, shut off from the app's."""
    return explorer.frame(result.explorer(), height=FRAME)


def of_head() -> str:
    """The name above all."""
    return "<header><h1>heedmap</h1><p>See which word of a prompt acted where.</p></header>"


def figures(result: Run | Pair) -> str:
    """What a result was made with, in a line; settings of an upload may be anything."""
    run = result.edited if isinstance(result, Pair) else result
    told = {name: run.settings.get(name) for name in ("seed", "steps", "model")}
    size = "×".join(map(str, run.image.size))
    return f"Seed {told['seed']} · {told['steps']} steps · {size} px · {told['model']}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _bar(done: int, total: int) -> str:
    value = f' value="{done}" max="{total}"' if total else ""
    return f'<progress{value} aria-label="Progress"></progress>'


def _card(inner: str, *, role: str = "", kind: str = "") -> str:
    said = f' role="{role}"' if role else ""
    return f'<div class="{" ".join(["card", *([kind] if kind else [])])}"{said}>{inner}</div>'
