"""The base of families whose denoiser is a transformer over patches of the latent."""

from collections.abc import Sequence
from typing import Any

from heedmap.backends.base import Arguments, Family, GridShape, parameters
from heedmap.checks import check_int
from heedmap.io.schemas import MAX_TOKENS


class Transformer(Family):
    """A pipeline with a transformer, whose layers have one grid: that of the patches."""

    component = "transformer"

    @property
    def defaults(self) -> Arguments:
        """The arguments that would scale the image to another size, or rewrite the prompt."""
        names = {
            "use_resolution_binning",
            "clean_caption",
            "enable_prompt_rewrite",
            "use_pe",
        }
        return dict.fromkeys(names & parameters(self.pipe).keys(), False)

    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid of the patches."""
        return latent[0] // self.latent_multiple, latent[1] // self.latent_multiple

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return the third of the depth that each layer is in: "early", "middle" or "late"."""
        thirds = ("early", "middle", "late")
        count = len(names)
        return {name: thirds[3 * n // count] for n, name in enumerate(names)}

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that a call reads at most."""
        name = "max_sequence_length"
        value = arguments.get(name, parameters(self.pipe).get(name))
        return min(check_int(name, value, least=1), MAX_TOKENS)
