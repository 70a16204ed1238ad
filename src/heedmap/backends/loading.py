"""Load a pipeline, its tokenizer or its card: of the embedded model, a folder, or the hub."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct

from heedmap.checks import check_one_of
from heedmap.errors import ArgumentError, ModelError, RunError, quoted, reason
from heedmap.io import reading
from heedmap.options import Device, Dtype, LoadOptions
from heedmap.text.tokenization import tokenize
from heedmap.text.words import TokenTable
from heedmap.tiny import EMBEDDED, FOLDER, FOLDERS, JOINT, defaults

DEVICES = get_args(Device)
DTYPES = get_args(Dtype)


def is_embedded(pipe: Any) -> bool:
    """Return whether a pipeline is of an embedded model."""
    return name_of(pipe) in FOLDERS


def default_arguments(pipe: Any) -> dict[str, Any]:
    """Return the arguments of the pipeline that an embedded model's card sets."""
    if not is_embedded(pipe):
        return {}
    return dict(defaults(name_of(pipe)).arguments)


def name_of(pipe: Any) -> str:
    """Return the source of a pipeline: a hub id, a path, or the name of an embedded model."""
    # The second is that of a modular pipeline.
    for name in ("name_or_path", "_pretrained_model_name_or_path"):
        path = getattr(pipe, name, None)
        if path:
            return _display_name(path)
    return type(pipe).__name__


def _display_name(where: Path | str) -> str:
    """Return the name of the embedded model in a folder; of another, the folder or hub id."""
    names = {str(folder): name for name, folder in FOLDERS.items()}
    return names.get(str(where), str(where))


def load(
    model: str | Path | None = None,
    *,
    device: Device = LoadOptions.device,
    dtype: Dtype = LoadOptions.dtype,
) -> Any:
    """Load a pipeline of Stable Diffusion, Flux or another supported model, ready to generate.

        pipe = heedmap.load()
        pipe = heedmap.load("org/name", device="cuda", dtype="float16")

    The embedded models were trained on some 70 words, which their cards list (`model_card`). They
    draw a prompt with other words as well as they can, and a warning names them. `save_pretrained`
    writes a pipeline without its card: a copy of an embedded model has diffusers' default steps
    and guidance.

    Args:
        model: None for the embedded Stable Diffusion, "joint" for the embedded Stable Diffusion 3
            (neither needs a network), a folder that `save_pretrained` wrote, the id of a model on
            the hub, or a .safetensors checkpoint file, whose configuration comes from the hub. Only
            safetensors weights are read.
        device: "cpu", "cuda", "mps", or "auto" for the best that is there.
        dtype: "float32", "float16", "bfloat16", or "auto": float32 on the CPU, else float16.

    Returns:
        A diffusers pipeline. The embedded models have no safety checker; others keep theirs.

    Raises:
        ArgumentError: if device or dtype is unknown or not available.
        ModelError: if the model is missing, broken, or of no family that is served.
    """
    torch_device, torch_dtype = _device_and_dtype(device, dtype)
    where = _source(model)
    with silence_logs(), _explained(where):
        import diffusers

        from heedmap.backends.registry import check_served, family_named

        index = _index(where)
        family_named(index)  # before any weights are read
        options: dict[str, Any] = {"dtype": torch_dtype, "use_safetensors": True}
        if isinstance(where, Path) and where.is_file():
            kind = getattr(diffusers, index["_class_name"])
            pipe = kind.from_single_file(str(where), dtype=torch_dtype)
            # Else it is named for its configuration.
            pipe.register_to_config(_name_or_path=str(where))
        elif _is_modular(index):
            pipe = _from_pretrained(index, where)
            pipe.load_components(**options)
        else:
            parts = _empty_parts(index)
            if where == FOLDERS[JOINT]:
                load_vae: Any = diffusers.AutoencoderKL.from_pretrained
                parts["vae"] = load_vae(str(FOLDER / "vae"), **options)
            pipe = _from_pretrained(index, where, **parts, **options)
    check_served(pipe)
    return pipe.to(torch_device)


_LIGHT = ("tokenizer", "processor", "scheduler")
"""How the names of parts begin that are quickly loaded."""


def outline(model: str | Path | None = None) -> Any:
    """Load a pipeline without weights, against which the arguments of a call can be checked.

    It has the model's tokenizers and scheduler, and the denoiser and autoencoder on torch's "meta"
    device. Arguments and errors are those of `load`.
    """
    where = _source(model)
    with silence_logs(), _explained(where):
        from heedmap.backends.registry import family_named

        index = _index(where)
        source = _repository(where)
        family = family_named(index)
        parts: dict[str, Any] = {}
        for name in {family.component, "vae"} & index.keys():
            parts[name] = _part_outline(index, name, source)
        others = _empty_parts(index, _LIGHT)
        if not _is_modular(index):
            return _from_pretrained(index, source, **{**others, **parts})
        pipe = _from_pretrained(index, source)
        kept = index.keys() - others
        pipe.load_components([name for name in kept if name.startswith(_LIGHT)])
        pipe.update_components(**parts)
        return pipe


def _from_pretrained(index: Mapping[str, Any], source: Path | str, **parts: Any) -> Any:
    """Load a pipeline with these parts; a modular one without any."""
    import diffusers

    kind: Any = diffusers.DiffusionPipeline
    if _is_modular(index):
        kind = diffusers.ModularPipeline
    local = isinstance(source, Path)
    return kind.from_pretrained(str(source), local_files_only=local, **parts)


def _part_outline(index: Mapping[str, Any], name: str, source: Path | str) -> Any:
    """Return a part of a model without weights, on torch's "meta" device."""
    import diffusers
    from accelerate import init_empty_weights

    kind = getattr(diffusers, index[name][1])
    local = isinstance(source, Path)
    config = kind.load_config(str(source), subfolder=name, local_files_only=local)
    with init_empty_weights():
        return kind.from_config(config)


def of_kind(pipe: Any, name: str) -> Any:
    """Return a pipeline of this class with the same parts; the pipeline itself if unknown."""
    import diffusers

    kind: Any = getattr(diffusers, name, None)
    if kind is type(pipe) or not hasattr(kind, "from_pipe"):
        return pipe
    return kind.from_pipe(pipe, dtype=pipe.dtype)


# --- without weights ---


class ModelCard(Struct):
    """The `card.json` of a model: the embedded models have one, `train_tiny.py export` writes one.

    Attributes:
        vocabulary: the words that the model was trained on; None if unknown.
    """

    vocabulary: Annotated[frozenset[str], Meta(min_length=1)] | None = None


def model_card(model: str | Path | None = None) -> ModelCard:
    """Return the card of a model; an empty one if it has none, or a file of another kind."""
    folder = _embedded_folder(model) or Path(str(model))
    try:
        data = reading.read_bytes(folder / "card.json", most=4 * 2**20)
        return msgspec.json.decode(data, type=ModelCard)
    except (RunError, msgspec.DecodeError, UnicodeDecodeError):
        return ModelCard()


def tokenizer(model: str | Path | None = None) -> Any:
    """Load only the CLIP tokenizer of a model; raise a ModelError if there is none."""
    where = _repository(_source(model))
    from transformers import CLIPTokenizer

    with _explained(where):
        local = isinstance(where, Path)
        result = CLIPTokenizer.from_pretrained(
            str(where), subfolder="tokenizer", local_files_only=local
        )
        # transformers makes an empty tokenizer if it finds no files; a CLIP vocabulary has at least
        # a piece for each byte, within a word and at its end.
        if len(result) < 512:
            raise FileNotFoundError("no vocabulary")
    return result


def token_table(prompt: str, model: str | Path | None = None) -> TokenTable:
    """Return the words and tokens of a prompt as a model reads it, without loading its weights."""
    where = _source(model)
    index = _index(where)
    if "unet" in index and not _is_modular(index):
        return tokenize(prompt, tokenizer(model))
    # Other pipelines change a text before they tokenize it.
    from heedmap.backends.registry import family_of

    return family_of(outline(model)).whole_table(prompt, {})


# --- where a model is ---


def _embedded_folder(model: str | Path | None) -> Path | None:
    return FOLDERS.get(EMBEDDED if model is None else str(model))


def _source(model: str | Path | None) -> Path | str:
    if (folder := _embedded_folder(model)) is not None:
        return folder
    path = reading.path_of(model)
    is_checkpoint = path.suffix.lower() == ".safetensors" and os.path.isfile(path)
    if is_checkpoint or any(os.path.isfile(path / name) for name in _INDICES):
        return path
    text = str(model)
    if os.path.exists(path) or text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise ModelError(
            f"{quoted(text)} is no model that can be loaded: expected a folder that "
            "save_pretrained wrote, a .safetensors file (others may run code when they are read), "
            "a hub id such as 'org/model', 'joint', or nothing for the embedded model"
        )
    return text


_INDICES = ("model_index.json", "modular_model_index.json")


def _index(where: Path | str) -> dict[str, Any]:
    from transformers.utils import cached_file

    source = _repository(where)
    with _explained(where):
        if isinstance(source, str):
            _check_hub(source)
        paths: list[Any] = [
            cached_file(str(source), name, _raise_exceptions_for_missing_entries=False)
            for name in _INDICES
        ]
        path = next(filter(None, paths))
        return json.loads(Path(path).read_text(encoding="utf-8"))


def _is_modular(index: Mapping[str, Any]) -> bool:
    """Return whether the index of a model is that of a modular pipeline."""
    return "_blocks_class_name" in index


def _check_hub(model: str) -> None:
    """Raise an error if a model is not here and the hub cannot be reached.

    The hub's library would try again for a minute.
    """
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    cached = [try_to_load_from_cache(model, name) for name in _INDICES]
    if not any(isinstance(path, str) for path in cached):
        get_session().head(constants.ENDPOINT, timeout=10)


def _empty_parts(
    index: Mapping[str, Any],
    kept: str | tuple[str, ...] = "",
) -> dict[str, Any]:
    """Return None for each part that a pipeline lacks, or whose name begins otherwise."""
    return {
        name: None
        for name, part in index.items()
        if isinstance(part, list) and (part[0] is None or not name.startswith(kept))
    }


def _repository(where: Path | str) -> Path | str:
    """Return the hub id with the configuration of a checkpoint file; else `where`."""
    if not isinstance(where, Path) or where.is_dir():
        return where
    with _explained(where):
        from diffusers.loaders import single_file_utils as single

        checkpoint = single.load_single_file_checkpoint(str(where))
        if single.CHECKPOINT_KEY_NAMES["inpainting"] not in checkpoint:
            raise ValueError(
                "it has no UNet in the original format of Stable Diffusion"
            )
        config = single.fetch_diffusers_config(checkpoint)
        return config["pretrained_model_name_or_path"]


def available_devices() -> list[str]:
    """Return the kinds of devices of this machine that torch can use, the best first."""
    import torch

    backends = {"cuda": torch.cuda, "mps": torch.backends.mps, "cpu": torch.cpu}
    return [name for name, backend in backends.items() if backend.is_available()]


def _device_and_dtype(device: str, dtype: str) -> tuple[Any, Any]:
    check_one_of("device", device, DEVICES)
    check_one_of("dtype", dtype, DTYPES)
    import torch

    available = available_devices()
    if device == "auto":
        device = available[0]
    if device not in available:
        raise ArgumentError(
            f"this machine has no {device} device that torch can use: take device='cpu' "
            "(--device cpu)"
        )
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "float16"
    return torch.device(device), getattr(torch, dtype)


@contextmanager
def _explained(where: Path | str) -> Iterator[None]:
    """Raise a ModelError for any error in the block."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"the model {_display_name(where)} cannot be loaded ({reason(error)}): expected a "
            "diffusers pipeline, or a checkpoint file of Stable Diffusion 1, 2 or XL, with "
            "safetensors weights (and a network, once, for one on the hub)"
        ) from error


_LIBRARIES = ("diffusers", "transformers")
_NEEDLESS = (
    "requires torchvision",  # of classes that are not used
    "Token indices sequence length is longer",
    "The following part of your input was truncated",  # heedmap names the words
    "should be kept in float32: []",
    "Error in block",  # of a modular pipeline, which is raised
    "Could not extract SentencePiece model",
)
"""Parts of needless messages of these libraries."""


@contextmanager
def silence_logs() -> Iterator[None]:
    """Silence needless messages of diffusers and transformers within the block."""

    def is_needed(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not any(part in message for part in _NEEDLESS)

    with ExitStack() as stack:
        for name in _LIBRARIES:
            for handler in logging.getLogger(name).handlers:
                handler.addFilter(is_needed)
                stack.callback(handler.removeFilter, is_needed)
        yield
