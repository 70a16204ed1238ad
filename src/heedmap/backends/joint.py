"""Joint attention: text and image are keys of one softmax.

A layer's queries and keys are those of the text and of the image, one after the other. The
recording has the rows of the image's queries and the columns of the text's keys. They are shares of
all attention, that to the image included: a row sums to less than 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from heedmap.backends.base import Family
from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import JointKeys, Scores


class JointFamily(Family):
    """A pipeline with a transformer over text and image.

    Attributes:
        text_first: whether the text precedes the image among the keys.
    """

    component = "transformer"
    is_joint = True
    matches_flow = True
    text_first: ClassVar[bool]

    def text_width(self, layer: Any) -> int:
        """Return the width of the text; of the model where it was joined with the image before."""
        return layer.added_kv_proj_dim or layer.query_dim

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its first block."""
        return self.model.context_embedder(states)

    def blocks(self) -> dict[str, Any]:
        """Return the block around each layer that attends to the text, by the layer's path."""
        names = [name for name, layer in self.attention().items() if self.reads_text(layer)]
        return {name: self.model.get_submodule(name.rpartition(".")[0]) for name in names}

    def with_text(self, arguments: Mapping[str, Any], text: Tensor, row: int) -> dict[str, Any]:
        """Return the arguments of a block for one row of its batch, with other text (1, K, C).

        Raises:
            TraceError: if an image prompt is among them.
        """
        if "ip_hidden_states" in (arguments.get("joint_attention_kwargs") or ()):
            raise TraceError("concepts cannot be recorded with an image prompt: leave one out")
        image, condition = (arguments[name][[row]] for name in ("hidden_states", "temb"))
        one = {"hidden_states": image, "encoder_hidden_states": text, "temb": condition}
        return {**arguments, **one}

    def text_scores(self, scores: Scores, positions: int) -> Scores:
        """Return the scores of the image's queries, so many, and the text's keys."""
        query, key, log_sum = scores.query, scores.key, scores.log_sum
        is_whole = query.shape[2] == key.shape[2] >= positions
        if not is_whole or scores.mask is not None:
            raise TraceError(
                f"{type(self.pipe).__name__} computes attention of {query.shape[2]} queries to "
                f"{key.shape[2]} keys, {'with' if scores.mask is not None else 'without'} a mask: "
                "expected those of text and image, without a mask"
            )
        tokens = key.shape[2] - positions
        text, image = slice(positions, None), slice(positions)
        if self.text_first:
            text, image = slice(tokens), slice(tokens, None)
        if log_sum is not None:  # a kernel's value in half-precision types is good to 1e-4 only
            log_sum = log_sum[:, :, image] if key.itemsize >= 4 else None
        joint = JointKeys(key, text, image)
        return Scores(
            *(query[:, :, image], key[:, :, text], scores.scale, None, log_sum, joint),
            value=scores.value,
        )


def thirds(names: Sequence[str]) -> dict[str, str]:
    """Return the third of the depth that each layer is in: "early", "middle" or "late"."""
    parts = ("early", "middle", "late")
    return {name: parts[3 * number // len(names)] for number, name in enumerate(names)}
