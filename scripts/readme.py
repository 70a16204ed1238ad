"""Make the README's figures and its card table from the embedded model and its card.

    python scripts/readme.py            the picture of the first screen, and the table
    python scripts/readme.py --table    the table alone

`tests/test_house.py` compares the table with the card.
"""

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GALLERY = ROOT / "outputs" / "gallery"
BEGIN, END = "<!-- card -->", "<!-- /card -->"


def table(card: dict[str, Any]) -> str:
    """The card's figures as a Markdown table between its marks."""
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
    ]
    lines = [
        BEGIN,
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
        END,
    ]
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "none to judge" if value is None else f"{100 * value:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="the table alone, no pictures")
    options = parser.parse_args()
    import heedmap as hm
    from heedmap import models

    text = README.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(before + table(models.card()) + after, encoding="utf-8")
    if options.table:
        return
    GALLERY.mkdir(parents=True, exist_ok=True)
    run = hm.generate(hm.load(), "a red house next to a blue tree", seed=7)
    run.sheet().save(GALLERY / "red-house-blue-tree.png", optimize=True)
    print(json.dumps({"gallery": [str(p) for p in GALLERY.iterdir()]}))


if __name__ == "__main__":
    main()
