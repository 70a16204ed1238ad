"""What libraries advise while they are used, and a user of heedmap need not know.

Single messages of single loggers, and only while something is open: all else that they log comes
through.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_NEEDLESS = {
    # Of classes that other models need, and that are not used here.
    "transformers.utils.import_utils": "requires torchvision",
    # heedmap says which words are not read.
    "transformers.tokenization_utils_base": "Token indices sequence length is longer",
    # A list that is empty.
    "diffusers.models.modeling_utils": "should be kept in float32: []",
    # heedmap says what to install, if that is why a model cannot be loaded.
    "transformers.tokenization_utils_tokenizers": "Could not extract SentencePiece model",
}
_CUT = "The following part of your input was truncated"  # of pipelines; heedmap says it better


def hush(pipe: Any = None) -> Callable[[], None]:
    """Keep needless advice back: of imports and tokenizers, and of a pipeline if one is given.

    Returns:
        What ends it.
    """
    needless = dict(_NEEDLESS)
    needless |= {kind.__module__: _CUT for kind in type(pipe).__mro__ if pipe is not None}
    undo: list[Callable[[], None]] = []
    for name, said in needless.items():

        def needed(record: logging.LogRecord, said: str = said) -> bool:
            return said not in record.getMessage()

        logger = logging.getLogger(name)
        logger.addFilter(needed)
        undo.append(lambda logger=logger, needed=needed: logger.removeFilter(needed))

    def end() -> None:
        for one in undo:
            one()

    return end


@contextmanager
def hushed(pipe: Any = None) -> Iterator[None]:
    """The same for a block."""
    end = hush(pipe)
    try:
        yield
    finally:
        end()
