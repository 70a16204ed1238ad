"""Modular pipelines of diffusers, whose blocks encode the text, denoise and decode.

A call runs all blocks on one state, from which the text and its states are read before the first
pass of the model.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from diffusers import ModularPipeline
from diffusers.modular_pipelines import PipelineState

from heedmap.errors import TraceError


class BlocksProxy:
    """The blocks of a pipeline, with a function that runs them in place of their own call."""

    def __init__(
        self,
        blocks: Any,
        run: Callable[[PipelineState, Callable[[], Any]], Any],
    ) -> None:
        self._blocks = blocks
        self._run = run

    def __call__(self, pipe: ModularPipeline, state: PipelineState) -> Any:
        """Run the blocks on a state."""
        return self._run(state, lambda: self._blocks(pipe, state))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the blocks."""
        return getattr(self._blocks, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy of the blocks themselves."""
        return deepcopy(self._blocks, memo)


def is_modular(pipe: Any) -> bool:
    """Return whether a pipeline is a modular one."""
    return isinstance(pipe, ModularPipeline)


def watch_calls(
    pipe: ModularPipeline,
    run: Callable[[PipelineState, Callable[[], Any]], Any],
    undo: Callable[[Callable[[], None]], object],
) -> None:
    """Call `run` in place of the blocks in each call, with its state and a function that runs them.

    `undo` takes the function that ends this.
    """
    blocks = pipe._blocks
    pipe._blocks = proxy = BlocksProxy(blocks, run)

    def restore() -> None:
        if pipe._blocks is proxy:
            pipe._blocks = blocks

    undo(restore)


def encode_text(pipe: ModularPipeline, **arguments: Any) -> dict[str, Any]:
    """Run the block that encodes a prompt; return the values of its state.

    Raises:
        TraceError: if the pipeline has no such block.
    """
    block = text_block(pipe)
    names = {*block.input_names} & arguments.keys()
    state = PipelineState({name: arguments[name] for name in names})
    block(pipe, state)
    return state.values


def text_block(pipe: ModularPipeline) -> Any:
    """Return the block of a pipeline that encodes a prompt.

    Raises:
        TraceError: if it has none.
    """
    block = _find_text_block(pipe._blocks)
    if block is None:
        raise TraceError(
            "no block of this pipeline encodes a prompt: leave out concepts, and the prompts of "
            "the trace, or trace a pipeline with a text encoder"
        )
    return block


def _find_text_block(blocks: Any) -> Any:
    """Return the first block without blocks of its own that makes text states; None without."""
    parts = getattr(blocks, "sub_blocks", None) or {}
    for part in parts.values():
        block = _find_text_block(part)
        if block is not None:
            return block
    reads_text = "prompt" in blocks.input_names
    makes_states = "prompt_embeds" in blocks.intermediate_output_names
    return blocks if reads_text and makes_states and not parts else None
