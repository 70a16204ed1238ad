"""The running calls of a pipeline, and what is changed in it while one runs.

A call is found by its Python frame. Calls of one pipeline can nest.
"""

import dis
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import update_wrapper
from types import FrameType
from typing import Any


def running(pipe: Any) -> list[FrameType]:
    """The calls of a pipeline that this code runs within, the innermost first."""
    code = inspect.unwrap(type(pipe).__call__).__code__
    found, frame = [], inspect.currentframe()
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is pipe:
            found.append(frame)
        frame = frame.f_back
    return found


def returned(frame: FrameType) -> bool:
    """Return whether a call that is over ended with a result, and not with an exception."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def says_end(pipe: Any) -> bool:
    """Whether a pipeline lets go of its models when the running call has ended well.

    Nearly all do, but some not where they give latents back. Of others a call is over with its last
    step.
    """
    calls = running(pipe)
    latents = bool(calls) and calls[0].f_locals.get("output_type") == "latent"
    code = inspect.unwrap(type(pipe).__call__).__code__
    return "maybe_free_model_hooks" in code.co_names and not latents


class _Put:
    """What stands on an instance in front of its class's method, and what stood there before."""

    def __init__(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        # Whoever asks for the signature is told that of the method itself.
        update_wrapper(self, getattr(owner, name))
        self.owner, self.name, self.method = owner, name, method
        self.under = vars(owner).get(name)
        self.live = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def __reduce__(self) -> Any:
        """A copy of the owner, or what is pickled of it, has its own method."""
        return getattr, (self.owner, self.name)


def put(owner: Any, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    """Put a method on an instance, in front of its class's own.

    Returns:
        A function that takes it off again, in whatever order several are taken off; what somebody
        else has put there meanwhile stays.
    """
    placed = _Put(owner, name, method)
    vars(owner)[name] = placed

    def undo() -> None:
        placed.live = False
        top = vars(owner).get(name)
        while isinstance(top, _Put) and not top.live:
            top = top.under
        if top is None:
            vars(owner).pop(name, None)
        else:
            vars(owner)[name] = top

    return undo


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
