"""Messages of other libraries that a user of heedmap need not see.

Single messages of single loggers, while a block runs; everything else that they log comes through.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_NEEDLESS = {
    # About classes that are not used here.
    "transformers.utils.import_utils": "requires torchvision",
    # heedmap says which words are not read.
    "transformers.tokenization_utils_base": "Token indices sequence length is longer",
    # An empty list.
    "diffusers.models.modeling_utils": "should be kept in float32: []",
    # The error that follows says what to install.
    "transformers.tokenization_utils_tokenizers": "Could not extract SentencePiece model",
}
_CUT = "The following part of your input was truncated"  # heedmap names the words


@contextmanager
def hushed(pipe: Any = None) -> Iterator[None]:
    """Silence needless messages in the block, those of a pipeline too if one is given."""
    needless = dict(_NEEDLESS)
    needless |= {kind.__module__: _CUT for kind in type(pipe).__mro__ if pipe is not None}
    with ExitStack() as undo:
        for name, text in needless.items():

            def needed(record: logging.LogRecord, text: str = text) -> bool:
                return text not in record.getMessage()

            logger = logging.getLogger(name)
            logger.addFilter(needed)
            undo.callback(logger.removeFilter, needed)
        yield
