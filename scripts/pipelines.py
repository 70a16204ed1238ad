"""List the pipelines of diffusers that draw an image of a prompt: served, or why they are refused.

    python scripts/pipelines.py            print the table
    python scripts/pipelines.py --write    write it into the README of the backends

What is refused, and with which words, is said by `heedmap.backends.registry`, as of a model's
`model_index.json` before its weights are loaded. `tests/scripts/test_pipelines.py` compares the
table in the README with the installed diffusers.
"""

import argparse
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import diffusers

from heedmap.backends import registry
from heedmap.errors import ModelError
from readme import marked

PAGE = Path(__file__).parents[1] / "src" / "heedmap" / "backends" / "README.md"
NAME = "pipelines"
OTHERS = {"strength", "mask_image", "control_image", "controlnet_conditioning_scale"}
"""Arguments of pipelines that draw on an image of the user's."""


def pipelines() -> dict[str, type]:
    """Return the classes of diffusers that draw an image of a prompt alone, by name."""
    kinds = {name: getattr(diffusers, name) for name in dir(diffusers) if "Pipeline" in name}
    return {name: kind for name, kind in kinds.items() if _draws_from_text(name, kind)}


def _draws_from_text(name: str, kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    if hasattr(kind, "_backends"):  # what stands for a class whose requirements are not installed
        is_listed = any(name in names for names in registry.UNSERVED.values())
        return is_listed and "Img2Img" not in name
    if not issubclass(kind, diffusers.DiffusionPipeline):
        return False
    parameters = inspect.signature(kind.__call__).parameters
    needed = [one for one, given in parameters.items() if given.default is given.empty]
    moving = [one for one in parameters for part in ("frame", "video", "audio") if part in one]
    if moving or OTHERS & parameters.keys() or any("image" in one for one in needed):
        return False
    return {"prompt", "num_images_per_prompt"} <= parameters.keys()


def modular_pipelines() -> dict[str, type]:
    """Return the modular pipelines of diffusers that make images of a prompt, by name."""
    names = [name for name in dir(diffusers) if name.endswith("ModularPipeline")]
    kinds: dict[str, type] = {}
    for name in names:
        kind = getattr(diffusers, name)
        if getattr(kind, "default_blocks_name", None) is None:
            continue
        blocks = _blocks_of(kind)
        makes_images = "images" in blocks.output_names
        needs_image = "image" in blocks.required_inputs
        if makes_images and not needs_image and "prompt" in blocks.input_names:
            kinds[name] = kind
    return kinds


@cache
def _blocks_of(kind: Any) -> Any:
    return getattr(diffusers, kind.default_blocks_name)()


def index_of(name: str, kind: type) -> dict[str, Any]:
    """Return what the index of such a pipeline says of its denoiser."""
    index: dict[str, Any] = {"_class_name": name}
    if issubclass(kind, diffusers.ModularPipeline):
        for spec in _blocks_of(kind).expected_components:
            index[spec.name] = ["diffusers", spec.type_hint.__name__]
        return index
    parts = inspect.signature(kind.__init__).parameters
    for part in {family.component for family in registry.families()} & parts.keys():
        annotation = parts[part].annotation
        index[part] = ["diffusers", getattr(annotation, "__name__", str(annotation))]
    return index


def answer(name: str, kind: type) -> str:
    """Return whether heedmap serves a class, or the reason why it refuses it."""
    try:
        family = registry.family_named(index_of(name, kind))
    except ModelError as error:
        return str(error).removeprefix(name).partition(": ")[0].strip()
    return f"served (`{family.__name__}`)"


def table() -> str:
    """Return the table in Markdown."""
    every = {**pipelines(), **modular_pipelines()}
    rows = [f"| `{name}` | {answer(name, kind)} |" for name, kind in sorted(every.items())]
    return "\n".join([f"| diffusers {diffusers.__version__} | |", "| --- | --- |", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write it into the README")
    if not parser.parse_args().write:
        print(table())
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(f"<!-- {NAME} -->")
    text = before + marked(NAME, table()) + rest.split(f"<!-- /{NAME} -->")[1]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
