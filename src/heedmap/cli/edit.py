"""`heedmap edit`: an image and its edits, from one noise."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.cli.generate import KEEP
from heedmap.errors import plural
from heedmap.options import EditOptions, LoadOptions

if TYPE_CHECKING:
    from heedmap.results.pairs import Pair

FILES = {
    "source_image": "source/image.png",
    "edited_image": "edited/image.png",
    "given_image": "source/given.png",
    "page": "index.html",
    "sheet": "sheet.png",
    "difference": "difference.png",
    "blend": "blend.png",
    "figures": "pair.json",
}


def edit(
    source: opt.Source,
    targets: opt.Targets = None,
    *,
    model: opt.Model = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    seed: opt.Seed = None,
    steps: opt.Steps = None,
    guidance: opt.Guidance = None,
    size: opt.Size = None,
    negative: opt.Negative = None,
    keep: opt.Keep = KEEP,
    cross: opt.Cross = None,
    self_attention: opt.SelfAttention = None,
    words: opt.WordWindows = None,
    renormalize: opt.Renormalize = EditOptions.renormalize,
    kind: opt.Kind = "auto",
    only: opt.Only = None,
    protect: opt.Protect = None,
    threshold: opt.Threshold = EditOptions.threshold,
    blend_from: opt.BlendFrom = EditOptions.blend_from,
    image: opt.SourceImage = None,
    batch: opt.Batch = None,
    out: opt.OutOfSeveral = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Generate SOURCE and its edit to each TARGET from one noise.

    The words that stay keep the attention of the source. With --image, edits an image of yours.
    Saves both images with their maps, their difference, a sheet and the figures.
    """
    from heedmap.io.writing import slug

    place = console.destination(out, several=len(targets or ()) > 1)
    word_windows = opt.by_word(words, "words")
    pipe = console.load_model(model, device, dtype, quiet or json)
    from heedmap.pipelines import editing

    with console.sampling("Sampling", quiet or json) as (warnings, advance):
        made: Any = editing.edit(
            pipe,
            source,
            *([targets] if targets else []),
            seed=seed,
            steps=steps,
            guidance=guidance,
            size=size,
            negative=negative,
            keep=keep,
            cross=cross,
            self_attention=self_attention,
            words=word_windows,
            renormalize=renormalize,
            kind=None if kind == "auto" else kind,
            only=only,
            protect=protect or (),
            threshold=threshold,
            blend_from=blend_from,
            image=image,
            batch=batch,
            progress=advance,
        )
        pairs = [
            pair_summary(
                place.put(pair.save, f"{slug(text, 48)}-{pair.edited.settings.seed}"), pair
            )
            for text, pair in zip(targets or [source], made if targets else [made], strict=True)
        ]

    def show() -> None:
        for pair in pairs:
            print_pair(pair)

    folders = [pair["folder"] for pair in pairs]
    console.print_result({"edits": pairs, "warnings": warnings}, folders, show, json, quiet)
    if open_:
        console.open_in_browser(Path(folders[0]) / "index.html")


def pair_summary(folder: Path, pair: "Pair") -> dict[str, Any]:
    """Describe a saved edit for `--json`."""
    from heedmap.io.schemas import to_json

    settings, names = pair.edited.settings, ("seed", "steps", "guidance", "size", "model")
    files = {name: folder / file for name, file in FILES.items() if (folder / file).exists()}
    return {
        "folder": str(folder),
        "source": pair.source.settings.prompt,
        "edited": settings.prompt,
        **{name: getattr(settings, name) for name in names},
        "size": list(pair.edited.image.size),
        "files": {name: str(file) for name, file in files.items()},
        "about": to_json(pair.about),
    }


def print_pair(pair: Mapping[str, Any]) -> None:
    """Print how much an edit changed."""
    from heedmap.io.schemas import returned

    report, region = pair["about"], "mask" if "blend" in pair["files"] else "changed words"
    formats = {"mse": ".2g", "psnr_db": ".1f", "ssim": "z.2f"}
    rows = [
        (
            f"{side} the {region}",
            f"{change['share']:.0%}",
            *(
                "-" if change[name] is None else f"{change[name]:{form}}"
                for name, form in formats.items()
            ),
        )
        for side, change in report["change"].items()
    ]
    columns = ("change", "of the image", "MSE", "PSNR (dB)", "SSIM")
    console.print_table(columns, rows, pair["folder"], right=columns[1:])
    if report.get("reconstruction"):
        typer.echo(f"Your image {returned(report['reconstruction']['psnr_db'])}.")
    typer.echo(f"{report['kind'].capitalize()}: {report['why']}.")
    if report.get("masked_by"):
        typer.echo(f"Mask: the region of {report['masked_by']}.")
    size, steps = "×".join(map(str, pair["size"])), plural(pair["steps"], "step")
    typer.echo(f"{size}, seed {pair['seed']}, {steps}. Open {pair['files']['page']}.")
    typer.echo(
        f"The edit moved {report['moved']:.1%} of the attention. It acted "
        f"{plural(report['sites'], 'time')} (layers × steps), and replaced self-attention "
        f"{plural(report['self_sites'], 'time')}."
    )
