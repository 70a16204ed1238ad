"""`heedmap repeat`, `ablate` and `explain`: a saved run is generated again by its own model."""

from pathlib import Path
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import SAVED, RunFolder, Task, command, parsed
from heedmap.errors import ArgumentError, quoted
from heedmap.options import ExplainOptions, GenerateOptions
from heedmap.parsing import parse_part, parse_pixel, parse_word

_REMOVED = "A word or phrase of the prompt; every occurrence is removed, or of cat#2 the second."
_Part = Annotated[
    Any,
    parsed(
        parse_part,
        "PART,…",
        "Set the attention to 0 in these alone; a name, numbers or A:B.",
    ),
]


@command(
    GenerateOptions,
    model=SAVED,
    out="nothing is saved",
    without="steps guidance size negative keep concepts share_of arguments",
)
def repeat(
    task: Task,
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a saved run or edit."),
    ],
    **options: Any,
) -> None:
    """Generate RUN again: is the result bit-identical?

    Its scheduler is that of RUN. The exit code is 0 if it is, 1 if not, and 2 after an error.
    Differences in the other settings (versions, device, threads, LoRAs) are printed. With --place,
    --reads or --budget, these are recorded, too, and saved in --out.
    """
    from heedmap.results.edits import load_result

    if task.out is None and options:
        raise ArgumentError("what is recorded anew is saved: name a folder with --out")
    saved = load_result(run)
    place = None if task.out is None else task.place()
    repetition = hm.repeat(task.load(saved), saved, **options)
    folders = [place.put(repetition.run.save, run.name)] if place else []
    lines = [f"{run}: {repetition}"]
    for name, (then, now) in repetition.changed.items():
        lines.append(f"  {name}: {quoted(then)}, here {quoted(now)}")
    data = {
        "run": str(run),
        "same": repetition.same,
        "largest": repetition.largest,
        "changed": repetition.changed,
        "folder": task.out,
    }
    task.finish(data, folders, lines)
    if not repetition.same:
        raise typer.Exit(1)


@command(model=SAVED, out="a new one in RUN/ablate")
def ablate(
    task: Task,
    run: RunFolder,
    word: Annotated[str, typer.Argument(metavar="WORD", help=_REMOVED)],
    *,
    layers: _Part = None,
    heads: _Part = None,
    steps: _Part = None,
) -> None:
    """Generate a saved run without a word, as a test of its map.

    Does the map predict what changes? The word is removed in two ways: its attention is set to 0,
    or it is left out of the prompt. Saves the repeated run and the two without the word, the
    changes of the image (attention.npy and prompt.npy, from 0 to 1, and as images), a sheet with
    the map, the agreement of map and change (ablate.json), and a page of all (index.html).
    """
    from heedmap.io.writing import slug
    from heedmap.results.ablations import shorter_prompt
    from heedmap.results.edits import load_result

    saved, _ = shorter_prompt(load_result(run), word)
    place = task.place(run / "ablate")
    part = {"layers": layers, "heads": heads, "steps": steps}
    ablation = hm.ablate(task.load(saved), saved, word, **part)
    folder = place.put(ablation.save, slug(ablation.word, 100))
    verdicts = {way: ablation.verdict(way) for way in ablation.agreement}
    lines = [f"{way}: {verdict}" for way, verdict in verdicts.items()]
    data = {
        "run": str(run),
        "folder": str(folder),
        "word": ablation.word,
        "agreement": ablation.agreement,
        "verdict": verdicts,
    }
    task.finish(data, [folder], lines)


@command(ExplainOptions, model=SAVED, out="a new one in RUN/explain")
def explain(
    task: Task,
    run: RunFolder,
    *,
    word: Annotated[
        Any,
        parsed(
            parse_word,
            "WORD",
            "A word, a phrase, or #N for word number N, from 0.",
            "--word",
            "-w",
        ),
    ],
    at: Annotated[
        Any, parsed(parse_pixel, "X,Y", "A pixel, counted from 0,0 at the upper left.")
    ],
    **options: Any,
) -> None:
    """Show how one attention probability of a saved run is computed.

    That is, how much one pixel attends to one word. The run is repeated up to that step.
    Saves a page (index.html) with the query and the keys, their scores, the division by √d, the
    mask, the softmax, what each token contributed, and all heads together; and explain.json, from
    which all of it can be computed again.
    """
    from heedmap.io.schemas import to_json
    from heedmap.io.writing import slug
    from heedmap.results.edits import load_result

    saved = load_result(run)
    place = task.place(run / "explain")
    explanation = hm.explain(task.load(saved), saved, word, at, **options)
    report = explanation.report
    at = "{} {}".format(*report.at)
    place_name = f"{report.short} head {report.head} step {report.step}"
    folder = place.put(
        explanation.save, slug(f"{report.word} at {at} {place_name}", 100)
    )
    probability = explanation.numbers["word_probabilities"][report.head]
    lines = [f"{report.word} at pixel {at}, {place_name}: P = {probability:.6g}."]
    data = {
        "run": str(run),
        "folder": str(folder),
        **to_json(report),
        "probability": probability,
    }
    task.finish(data, [folder], lines)
