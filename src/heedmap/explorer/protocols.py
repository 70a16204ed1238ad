"""The parts of a run and of an edit that a page needs.

`heedmap.results` imports this package, so the page knows its classes by their attributes.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from PIL import Image

from heedmap.figures.step_pictures import StepPictures
from heedmap.files.ablations import Trust
from heedmap.files.reports import EditReport
from heedmap.files.settings import Settings
from heedmap.maps.heatmaps import HeatMaps


class RunLike(Protocol):
    """A run, as `heedmap.results.runs.Run`."""

    @property
    def image(self) -> Image.Image:
        """The image."""
        ...

    @property
    def maps(self) -> HeatMaps:
        """The heat maps of the prompt."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings."""
        ...

    @property
    def negative_maps(self) -> HeatMaps | None:
        """The heat maps of the negative prompt."""
        ...

    @property
    def concepts(self) -> HeatMaps | None:
        """The heat maps of the concepts."""
        ...

    @property
    def step_pictures(self) -> StepPictures | None:
        """The image at each step."""
        ...

    @property
    def trust(self) -> Mapping[str, Trust]:
        """The agreement of attention and cause by ablated word."""
        ...


class PairLike(Protocol):
    """An edit, as `heedmap.results.pairs.Pair`."""

    @property
    def source(self) -> RunLike:
        """The run of the source prompt."""
        ...

    @property
    def edited(self) -> RunLike:
        """The run of the edited prompt."""
        ...

    @property
    def about(self) -> EditReport:
        """The report of the edit."""
        ...

    @property
    def blend(self) -> np.ndarray | None:
        """The mask of the local blend, bool (H, W)."""
        ...
