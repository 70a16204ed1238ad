"""`heedmap locate`: where the model sees each word of a prompt in an image of yours."""

from pathlib import Path
from typing import Annotated

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.cli.generate import print_run, run_summary
from heedmap.options import LOCATE_STEPS, GenerateOptions, LoadOptions

KEEP = ",".join(GenerateOptions.keep)


def locate(
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE", help="An image: PNG, JPEG, WebP or BMP.")
    ],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to find in it.")],
    *,
    model: opt.Model = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    seed: opt.Seed = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Number of noise levels at which the model is asked.")
    ] = LOCATE_STEPS,
    size: opt.Size = None,
    keep: opt.Keep = KEEP,
    concept: opt.Concepts = None,
    out: opt.Out = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Show where the model sees each word of PROMPT in IMAGE.

    No image is generated: the model is given IMAGE with noise, several times. Saves what `generate`
    saves; `heedmap segment` makes masks of it.
    """
    from heedmap.io.writing import slug

    place = console.destination(out)
    pipe = console.load_model(model, device, dtype, quiet or json)
    from heedmap.pipelines import input_images

    with console.sampling("Locating", quiet or json) as (warnings, advance):
        run = input_images.locate(
            pipe,
            image,
            prompt,
            seed=seed,
            steps=steps,
            size=size,
            keep=keep,
            concepts=concept or (),
            progress=advance,
        )
        name = f"{slug(image.stem, 24)}-{slug(prompt, 48)}-{run.settings.seed}"
        folder = place.put(run.save, name)
    found = run_summary(folder, run)
    data = {"runs": [found], "warnings": warnings}
    console.print_result(data, [folder], lambda: print_run(found), json, quiet)
    if open_:
        console.open_in_browser(folder / "index.html")
