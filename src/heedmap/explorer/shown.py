"""What a page shows: a run, an edit of one into another."""

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
    """What a page shows of a run: what `heedmap.results.runs.Run` has."""

    @property
    def image(self) -> Image.Image:
        """The picture."""
        ...

    @property
    def maps(self) -> HeatMaps:
        """Its heat maps."""
        ...

    @property
    def settings(self) -> Settings:
        """What it was made with."""
        ...

    @property
    def negative_maps(self) -> HeatMaps | None:
        """The heat maps of the negative prompt."""
        ...

    @property
    def concepts(self) -> HeatMaps | None:
        """The heat maps of what was looked for beside the prompt."""
        ...

    @property
    def step_pictures(self) -> StepPictures | None:
        """The picture at each step."""
        ...

    @property
    def trust(self) -> Mapping[str, Trust]:
        """How far attention and cause agree, by the word that was left out."""
        ...


class PairLike(Protocol):
    """What a page shows of an edit: what `heedmap.results.pairs.Pair` has."""

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
        """How it was edited and what it did."""
        ...

    @property
    def blend(self) -> np.ndarray | None:
        """Bool (H, W) where the edit was let in."""
        ...
