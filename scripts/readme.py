"""Make the pictures and the tables of the pages for readers from the embedded model and its card.

    python scripts/readme.py                          the tables, and every picture
    python scripts/readme.py house-over-steps.png     the tables, and this picture
    python scripts/readme.py --table                  the tables alone

`tests/scripts/test_readme.py` compares the tables with the card, and the pictures that the pages
show with the recipes. The picture of a run's page is taken in Chromium, which
`HEEDMAP_CHROMIUM` names where it is called otherwise.
"""

import argparse
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from PIL import Image, ImageChops

from heedmap.maps.recordings import Layer
from heedmap.options import Axis

ROOT = Path(__file__).parents[1]
CARD = ROOT / "src" / "heedmap" / "tiny" / "README.md"
EDITS = ROOT / "scripts" / "evaluation" / "README.md"
PAGES = {"card": CARD, "layers": CARD, "joint": CARD, "edits": EDITS, "joint edits": EDITS}
"""On which page each table stands, between its marks."""
GALLERY = ROOT / "outputs" / "gallery"
MISREAD = (("relation", 4), ("colour", 7), ("colour", 17))
"""Words of `evaluate.py trust --seed 0` whose heat is not where they act, with their pictures."""
GONE_WRONG: dict[Literal["noun", "colour"], tuple[int, ...]] = {"noun": (2, 18), "colour": (12,)}
"""The swaps that `evaluate.py edits --n 100 --seed 0` finds wrong: what is swapped, and numbers."""

JOINT_WRONG = (("count_three", 0), ("count_three", 15), ("count_three", 20))
"""Pictures that `evaluate.py obey --model joint --seed 0` finds wrong: row and number."""


def cards() -> list[dict[str, Any]]:
    """Return the cards of the embedded models, that of the UNet first."""
    from heedmap.tiny import FOLDERS

    return [json.loads((one / "card.json").read_text(encoding="utf-8")) for one in FOLDERS.values()]


def tables() -> dict[str, str]:
    """Return the Markdown between the marks `<!-- name -->` and `<!-- /name -->`, by name."""
    card, joint = cards()
    return {
        "card": _card_table(card),
        "joint": _card_table(joint),
        "layers": _layers_table(card["measured"]["pointing"]),
        "edits": _edits_table(card["edits"]),
        "joint edits": _edits_table(joint["edits"]),
    }


def marked(name: str, text: str) -> str:
    """A text between its marks."""
    return f"<!-- {name} -->\n{text}\n<!-- /{name} -->"


def _card_table(card: dict[str, Any]) -> str:
    training, measured = card["training"], card["measured"]
    one, two = measured["one_object"], measured["two_objects"]
    pointing, n = measured["pointing"], measured["n"]
    plain, counts, twins = (measured[name] for name in ("no_colour", "counts", "same_noun"))
    rows = [
        ("one object: noun and colour right", one["noun_and_colour"], one["n"]),
        ("two objects: both nouns and colours right", two["nouns_and_colours"], two["n"]),
        (
            "relation right, if both objects are there",
            measured["relation"]["right"],
            measured["relation"]["n"],
        ),
        ("setting right", measured["setting"]["right"], measured["setting"]["n"]),
        (
            "colour and noun never combined in training",
            measured["unseen_pairs"]["noun_and_colour"],
            measured["unseen_pairs"]["n"],
        ),
        *(
            (f"maximum of the {kind}'s map inside the object, {scene}", value, n)
            for kind, scene, value, n in (
                ("noun", "one object", pointing["noun_one"], pointing["n"]["noun_one"]),
                ("noun", "two objects", pointing["noun_two"], pointing["n"]["noun_two"]),
                ("colour", "one object", pointing["colour_one"], pointing["n"]["colour_one"]),
            )
        ),
        (
            "a higher weight gives more of the colour (0, 1, 3)",
            measured["reweighting"]["right"],
            measured["reweighting"]["n"],
        ),
        ("no colour word: noun right", plain["noun_right"], n),
        ("no colour word: noun right, in its natural colour", plain["natural"], n),
        ("no colour word: share of the object in another colour", plain["patchwork"], n),
        ("“two cats”: two, and nothing else", counts["two"], n),
        ("“three red balloons”: three, and nothing else", counts["three"], n),
        ("two objects of one noun in two colours: both right", twins["both_right"], n),
        ("two objects of one noun: maximum of each map inside its object", twins["pointing"], n),
        ("small object: there, in its colour", measured["small"]["there"], measured["small"]["n"]),
        (
            "unknown word (giraffe, robot): something is drawn",
            measured["unknown_words"]["something"],
            measured["unknown_words"]["n"],
        ),
    ]
    lines = [
        "| measured | share | images |",
        "| --- | --- | --- |",
        *(f"| {what} | {_percent(value)} | {n} |" for what, value, n in rows),
        "",
        f"The judge itself is right on {_percent(measured['judge']['rendered_right'])} of "
        "rendered held-out scenes. The model was trained on "
        f"{training['samples_seen']:,} samples; images have {measured['steps']} steps at guidance "
        f"{measured['guidance']:g}; the autoencoder reconstructs held-out scenes at "
        f"{measured['vae_psnr_db']} dB; all files are {measured['size_mib']} MiB. Measured on "
        f"{measured['date']} with `{measured['command']}`.",
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
        "| layer | cells | noun, one object | noun, two | colour, one object | colour, two |",
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
        "`only=`, quoted words": edits["baselines"]["word_alone"],
        "`edit(…)`": edits["baselines"]["without_blend"],
        "without self-attention": edits["baselines"]["cross_only"],
        "published rules": edits["baselines"]["published_rules"],
        "same seed, no replacement": edits["baselines"]["same_seed"],
    }
    lines = [
        "| | noun replaced: done | cut | changed elsewhere "
        "| colour replaced: done | cut | changed elsewhere |",
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
    ruled = edits["baselines"]["published_rules"]
    medians = [ruled[kind]["outside_mse_ratio_median"] for kind in ("noun_swap", "colour_swap")]
    lines += [
        "",
        f"{noun['n']} replacements of nouns and {colour['n']} of colours:",
        "",
        "- *Done*: the share of edits in which the judge finds the target. Only edits count whose "
        "target plain generation shows from the same noise, too "
        f"({_percent(noun['attainable'])} of the nouns, {_percent(colour['attainable'])} of the "
        "colours).",
        "- *Changed elsewhere*: the mean squared error against the source outside the object, "
        "divided by that of plain generation of the new prompt (1: nothing was kept). It is a "
        "ratio of means; with the published "
        f"rules, the median is {medians[0]:.2f} for nouns and {medians[1]:.2f} for colours.",
        "- *Cut*: the share in which the mask of `only=` cuts off more than a fifth of the new "
        "object (in squared error).",
        "",
        "**Weights.** A colour word gets the weights −1, 0, 1, 2 and 4. In "
        f"{_percent(weighted['monotone'])} of {weighted['n']} series, a higher weight gives more "
        f"of the colour (with a tolerance of {100 * weighted['tolerance']:g} % of the object). "
        "Weights above 1 use `renormalize=True`; without it, the order holds in "
        f"{_percent(published['monotone'])} of {published['n']}.",
        "",
        "**Regions.** An object confined to one half of the image has its centre there in "
        f"{_percent(confined['inside'])} of {confined['n']} images; without `Confine` in "
        f"{_percent(confined['plain']['inside'])}.",
        "",
        f"Measured on {edits['date']} with the model after {edits['samples_seen']:,} "
        f"samples, by `{edits['command']}`.",
    ]
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "none to judge" if value is None else f"{100 * value:.1f} %"


# --- the pictures -----------------------------------------------------------------------------


HOUSE = "a red house next to a blue tree"


def _house(pipe: Any, *more: Axis) -> Any:
    """The README's run."""
    import heedmap as hm

    return hm.generate(pipe, HOUSE, seed=7, keep=("layer", "step", *more))


def _words(pipe: Any) -> Image.Image:
    """The run's picture and the heat of four words, in one row."""
    from heedmap.figures.overlays import enlarge
    from heedmap.figures.plots import Panel, ScaleBar, draw_panels, render
    from heedmap.maps.heatmaps import SCALES

    run = _house(pipe)
    heats = [run.maps[word] for word in ("red", "house", "blue", "tree")]
    panels = [Panel("", enlarge(run.image), "the image")]
    panels += [Panel(heat.label, heat.overlay(scale="shared")) for heat in heats]
    bar = ScaleBar(SCALES["shared"], heats[0].value_range("shared"))
    return render(draw_panels(panels, title=HOUSE, bars=[bar], columns=5))


def _edits(pipe: Any) -> Image.Image:
    """The README's run and three edits of it, in one row."""
    import heedmap as hm
    from heedmap.figures.overlays import enlarge
    from heedmap.figures.plots import Panel, draw_panels, render

    targets = [HOUSE.replace("house", "car"), HOUSE.replace("blue", "green"), f"{HOUSE} at night"]
    pairs = hm.edit(pipe, HOUSE, targets, seed=7)
    drawn = [(HOUSE, pairs[0].source.image)]
    drawn += [(target, pair.edited.image) for target, pair in zip(targets, pairs, strict=True)]
    panels = [Panel("", enlarge(image), prompt) for prompt, image in drawn]
    return render(draw_panels(panels, columns=4))


def _timeline(pipe: Any) -> Image.Image:
    """The house over the steps."""
    from heedmap.figures.plots import render

    return render(_house(pipe).timeline("house", frames=5))


def chromium() -> str | None:
    """The browser that takes pictures of pages, where there is one."""
    return os.environ.get("HEEDMAP_CHROMIUM") or shutil.which("chromium")


def _page(pipe: Any) -> Image.Image:
    """The page of the README's run, in a browser, with one word pinned.

    Raises:
        SystemExit: if there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    if (found := chromium()) is None:
        raise SystemExit("There is no Chromium: install it, or name one in HEEDMAP_CHROMIUM.")
    text = _house(pipe, "head").explorer()
    with sync_playwright() as playwright:
        # Root may not use the sandbox, and a container is one itself.
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 940})
        page.set_content(text)
        page.wait_for_selector("html[data-ready=yes]")
        page.get_by_role("button", name="house", exact=True).first.click()
        page.mouse.move(0, 0)
        taken = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(taken))


def _gone_wrong(pipe: Any) -> Image.Image:
    """Swaps that went wrong: source, edit and what plain generation draws.

    Raises:
        SystemExit: if one of them is right, as it may be with another model.
    """
    from evaluation import cases, judge, swaps
    from heedmap.figures.plots import draw_panels, render

    eye, how = judge.load(), {"steps": 25, "guidance": 4.0}
    panels = []
    for kind, numbers in GONE_WRONG.items():
        every = cases.swaps(kind, max(numbers) + 1, 0)
        todo = [every[number] for number in numbers]
        drawn = swaps.draw(pipe, kind, todo, eye, lambda *_: None, **how)
        for number, swap in zip(numbers, drawn, strict=True):
            if swap.right("edit"):
                raise SystemExit(
                    f"Swap {number} of a {kind} went right: list in GONE_WRONG those that "
                    "`python scripts/evaluate.py edits --sheet FILE` shows to be wrong."
                )
        panels += swaps.panels(drawn)
    figure = draw_panels(
        panels,
        columns=3,
        title="Swaps that went wrong",
        note="Each: the source, the edit, and what the edited prompt draws by itself.",
    )
    figure.set_dpi(96)  # as wide as a page shows it
    return render(figure)


def _misread(pipe: Any) -> Image.Image:
    """Words whose heat does not lie where they act, both ways."""
    import heedmap as hm
    from evaluation import trust
    from heedmap.figures.plots import draw_panels, render

    panels = []
    for kind, number in MISREAD:
        plan = trust.plans(number + 1)[number]
        word = trust.words_of(plan)[trust.KINDS.index(kind)]
        how = {"seed": plan.seed, "steps": 25, "guidance": 4.0}
        run = hm.generate(pipe, plan.caption.text, **how)
        panels += trust.row(hm.ablate(pipe, run, word.text), word)
    figure = draw_panels(
        panels,
        columns=6,
        title="Words whose heat is not where they act",
        note="Each: the image, the heat, and the image without the word, in both ways, with "
        "what that changes, from 0 to its own largest.",
    )
    figure.set_dpi(96)  # as wide as a page shows it
    return render(figure)


def _joint_wrong(_: Any) -> Image.Image:
    """Wrong pictures of the transformer, each with the heat of its nouns.

    Raises:
        SystemExit: if one of them is right, as it may be with another model.
    """
    import heedmap as hm
    from evaluation import judge, obedience
    from heedmap.figures.overlays import enlarge
    from heedmap.figures.plots import Panel, draw_panels, render

    pipe, eye, how = hm.load("joint"), judge.load(), {"steps": 25, "guidance": 4.0}
    pipe.set_progress_bar_config(disable=True)
    panels = []
    for row, number in JOINT_WRONG:
        plan = obedience.plans(row, number + 1)[number]
        (result,) = obedience.draw(pipe, row, [plan], eye, lambda *_: None, **how)
        if result.verdict == "right":
            raise SystemExit(f"Picture {number} of {row} is right: list others in JOINT_WRONG.")
        maps, text = result.run.maps, plan.caption.text
        panels.append(Panel(text, enlarge(result.run.image), result.verdict))
        starts = [mention.start for mention in plan.caption.mentions if mention.kind == "noun"]
        for word in maps.words:
            if word.start in starts:
                panels.append(Panel("", maps.at(word.number).overlay(), word.text))
    figure = draw_panels(panels, columns=6, title="Wrong pictures of the transformer")
    figure.set_dpi(96)  # as wide as a page shows it
    return render(figure)


PICTURES: dict[str, Callable[[Any], Image.Image]] = {
    "red-house-blue-tree.png": _words,
    "page.png": _page,
    "house-over-steps.png": _timeline,
    "edits.png": _edits,
    "edits-gone-wrong.png": _gone_wrong,
    "heat-and-cause.png": _misread,
    "joint-wrong.png": _joint_wrong,
}
"""How each picture of these pages is made, by its name in the gallery."""


def write(picture: Image.Image, path: Path) -> bool:
    """Write a picture if there is none or it has changed.

    Values that are off by 4 of 255 are no change: sums are rounded otherwise with other threads.

    Returns:
        whether the file was written.
    """
    picture = picture.convert("RGB")
    if path.exists():
        with Image.open(path) as older:
            same = older.size == picture.size
            off = ImageChops.difference(older.convert("RGB"), picture) if same else None
        if off is not None and max(most for _, most in cast(Any, off.getextrema())) <= 4:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)
    return True


# --- the command line -------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=", ".join(PICTURES))
    parser.add_argument("--table", action="store_true", help="the tables alone, no pictures")
    options = parser.parse_args(arguments)
    if unknown := set(options.pictures) - set(PICTURES):
        parser.error(f"no recipe for {', '.join(sorted(unknown))}: there are {', '.join(PICTURES)}")
    return options


def main() -> None:
    options = parse()
    import heedmap as hm

    for name, table in tables().items():
        before, rest = PAGES[name].read_text(encoding="utf-8").split(f"<!-- {name} -->")
        text = before + marked(name, table) + rest.split(f"<!-- /{name} -->")[1]
        PAGES[name].write_text(text, encoding="utf-8")
    if options.table:
        return
    pipe = hm.load()
    pipe.set_progress_bar_config(disable=True)
    for name in options.pictures or PICTURES:
        changed = write(PICTURES[name](pipe), GALLERY / name)
        print(name, "written" if changed else "unchanged", flush=True)


if __name__ == "__main__":
    main()
