"""Load a pipeline: the embedded model, a folder, or a model from the hub."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from heedmap import checks
from heedmap.errors import ArgumentError, ModelError, quoted
from heedmap.io import reading
from heedmap.io.reading import MAX_ASPECT, MAX_PIXELS, MAX_SIDE
from heedmap.options import Device, Dtype, LoadOptions
from heedmap.text.tokens import tokenize
from heedmap.text.words import TokenTable
from heedmap.tiny.card import EMBEDDED, FOLDER

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    class CallablePipeline(DiffusionPipeline):
        """The type of a loaded pipeline: the base class of diffusers has no `__call__`."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Call the pipeline as its own class says."""


DEVICES, DTYPES = get_args(Device), get_args(Dtype)
_PICKLES = (".ckpt", ".bin", ".pt", ".pth", ".pkl")
_UNREACHABLE = {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "ConnectTimeout"}


def is_embedded(pipe: Any) -> bool:
    """Whether the pipeline was loaded from the embedded model's folder."""
    return name_of(pipe) == EMBEDDED


def name_of(pipe: Any) -> str:
    """What the pipeline was loaded from: a hub id, a folder, or "heedmap-tiny"."""
    name = str(getattr(pipe, "name_or_path", "") or type(pipe).__name__)
    return EMBEDDED if name == str(FOLDER) else name


def load(
    model: str | Path | None = None,
    *,
    device: Device = LoadOptions.device,
    dtype: Dtype = LoadOptions.dtype,
) -> "CallablePipeline":
    """Load a pipeline of Stable Diffusion or PixArt, ready to generate.

    The embedded model was taught some 70 words, which its card lists (`heedmap.backends.cards`). A
    prompt with others is drawn as well as it can be, and a warning names them.

    Args:
        model: None for the embedded model (needs no network), a folder that `save_pretrained`
            wrote, the id of a model on the hub, or a .safetensors checkpoint file, whose
            configuration comes from the hub. Only safetensors weights are read.
        device: "cpu", "cuda", "mps", or "auto" for the best one there is.
        dtype: "float32", "float16", "bfloat16", or "auto": float32 on the CPU, else float16.

    Returns:
        A diffusers pipeline. Its safety checker is left out for the embedded model only, which has
        none.

    Raises:
        ArgumentError: if device or dtype is not known or not there.
        ModelError: if the model is not there, is broken, or is of no family that is
            served.
    """
    torch_device, torch_dtype = _place(device, dtype)
    where = _where(model)
    from heedmap.backends.active_calls import (
        hushed,  # without a model nothing of diffusers is imported
    )

    with hushed():
        import diffusers

        from heedmap.backends.registry import check_served, family_named

        index = _index(where)
        family_named(index)  # before any weights are read
        with _explained(where):
            if isinstance(where, Path) and where.is_file():
                kind = getattr(diffusers, index["_class_name"])
                pipe = kind.from_single_file(str(where), dtype=torch_dtype)
                for part in (pipe, *pipe.components.values()):  # else named for its configuration
                    if hasattr(part, "register_to_config"):
                        part.register_to_config(_name_or_path=str(where))
                    elif part is not None:
                        getattr(part, "config", part).name_or_path = str(where)
            else:
                own = {"use_safetensors": True, "local_files_only": isinstance(where, Path)}
                load_parts: Any = diffusers.DiffusionPipeline.from_pretrained
                pipe = load_parts(str(where), dtype=torch_dtype, **own)

    check_served(pipe)
    return pipe.to(torch_device)


def of_kind(pipe: "DiffusionPipeline", name: str) -> "DiffusionPipeline":
    """A pipeline of the class of this name, of the same parts; the pipeline if there is none."""
    import diffusers

    kind: Any = getattr(diffusers, name, None)
    other = isinstance(kind, type) and issubclass(kind, diffusers.DiffusionPipeline)
    return kind.from_pipe(pipe, dtype=pipe.dtype) if other and kind is not type(pipe) else pipe


def tokenizer(model: str | Path | None = None) -> Any:
    """Only the tokenizer of a model: no weights are read and no pipeline is imported.

    Raises:
        ModelError: if there is none.
    """
    where = _where(model)
    _index(where)  # transformers does not say that the hub cannot be reached
    where = _repository(where)
    from transformers import CLIPTokenizer

    with _explained(where):
        if isinstance(where, Path):
            found = CLIPTokenizer.from_pretrained(where / "tokenizer", local_files_only=True)
        else:
            found = CLIPTokenizer.from_pretrained(where, subfolder="tokenizer")
        # transformers makes an empty tokenizer where it finds no files; a CLIP vocabulary has at
        # least a piece for each byte, within a word and at its end.
        if len(found) < 512:
            raise FileNotFoundError("no vocabulary")
    return found


def token_table(prompt: str, model: str | Path | None = None) -> TokenTable:
    """The words and tokens of a prompt as a model reads it; none of its weights are read.

    Args:
        prompt: one text.
        model: as in `load`.

    Raises:
        ArgumentError: if the prompt is not a text, or too long.
        ModelError: if there is no tokenizer, or nothing is known of how the model reads.
    """
    where = _where(model)
    index = {} if where == FOLDER else _index(where)
    kind = (index.get("tokenizer") or (None, None))[-1]
    if kind is None or str(kind).startswith("CLIP"):
        return tokenize(prompt, tokenizer(model))
    # What else is made of a text is the pipeline's own: it is loaded without its large parts.
    from heedmap.backends.active_calls import hushed

    with hushed():
        from diffusers import DiffusionPipeline

        from heedmap.backends.registry import family_named

        family = family_named(index)
        large = {n: None for n, part in index.items() if isinstance(part, list)}
        large.pop("tokenizer", None)
        with _explained(where):
            pipe: Any = DiffusionPipeline.from_pretrained(str(where), **large)
    return family.table(pipe, pipe.tokenizer, prompt, {})


def _index(where: Path | str) -> dict[str, Any]:
    """Read the model_index.json of a folder or of a hub id; for a file, that of its repository."""
    from transformers.utils import cached_file

    name, source = "model_index.json", _repository(where)
    with _explained(where):
        path = source / name if isinstance(source, Path) else Path(str(cached_file(source, name)))
        found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _repository(where: Path | str) -> Path | str:
    """Return the hub id with the configuration of a checkpoint file; else what was given."""
    if not isinstance(where, Path) or where.is_dir():
        return where
    with _explained(where):
        from diffusers.loaders import single_file_utils as single

        checkpoint = single.load_single_file_checkpoint(str(where))
        if single.CHECKPOINT_KEY_NAMES["inpainting"] not in checkpoint:
            raise ValueError("it has no UNet in the original format of Stable Diffusion")
        return single.fetch_diffusers_config(checkpoint)["pretrained_model_name_or_path"]


def check_size(pipe: Any, size: object) -> tuple[int, int]:
    """A size (width, height) in pixels; ArgumentError unless a pipeline can draw it."""
    from heedmap.backends.registry import unit, usual_size

    factor = unit(pipe)
    sides = checks.in_order(size) or []
    if len(sides) == 2:
        width, height = (checks.whole("a side of the size", side) for side in sides)
        if all(0 < side <= MAX_SIDE and side % factor == 0 for side in (width, height)):
            if width * height > MAX_PIXELS or max(sides) > MAX_ASPECT * min(sides):
                raise ArgumentError(
                    f"the size {width}×{height} is not drawn: expected at most {MAX_PIXELS} pixels "
                    f"in all, and no side above {MAX_ASPECT} times the other"
                )
            return width, height
    expected = f"that are multiples of {factor} pixels, up to {MAX_SIDE}"
    if checks.in_order(size) is None:  # a text, one number, a set
        expected = f"in pixels, as in {usual_size(pipe)}"
    raise ArgumentError(
        f"the size {quoted(size)} does not fit the model: expected a width and a height {expected}"
    )


def _where(model: str | Path | None) -> Path | str:
    if model is None or str(model) == EMBEDDED:
        return FOLDER
    path = reading.path_of(model)
    if os.path.isfile(path / "model_index.json"):
        return path
    text, suffix = str(model), path.suffix.lower()
    if suffix in _PICKLES:
        raise ModelError(
            f"the model {text} is a pickle file, which can run code when it is read: expected "
            "safetensors weights; look for a .safetensors version of the model, or convert it"
        )
    if path.suffix == ".safetensors" and os.path.isfile(path):
        return path
    if os.path.exists(path) or text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise ModelError(
            f"there is no model {quoted(text)}: expected a folder that save_pretrained wrote, a "
            ".safetensors file, a hub id such as 'org/model', or nothing for the embedded model"
        )
    return text


def _place(device: str, dtype: str) -> tuple[Any, Any]:
    checks.one_of("device", device, DEVICES)
    checks.one_of("dtype", dtype, DTYPES)
    import torch

    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        device = next(name for name, available in there.items() if available)
    if not there[device]:
        raise ArgumentError(
            f"this machine has no {device} device that torch can use: take device='cpu' or 'auto'"
        )
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "float16"
    return torch.device(device), getattr(torch, dtype)


@contextmanager
def _explained(where: Path | str) -> Generator[None]:
    """Raise a ModelError for what fails in the block, with its cause unless that adds nothing."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
        name = EMBEDDED if where == FOLDER else str(where)
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__cause__ or chain[-1].__context__) and len(chain) < 10:
            chain.append(cause)
        file = isinstance(where, Path) and where.is_file()
        if (file or where == name) and {type(link).__name__ for link in chain} & _UNREACHABLE:
            needs = f"the file {name} needs the configuration of its kind of model, which"
            raise ModelError(
                f"{needs if file else f'the model {name}'} is not on this machine and the hub "
                "cannot be reached: load it once where there is a network, pass a folder that "
                "save_pretrained wrote, or use the embedded model"
            ) from None
        form = "whole checkpoint of Stable Diffusion 1, 2 or XL" if file else "diffusers pipeline"
        raise ModelError(
            f"the model {name} cannot be loaded ({type(error).__name__}: {reason}): expected a "
            f"{form} with safetensors weights"
        ) from error
