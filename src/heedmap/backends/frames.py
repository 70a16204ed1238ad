"""The calls of a pipeline that run now, by the frames of Python that this code runs within."""

import dis
import inspect
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
