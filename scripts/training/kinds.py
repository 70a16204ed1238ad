"""The folders that the stages write: which files in them are theirs, and may be replaced."""

import re

from heedmap.files.writing import Kind

_TOKENIZER = (
    r"(?:tokenizer_config|tokenizer|vocab|special_tokens_map|added_tokens)\.json|merges\.txt"
)
_MODEL = r"config\.json|(?:diffusion_pytorch_)?model\.safetensors"
TOKENIZER = Kind(
    "a tokenizer", "tokenizer_config.json", frozenset({"tokenizer_class"}), re.compile(_TOKENIZER)
)
AUTOENCODER = Kind("an autoencoder", "config.json", frozenset({"_class_name"}), re.compile(_MODEL))
PIPELINE = Kind(
    "a pipeline", "model_index.json", frozenset({"_class_name"}),
    re.compile(
        rf"(?:model_index|card)\.json|(?:unet|vae|text_encoder)/(?:{_MODEL})|"
        rf"scheduler/scheduler_config\.json|tokenizer/(?:{_TOKENIZER})"
    ),
)  # fmt: skip
