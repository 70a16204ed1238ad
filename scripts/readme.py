"""Make the README's pictures and its tables from the embedded model and its card.

    python scripts/readme.py                          the tables, and every picture
    python scripts/readme.py house-over-steps.png     the tables, and this picture
    python scripts/readme.py --table                  the tables alone

`tests/test_house.py` compares the tables with the card, `tests/scripts/test_readme.py` the pictures
of the README with the recipes.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from PIL import Image, ImageChops

from heedmap.maps.recordings import Layer

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GALLERY = ROOT / "outputs" / "gallery"
GONE_WRONG = (54, 81, 107, 131, 148, 174)
"""The first swaps of nouns that `evaluate.py edits --n 200 --seed 0` finds wrong, by number."""


def tables(card: dict[str, Any]) -> dict[str, str]:
    """The Markdown between the marks `<!-- name -->` and `<!-- /name -->`, by name."""
    return {
        "card": _card_table(card),
        "layers": _layers_table(card["measured"]["pointing"]),
        "edits": _edits_table(card["edits"]),
    }


def marked(name: str, text: str) -> str:
    """A text between its marks."""
    return f"<!-- {name} -->\n{text}\n<!-- /{name} -->"


def _card_table(card: dict[str, Any]) -> str:
    training, measured = card["training"], card["measured"]
    one, two = measured["one_object"], measured["two_objects"]
    pointing = measured["pointing"]
    rows = [
        ("one thing: noun and colour right", one["noun_and_colour"], one["n"]),
        ("two things: both nouns and colours right", two["nouns_and_colours"], two["n"]),
        (
            "relation right, given both are there",
            measured["relation"]["right"],
            measured["relation"]["n"],
        ),
        ("setting right", measured["setting"]["right"], measured["setting"]["n"]),
        (
            "colour and noun that training never showed together",
            measured["unseen_pairs"]["noun_and_colour"],
            measured["unseen_pairs"]["n"],
        ),
        *(
            (f"hottest place of the {kind}'s map inside of the thing, {scene}", value, n)
            for kind, scene, value, n in (
                ("noun", "one thing", pointing["noun_one"], pointing["n"]["noun_one"]),
                ("noun", "two things", pointing["noun_two"], pointing["n"]["noun_two"]),
                ("colour", "one thing", pointing["colour_one"], pointing["n"]["colour_one"]),
            )
        ),
        (
            "more of the colour, the more its word weighs (0, 1, 3)",
            measured["reweighting"]["right"],
            measured["reweighting"]["n"],
        ),
        (
            "what is told to be small: there, in its colour",
            measured["small"]["there"],
            measured["small"]["n"],
        ),
        (
            "a word it was never told (giraffe, robot): something is drawn",
            measured["unknown_words"]["something"],
            measured["unknown_words"]["n"],
        ),
    ]
    lines = [
        "| measured | share | pictures |",
        "| --- | --- | --- |",
        *(f"| {what} | {_percent(value)} | {n} |" for what, value, n in rows),
        "",
        f"The judge itself is right on {_percent(measured['judge']['rendered_right'])} of "
        "rendered held-out scenes. The model has seen "
        f"{training['samples_seen']:,} samples; it drew {measured['steps']} steps at guidance "
        f"{measured['guidance']:g}; its autoencoder gives held-out scenes "
        f"back at {measured['vae_psnr_db']} dB; all files are {measured['size_mib']} MiB. Measured "
        f"on {measured['date']} with `{measured['command']}`.",
    ]
    return "\n".join(lines)


def _layers_table(pointing: dict[str, Any]) -> str:
    """How often each layer points right, and the mean of all; in the order of the UNet."""
    kinds = ("noun_one", "noun_two", "colour_one", "colour_two")
    rows = [
        (Layer(name, 0, (0, 0)).short, "{0}×{0}".format(of["grid"]), of)
        for name, of in pointing["layers"].items()
    ]
    rows.append(("mean of all", "", pointing))
    lines = [
        "| layer | cells | noun, one thing | noun, two | colour, one thing | colour, two |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, grid, of in rows:
        shares = " | ".join(_percent(of[kind]) for kind in kinds)
        lines.append(f"| {name} | {grid} | {shares} |")
    counts = " | ".join(str(pointing["n"][kind]) for kind in kinds)
    lines.append(f"| words | | {counts} |")
    return "\n".join(lines)


def _edits_table(edits: dict[str, Any]) -> str:
    ways = {
        "`edit(…, only=…)`": edits,
        "`only=`, the words alone": edits["baselines"]["word_alone"],
        "`edit(…)`": edits["baselines"]["without_blend"],
        "without self-attention": edits["baselines"]["cross_only"],
        "rules as published": edits["baselines"]["published_rules"],
        "same seed, nothing taken": edits["baselines"]["same_seed"],
    }
    lines = [
        "| | noun swapped: done | cut | changed elsewhere "
        "| colour swapped: done | cut | changed elsewhere |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for way, rows in ways.items():
        cells = [
            cell
            for kind in ("noun_swap", "colour_swap")
            for cell in (
                _percent(rows[kind]["success_of_attainable"]),
                _percent(rows[kind]["cut"]) if "only=" in way else "",
                f"{rows[kind]['outside_mse_ratio']:.2f}",
            )
        ]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    noun, colour = edits["noun_swap"], edits["colour_swap"]
    weighted, confined = edits["reweight"], edits["confine"]
    published = weighted["as_published"]
    lines += [
        "",
        f"Of {noun['n']} swaps of nouns and {colour['n']} of colours. Done: the target is there, "
        f"of the {_percent(noun['attainable'])} and {_percent(colour['attainable'])} in which "
        "plain generation from this noise shows it. Changed elsewhere: the squared error to the "
        "source outside of the thing, as a share of that of plain generation. Cut: more than a "
        "fifth of the new thing (in squared error) is not let in by the mask. A colour word "
        "weighted by −1, 0, 1, 2, 4 changes its colour in that order in "
        f"{_percent(weighted['monotone'])} of {weighted['n']} (steps back of up to "
        f"{weighted['tolerance']} aside: from 1 on it is full; weights above 1 with "
        f"`renormalize=True`; without in {_percent(published['monotone'])} of {published['n']}). "
        "A thing confined to one half of the picture has its centre there in "
        f"{_percent(confined['inside'])} of {confined['n']}, by chance in "
        f"{_percent(confined['plain']['inside'])}. Measured on {edits['date']} with the model as "
        f"it was after {edits['samples_seen']:,} samples, by `{edits['command']}`.",
    ]
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "none to judge" if value is None else f"{100 * value:.1f} %"


# --- the pictures -----------------------------------------------------------------------------


def _house(pipe: Any) -> Any:
    """The README's run."""
    import heedmap as hm

    return hm.generate(pipe, "a red house next to a blue tree", seed=7, keep={"layer", "step"})


def _gone_wrong(pipe: Any) -> Image.Image:
    """Swaps of nouns that went wrong: source, edit and what plain generation draws.

    Raises:
        SystemExit: if one of them is right, as it may be with another model.
    """
    from evaluation import cases, judge, swaps
    from heedmap.figures import blocks
    from heedmap.figures.layout import framed, in_rows

    every = cases.swaps("noun", max(GONE_WRONG) + 1, 0)
    todo = [every[number] for number in GONE_WRONG]
    how = {"steps": 25, "guidance": 4.0}
    drawn = swaps.draw(pipe, "noun", todo, judge.load(), lambda *_: None, **how)
    for number, swap in zip(GONE_WRONG, drawn, strict=True):
        if swap.right("edit"):
            raise SystemExit(
                f"Swap {number} of GONE_WRONG went right: list those that "
                "`python scripts/evaluate.py edits --sheet FILE` shows to be wrong."
            )
    panels = swaps.panels(drawn)
    threes = [in_rows(panels[at : at + 3], columns=3) for at in range(0, len(panels), 3)]
    rows = [
        blocks.beside(threes[at : at + 2], across=True, gap=64) for at in range(0, len(threes), 2)
    ]
    sheet = framed(
        blocks.beside(rows, across=False),
        title="Swaps that went wrong",
        note="Each: the source, the edit, and what the edited prompt draws by itself.",
    )
    sheet.dpi *= 2 / 3  # as wide as a page shows it
    return sheet.image()


PICTURES: dict[str, Callable[[Any], Image.Image]] = {
    "red-house-blue-tree.png": lambda pipe: _house(pipe).sheet(),
    "house-over-steps.png": lambda pipe: _house(pipe).timeline("house", frames=5).image(),
    "edits-gone-wrong.png": _gone_wrong,
}
"""How each picture of the README is made, by its name in the gallery."""


def made(name: str, pipe: Any, gallery: Path = GALLERY) -> bool:
    """Make a picture, and write it if there is none or it has changed.

    Values that are off by 4 of 255 are no change: sums are rounded otherwise with other threads.

    Returns:
        whether the file was written.
    """
    picture, path = PICTURES[name](pipe).convert("RGB"), gallery / name
    if path.exists():
        with Image.open(path) as older:
            same = older.size == picture.size
            off = ImageChops.difference(older.convert("RGB"), picture) if same else None
        if off is not None and max(most for _, most in cast(Any, off.getextrema())) <= 4:
            return False
    gallery.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)
    return True


# --- the command line -------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=", ".join(PICTURES))
    parser.add_argument("--table", action="store_true", help="the tables alone, no pictures")
    options = parser.parse_args()
    if unknown := set(options.pictures) - set(PICTURES):
        parser.error(f"no recipe for {', '.join(sorted(unknown))}: there are {', '.join(PICTURES)}")
    import heedmap as hm
    from heedmap.tiny.card import FOLDER

    card = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
    text = README.read_text(encoding="utf-8")
    for name, table in tables(card).items():
        before, rest = text.split(f"<!-- {name} -->")
        text = before + marked(name, table) + rest.split(f"<!-- /{name} -->")[1]
    README.write_text(text, encoding="utf-8")
    if options.table:
        return
    pipe = hm.load()
    pipe.set_progress_bar_config(disable=True)
    for name in options.pictures or PICTURES:
        print(name, "written" if made(name, pipe) else "as it was", flush=True)


if __name__ == "__main__":
    main()
