"""Measure the embedded model.

    python scripts/evaluate.py obey                          does it draw what it is told?
    python scripts/evaluate.py obey --n 40 --sheet obey.png  quickly, with a sheet to look at
    python scripts/evaluate.py obey --card                   and write the figures on its card
    python scripts/evaluate.py edits                         do its edits do what they are for?
    python scripts/evaluate.py windows --n 100               which windows for which kind of edit?
    python scripts/evaluate.py windows --page scripts/evaluation/README.md    and write its table
    python scripts/evaluate.py own                           does it edit other pictures, too?
    python scripts/evaluate.py maps                          do maps say where the words are?
    python scripts/evaluate.py trust                         do maps say where words act?
    python scripts/evaluate.py budget                        where does all attention go?
    python scripts/evaluate.py layers --steps 10             do ranked layers draw the word?
    python scripts/evaluate.py guide --keep outputs/guide    what do guides repair, and break?
    python scripts/evaluate.py judge --check 600             is the judge of pictures right?
    python scripts/evaluate.py segmentation --data PATH      maps against masks of a public data set
    python scripts/evaluate.py edits --data PIE-BENCH        edits of the images of PIE-Bench

`obey` generates pictures of held-out captions (combinations that training never shows, told with
nouns, colours and relation), looks at them with `evaluation.judge`, and at the heat maps of their
words: is the hottest place inside of the thing?

`edits` swaps nouns and colours of such captions, weights and confines words, and measures whether
the target appears and the rest stays; beside it what plain generation and the rules of others do.
What the figures mean is said in `evaluation`, in a file for each question. Under "kinds" stand
edits of every kind with the windows that they have by themselves; `windows` measures others.

`own` swaps nouns and colours in rendered pictures of such captions (`evaluation.own_pictures`).

`maps` shows the model pictures of held-out scenes, and holds the maps of the words of their
captions against exact masks, by several ways to make a map (`evaluation.truth`). With `--drawn` the
same of pictures that the model drew itself, whose masks are made of their pixels
(`evaluation.drawn`): under "generated".

`trust` leaves words out of pictures, and holds what that changes against the words' maps
(`evaluation.trust`).

`budget` averages the shares of words, special tokens, padding and image (`evaluation.budget`).

`layers` ranks layers by what pictures lose without a noun in each, and leaves the first and the
last of them out of other pictures (`evaluation.layers`).

`guide` draws captions that fail again with guides, and by published rules (`evaluation.guided`). It
keeps each picture, and goes on where it was ended.

`segmentation` and `edits --data` measure any model on public data, by the metrics of the papers,
and print the published rows beside (`evaluation.public_masks`, `evaluation.public_edits`).

`judge` trains the judge anew (without `--check`), and measures it on rendered scenes.

All figures are shares from 0 to 1, except for ratios and for what names its unit. The same seed
gives the same captions and pictures.
"""

import argparse
import datetime
import json
import math
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import heedmap
from evaluation import (
    attending,
    blends,
    budget,
    drawn,
    guided,
    joint_maps,
    judge,
    kinds,
    layers,
    obedience,
    own_pictures,
    places,
    public_edits,
    public_masks,
    strangers,
    swaps,
    trust,
    truth,
    weights,
)
from evaluation.measures import Figures
from heedmap.backends.registry import family_of
from heedmap.errors import HeedmapError
from heedmap.figures.plots import Panel, draw_panels
from heedmap.tiny import EMBEDDED, FOLDERS, JOINT

# --- sub-commands -----------------------------------------------------------------------------


def run_obey(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `obey`."""
    figures, rows, unknown = obedience.obey(
        pipe, n=options.n, seed=options.seed, steps=options.steps, guidance=options.guidance,
        progress=show_progress,
    )  # fmt: skip
    rendered = judge.rendered_right()
    figures["judge"] = {"rendered_right": rendered.pop("all"), **rendered}
    figures["vae_psnr_db"] = obedience.vae_psnr(pipe, options.n)
    figures["size_mib"] = obedience.size_mib(folder)
    if options.sheet:
        results = [*rows["one_object"][:20], *rows["two_objects"][:20]]
        panels = [Panel(r.plan.caption.text, r.run.image, r.verdict) for r in results]
        save(options.sheet, panels, columns=8)
        save(sheet_of(options.sheet, "unknown"), strangers.panels(unknown), columns=8)
    if options.card:
        write_card(folder, "measured", "obey", figures, options)
    if options.json:
        print(json.dumps(figures))
        return
    layers = figures["pointing"].pop("layers")
    show(figures)
    print("\npointing by layer")
    show(layers, width=54)


def run_edits(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `edits`."""
    if options.data:
        run_public_edits(options, pipe)
        return
    figures, drawn = edits(
        pipe, n=options.n, seed=options.seed, steps=options.steps, guidance=options.guidance,
        progress=show_progress,
    )  # fmt: skip
    if options.sheet:
        # A sheet for each question, since each has its own number of columns.
        for name, (panels, columns) in drawn.items():
            if panels:
                save(sheet_of(options.sheet, name), panels, columns)
    if options.card:
        write_card(folder, "edits", "edits", figures, options)
    if options.json:
        print(json.dumps(figures))
        return
    more = {"kinds": figures.pop("kinds"), **figures.pop("baselines")}
    show(figures)
    for name, rows in more.items():
        print(f"\n{name}")
        show(rows)


def run_public_edits(options: argparse.Namespace, pipe: Any) -> None:
    """The sub-command `edits` on the images of PIE-Bench."""
    cases = list(islice(public_edits.read(options.data), options.n))
    how = {"steps": options.steps, "guidance": options.guidance}
    figures = public_edits.measure(pipe, cases, options.seed, show_progress, **how)
    print(json.dumps(figures) if options.json else public_edits.table(figures))


def run_segmentation(options: argparse.Namespace, pipe: Any, _: Path) -> None:
    """The sub-command `segmentation`."""
    kind = public_masks.kind_of(options.data)
    if kind == "voc":
        samples = public_masks.read_voc(options.data)
    elif options.names:
        names = public_masks.read_names(options.names)
        samples = public_masks.read_imagenet(options.data, names)
    else:
        raise SystemExit("--names is missing: a file such as ImageNet's LOC_synset_mapping.txt")
    samples = islice(samples, options.n)
    figures = public_masks.measure(pipe, samples, options.seed, options.steps, show_progress)
    print(json.dumps(figures) if options.json else public_masks.table(figures, kind))


def run_windows(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `windows`."""
    eye, how = judge.load(), {"steps": options.steps, "guidance": options.guidance}
    figures, _ = kinds.over_windows(
        pipe,
        options.n,
        options.seed,
        eye,
        show_progress,
        options.cross,
        options.self,
        options.kind,
        **how,
    )
    if options.card:
        write_card(folder, "windows", "windows", {"kinds": figures}, options)
    if options.page:
        write_table(options, "windows", kinds.windows_table(figures, family_of(pipe).windows))
    if options.json:
        print(json.dumps({"kinds": figures}))
        return
    for kind, rows in figures.items():
        print(f"\n{kind}: cross and self-attention up to")
        show(rows)


def run_own(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `own`."""
    figures, drawn = own_pictures.measure(
        pipe, options.n, options.seed, judge.load(), show_progress,
        steps=options.steps, guidance=options.guidance,
    )  # fmt: skip
    if options.sheet:
        save(options.sheet, swaps.panels(drawn), columns=9)
    if options.card:
        write_card(folder, "own", "own", figures, options)
    if options.page:
        write_table(options, "own", own_pictures.table(figures))
    if options.json:
        print(json.dumps(figures))
        return
    for kind, rows in figures.items():
        print(f"\n{kind}")
        back = rows.pop("psnr_db")
        show(rows)
        print(f"{'back, dB':14}mean {back['mean']:.2f}   least {back['least']:.2f}")


def run_maps(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `maps`."""
    method = joint_maps if options.model == JOINT else truth
    figures = method.measure(pipe, options.n, options.seed, show_progress, options.steps)
    if options.drawn and method is truth:  # `listening` hears UNets
        figures["generated"] = drawn.measure(
            pipe, options.drawn, options.seed, judge.load(), show_progress,
            guidance=options.guidance,
        )  # fmt: skip
    if options.card:
        write_card(folder, "maps", "maps", figures, options)
    if options.page and method is joint_maps:
        write_table(options, "maps", joint_maps.table(figures))
    if options.json:
        print(json.dumps(figures))
        return
    for named, part in (("", figures), ("generated: ", figures.get("generated", {}))):
        for group, rows in {"all": part.get("methods", {}), **part.get("groups", {})}.items():
            print(f"\n{named}{group}")
            show({name: truth.brief(row) for name, row in rows.items()}, width=38)


def run_trust(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `trust`."""
    figures, drawn = trust.measure(
        pipe, options.n, options.seed, judge.load(), show_progress,
        steps=options.steps, guidance=options.guidance,
    )  # fmt: skip
    if options.sheet:
        save(options.sheet, trust.panels(drawn), columns=6)
    if options.card:
        write_card(folder, "trust", "trust", figures, options)
    if options.page:
        write_table(options, "trust", trust.table(figures))
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.n} pictures, of which {100 * figures['right']:.1f} % are right")
    for what, values in trust.lines(figures):
        print(f"{what:34}{values}")


def run_budget(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `budget`."""
    figures = budget.measure(
        pipe, options.n, options.seed, show_progress,
        steps=options.steps, guidance=options.guidance,
    )  # fmt: skip
    if options.card:
        write_card(folder, "budget", "budget", {"layers": figures}, options)
    if options.page:
        write_table(options, "budget", budget.table(figures))
    print(json.dumps(figures) if options.json else budget.table(figures))


def run_layers(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `layers`."""
    how = {"steps": options.steps, "guidance": options.guidance}
    figures = layers.measure(pipe, options.n, options.seed, show_progress, **how)
    if options.card:
        write_card(folder, "layers", "layers", figures, options)
    if options.page:
        write_table(options, "layers", layers.table(figures))
    print(json.dumps(figures) if options.json else layers.table(figures))


def run_guide(options: argparse.Namespace, pipe: Any, folder: Path) -> None:
    """The sub-command `guide`."""
    how = {"steps": options.steps, "guidance": options.guidance}
    name = JOINT if options.model == JOINT else EMBEDDED
    figures = guided.measure(
        pipe,
        options.keep / name,
        options.n,
        options.most,
        options.seed,
        show_progress,
        options.kind,
        attending.others(options.steps),
        options.way,
        **how,
    )
    if options.page:
        write_table(options, "guide", guided.table(figures))
    if options.json:
        print(json.dumps(figures))
        return
    print(guided.table(figures))


def run_judge(options: argparse.Namespace) -> None:
    """The sub-command `judge`."""
    if options.check is None:
        judge.train(options.minutes, options.out, options.seed, options.begin)
    print(json.dumps(judge.rendered_right(options.check or 600, judge.load(options.out))))


def edits(
    pipe: Any, *, n: int, seed: int, steps: int, guidance: float, progress: obedience.Progress
) -> tuple[Figures, dict[str, tuple[list[Panel], int]]]:
    """How well edits do what they are for.

    Args:
        pipe: a model of the drawn world.
        n: swaps of nouns, swaps of colours, words weighted, things placed, and edits of each kind:
            as many of each; and a quarter of it for the fit of masks.
        seed: of the noise.
        steps: denoising steps.
        guidance: classifier-free guidance scale.
        progress: called with how far it is.

    Returns:
        the figures, and by question the panels of a sheet with its number of columns.
    """
    eye, how = judge.load(), {"steps": steps, "guidance": guidance}
    swapped, all_swaps = swaps.measure(pipe, n, seed, eye, progress, **how)
    baselines = swapped.pop("baselines")
    blended, all_blends = blends.measure(pipe, math.ceil(n / 4), seed, eye, progress, **how)
    weighted, all_weights = weights.measure(pipe, n, seed, eye, progress, **how)
    placed, all_places = places.measure(pipe, n, seed, eye, progress, **how)
    by_kind, all_kinds = kinds.measure(pipe, n, seed, eye, progress, **how)
    figures = {**swapped, "blend": blended, "reweight": weighted, "confine": placed}
    return {**figures, "kinds": by_kind, "baselines": baselines}, {
        "kinds": (kinds.panels(all_kinds), 9),
        "swaps": (swaps.panels(all_swaps), 9),
        "blends": (blends.panels(all_blends), 6),
        "weights": (weights.panels(all_weights), 10),
        "places": (places.panels(all_places), 8),
    }


# --- what is printed and written --------------------------------------------------------------


def show(rows: Figures, width: int = 14) -> None:
    """Print a line for each row of figures."""
    for name, values in rows.items():
        print(f"{name:{width}}{_line(values) if isinstance(values, dict) else values}")


def _line(values: Figures) -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, dict):
            inside = {f"n {kind}": v for kind, v in value.items()} if name == "n" else value
            parts.append(f"{name} ({_line(inside)})")
        elif value is None:
            parts.append(f"{name} –")
        elif name.split()[0] in ("n", "grid", "p01", "p05", "median") or "ratio" in name:
            parts.append(f"{name} {value:g}")
        else:
            parts.append(f"{name} {100 * value:.1f} %")
    return "   ".join(parts)


def sheet_of(path: Path, question: str) -> Path:
    """The file of one question's sheet: "obey.png" and "unknown" to "obey-unknown.png"."""
    return path.with_stem(f"{path.stem}-{question}")


def save(path: Path, panels: Sequence[Panel], columns: int) -> None:
    """Write pictures with captions and verdicts as one sheet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_panels(panels, columns=columns).savefig(path)


def write_card(
    folder: Path, entry: str, verb: str, figures: Figures, options: argparse.Namespace
) -> None:
    """Put the figures on the model's card, with how they were measured."""
    path = folder / "card.json"
    card = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    how = {name: getattr(options, name) for name in ("n", "steps", "guidance", "seed")}
    flags = {**({"model": JOINT} if options.model == JOINT else {}), **how}
    command = " ".join(
        [f"python scripts/evaluate.py {verb}", *(f"--{k} {v}" for k, v in flags.items())]
    )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    seen = card.get("training", {}).get("samples_seen")  # a later model keeps older figures
    card[entry] = {"command": command, "date": today, "samples_seen": seen, **how, **figures}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def write_table(options: argparse.Namespace, name: str, table: str) -> None:
    """Put a table between the marks `<!-- name -->` and `<!-- /name -->` of the page.

    The marks of the transformer's tables begin with "joint".
    """
    page, name = options.page, f"joint {name}" if options.model == JOINT else name
    begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    before, there, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ends, after = rest.partition(end)
    if not (there and ends):
        raise SystemExit(f"{page} has no marks {begin.strip()} and {end.strip()}: write them first")
    partial = page.with_suffix(".partial")
    partial.write_text(f"{before}{begin}{table}{end}{after}", encoding="utf-8")
    partial.replace(page)


def show_progress(row: str, done: int, total: int) -> None:
    """A line on stderr that says how far a row is."""
    end = "\n" if done == total else ""
    print(f"\r{row} {done}/{total} ", end=end, file=sys.stderr, flush=True)


# --- the command line -------------------------------------------------------------------------


def model_options(parser: argparse.ArgumentParser, n: int) -> None:
    """The options that every sub-command has."""
    parser.add_argument("--n", type=int, default=n, help=f"pictures or edits a row ({n})")
    parser.add_argument("--steps", type=int, default=obedience.STEPS, help=f"({obedience.STEPS})")
    parser.add_argument("--guidance", type=float, help="(the card's)")
    parser.add_argument("--model", metavar="FOLDER", help="or joint (the embedded UNet)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="draw pictures with verdicts")
    parser.add_argument("--card", action="store_true", help="write the figures on the card")


def judge_options(parser: argparse.ArgumentParser) -> None:
    """The options of the sub-command `judge`."""
    parser.add_argument("--minutes", type=float, default=5.0, help="processor time of one thread")
    parser.add_argument("--out", type=Path, default=judge.WEIGHTS, metavar="FILE", help="weights")
    parser.add_argument("--seed", type=int, default=0, help="of the training (0)")
    parser.add_argument("--begin", type=Path, metavar="FILE", help="weights to go on from")
    parser.add_argument("--check", type=int, metavar="N", help="only measure it, on N scenes")


def run_on_model(options: argparse.Namespace) -> None:
    """A sub-command that measures a model."""
    name = options.model or EMBEDDED
    folder, pipe = FOLDERS.get(name) or Path(name), heedmap.load(name)
    if options.guidance is None:
        card = folder / "card.json"
        own = json.loads(card.read_text(encoding="utf-8")) if card.exists() else {}
        options.guidance = own.get("defaults", {}).get("guidance", obedience.GUIDANCE)
    pipe.set_progress_bar_config(disable=True)
    options.measure(options, pipe, folder)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="WHAT")
    # A further question is a line here and a function that takes options, pipe and folder.
    for name, function, n, about in (
        ("obey", run_obey, 300, "does it draw what it is told?"),
        ("edits", run_edits, 200, "do its edits do what they are for?"),
        ("windows", run_windows, 100, "which windows do edits of each kind do best with?"),
        ("own", run_own, 100, "does it edit pictures that it did not draw?"),
        ("maps", run_maps, 400, "do maps say where the words are?"),
        ("trust", run_trust, 80, "do maps say where words act?"),
        ("budget", run_budget, 16, "where does all attention go?"),
        ("layers", run_layers, 8, "do ranked layers draw the word in other pictures, too?"),
        ("guide", run_guide, 100, "what do guides repair, and what do they break?"),
        ("segmentation", run_segmentation, 5000, "do maps fit the masks of a public data set?"),
    ):
        verb = verbs.add_parser(name, help=about, description=about)
        model_options(verb, n)
        verb.set_defaults(function=run_on_model, measure=function)
    for name in ("windows", "own", "trust", "maps", "budget", "layers", "guide"):
        about = "write the table between its marks"
        verbs.choices[name].add_argument("--page", type=Path, metavar="FILE", help=about)
    about = "measure on PIE-Bench: the folder with mapping_file.json"
    verbs.choices["edits"].add_argument("--data", type=Path, metavar="FOLDER", help=about)
    verb = verbs.choices["segmentation"]
    about = "gtsegs_ijcv.mat of ImageNet-Segmentation, or the folder VOC2012"
    verb.add_argument("--data", type=Path, required=True, metavar="PATH", help=about)
    about = "names of ImageNet's synsets (LOC_synset_mapping.txt)"
    verb.add_argument("--names", type=Path, metavar="FILE", help=about)
    verb.set_defaults(steps=None)
    verb = verbs.choices["windows"]
    for name, usual in (("cross", (0.0, 0.1, 0.3, 0.8)), ("self", (0.0, 0.4))):
        verb.add_argument(
            f"--{name}", type=float, nargs="+", default=usual, help=f"windows, up to {usual}"
        )
    verb.add_argument(
        "--kind", nargs="+", default=kinds.KINDS, choices=kinds.KINDS, help="of edits (all)"
    )
    verb = verbs.choices["guide"]
    about = "the folder of pictures and verdicts (outputs/guide)"
    verb.add_argument(
        "--keep", type=Path, default=Path("outputs/guide"), metavar="FOLDER", help=about
    )
    about = "captions of a kind that are drawn plainly (2000)"
    verb.add_argument("--most", type=int, default=2000, help=about)
    verb.add_argument(
        "--kind", nargs="+", default=guided.KINDS, choices=guided.KINDS, help="of captions (all)"
    )
    about = "way that is drawn, as the table names it (all); of others what --keep has"
    verb.add_argument("--way", nargs="+", default=(), help=about)
    about = "is the judge of pictures right? trains it first, unless told to check"
    verb = verbs.add_parser("judge", help=about, description=about)
    judge_options(verb)
    verb.set_defaults(function=run_judge)
    verb = verbs.choices["maps"]
    verb.set_defaults(steps=truth.STEPS)
    verb.add_argument("--drawn", type=int, default=100, help="captions drawn by the model (100)")
    options = parser.parse_args(arguments)
    if getattr(options, "n", 1) < 1:
        parser.error("--n must be at least 1")
    return options


def main() -> None:
    options = parse()
    try:
        options.function(options)
    except HeedmapError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
