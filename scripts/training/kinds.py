"""The folders that the stages write: which files in them are theirs, and may be replaced."""

import re

from msgspec import Struct, field

from heedmap.files.writing import Kind


class Tokenizer(Struct):
    """What its mark says at least."""

    tokenizer_class: str


class Model(Struct):
    """The same of a model, or of a pipeline of them."""

    kind: str = field(name="_class_name")


_TOKENIZER = (
    r"(?:tokenizer_config|tokenizer|vocab|special_tokens_map|added_tokens)\.json|merges\.txt"
)
_MODEL = r"config\.json|(?:diffusion_pytorch_)?model\.safetensors"
TOKENIZER = Kind("a tokenizer", "tokenizer_config.json", Tokenizer, re.compile(_TOKENIZER))
AUTOENCODER = Kind("an autoencoder", "config.json", Model, re.compile(_MODEL))
PIPELINE = Kind(
    "a pipeline", "model_index.json", Model,
    re.compile(
        rf"(?:model_index|card)\.json|(?:unet|vae|text_encoder)/(?:{_MODEL})|"
        rf"scheduler/scheduler_config\.json|tokenizer/(?:{_TOKENIZER})"
    ),
)  # fmt: skip
