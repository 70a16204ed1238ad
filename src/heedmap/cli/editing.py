"""`heedmap edit`: a prompt and what it becomes, from one noise, with the evidence."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedmap.cli.console import (
    print_files,
    print_table,
    printable,
    progress_bar,
    say,
    warnings_told,
)
from heedmap.cli.grids import Source, Targets, check_prompts_of_edit
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import (
    DrawFlags,
    EditFlags,
    LoadFlags,
    OutputFlags,
    PageFlags,
    SaveFlags,
    grouped,
)
from heedmap.errors import plural

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair


@grouped
def edit(
    source: Source,
    targets: Targets = None,
    *,
    loaded: LoadFlags,
    drawn: DrawFlags,
    changed: EditFlags,
    saved: SaveFlags,
    shown: PageFlags,
    told: OutputFlags,
) -> None:
    """Draw SOURCE and what it becomes when words are changed.

    Both from one noise, and with the source's attention for the words that stay; with --image from
    a picture of yours. Saves both pictures with their maps, their difference, a sheet of all and
    the figures.
    """
    from heedmap.files import kinds
    from heedmap.files.writing import Destination, slug
    from heedmap.text.weights import parse_weights, unchanged

    asked = targets or [source]
    check_prompts_of_edit(source, targets, changed)
    before = parse_weights(source)
    for target in asked:
        if parse_weights(target) == before and (targets or not before.spans):
            raise unchanged(before.text, target)
    place = Destination(saved.out, kinds.PAIR, force=saved.force, many=len(asked) > 1)
    options = changed.options() | drawn.options()
    pipe = loaded.pipeline(hidden=told.hidden)
    from heedmap.drawing import editing

    seed = drawn.first_seed()
    with (
        kept_told(place.places),
        warnings_told() as warned,
        progress_bar("Drawing", hidden=told.hidden) as advance,
    ):
        options |= {
            "cross": changed.cross,
            "self_attention": changed.own,
            "seed": seed,
            "progress": advance,
        }
        made = (
            editing.edit(pipe, source, list(targets), **options)
            if targets
            else [editing.edit(pipe, source, **options)]
        )
        abouts = [
            about_pair(place.put(pair.save, f"{slug(text, 48)}-{seed}"), pair)
            for text, pair in zip(asked, made, strict=True)
        ]

    def show() -> None:
        for about in abouts:
            print_pair(about)

    folders = [about["folder"] for about in abouts]
    told.tell({"edits": abouts, "warnings": warned}, folders, show)
    shown.open(folders)


def about_pair(folder: Path, pair: "Pair") -> dict[str, Any]:
    """What `edit --json` says of a pair."""
    from heedmap.files.notes import to_json

    settings, names = pair.edited.settings, ("seed", "steps", "guidance", "size", "model")
    files = {
        "source_image": "source/image.png",
        "edited_image": "edited/image.png",
        **({} if pair.source.given is None else {"given_image": "source/given.png"}),
        "page": "index.html",
        "sheet": "sheet.png",
        "difference": "difference.png",
        **({} if pair.blend is None else {"blend": "blend.png"}),
        "figures": "pair.json",
    }
    return {
        "folder": str(folder),
        "source": pair.source.settings.prompt,
        "edited": settings.prompt,
        **{name: getattr(settings, name) for name in names},
        "size": list(pair.edited.image.size),
        "files": {name: str(folder / file) for name, file in files.items()},
        "about": to_json(pair.about),
    }


def print_pair(about: Mapping[str, Any]) -> None:
    """Print what was saved of an edit, what it was, and how much it changed."""
    size = "×".join(map(str, about["size"]))
    drawn = f"{size}, seed {about['seed']}, {plural(about['steps'], 'step')}"
    own = "given_image" in about["files"]
    source = "your picture, as it comes back" if own else f"“{about['source']}”"
    origin = "made of your picture" if own else "from the same noise"
    what = {
        "source_image": f"{source}: {drawn}",
        "edited_image": f"“{about['edited']}”, {origin}",
        "given_image": "your picture, as the model saw it",
        "page": "the page, side by side: open it in a browser",
        "sheet": "both, their difference, and where the changed words acted",
        "difference": "how much each pixel changed",
        "blend": "where the edit was let in",
        "figures": "the figures, and how it was edited",
    }
    print_files(about["folder"], {file: what[name] for name, file in about["files"].items()})
    from heedmap.files.reports import returned

    found, where = about["about"], "the mask" if "blend" in about["files"] else "the changed words"
    figures = [
        (
            f"{side} of {where}",
            f"{change['share']:.0%}",
            *(
                "-" if change[name] is None else f"{change[name]:{form}}"
                for name, form in (("mse", ".2g"), ("psnr_db", ".1f"), ("ssim", "z.2f"))
            ),
        )
        for side, change in found["change"].items()
    ]
    columns = ("change", "of the picture", "MSE", "PSNR (dB)", "SSIM")
    print_table(columns, figures, right=columns[1:])
    if "reconstruction" in found:
        say(f"Your picture {returned(found['reconstruction']['psnr_db'])}.")
    say(f"{found['kind'].capitalize()}: {printable(found['why'])}.")
    if "masked_by" in found:
        say(f"The mask is where these act: {printable(found['masked_by'])}.")
    acted, taken = (plural(found[name], "time") for name in ("sites", "self_sites"))
    took = "the source's self-attention"
    took = f"{took} {taken}" if found["self_sites"] else f"none of {took}"
    say(
        f"The edit moved {found['moved']:.1%} of the attention: it acted {acted} (each layer at "
        f"each step counts), and took over {took}."
    )
