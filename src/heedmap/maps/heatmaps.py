"""From a recording to heat maps: select, aggregate, resize, show together.

Axes, by the letters used all through heedmap: S step · H head · Q latent position (Q = h·w,
row-major) · K text token · h, w a layer's own grid. Everything is numpy.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, HeedmapError, SelectionError, plural, quoted
from heedmap.figures.formats import png
from heedmap.maps import map_sheets
from heedmap.maps.masks import Mentioned, check_picture
from heedmap.maps.recordings import REFINED, Layer, Recording
from heedmap.maps.segments import Segments, segmented
from heedmap.maps.selections import Averages, LayerFilter, Selection
from heedmap.maps.stability import stability_at
from heedmap.maps.word_map import HeatMap, Scale, check_scale
from heedmap.options import MASK_THRESHOLD
from heedmap.text.prompts import is_content
from heedmap.text.words import TokenTable, Word

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

_WHOLE = "refined maps are of all layers, steps and heads: expected the plain maps, which a run has"
_PART = (
    "refined maps and segments are of all layers, steps and heads, and these maps of some: "
    "expected the run's maps, without `select`"
)
MOST_SHOWN = 75
"""Words that a sheet shows, and of which a saved run has overlays, unless others are chosen."""


@dataclass(frozen=True, eq=False)
class HeatMaps:
    """The heat maps of one image: by word, by number, over a selection of layers, steps, heads."""

    recording: Recording
    image: Image.Image | None = None
    _selection: Selection = field(default_factory=Selection)
    _whole: Recording | None = None  # what the recording of refined maps was taken from
    stability: Mapping[int, float] | None = None  # by word, of the whole run, where it is known

    def __repr__(self) -> str:
        found, keep = [plural(len(self), "word")], self.recording.keep
        found += [
            plural(len(numbers(self.recording)), axis)
            for axis, numbers in (
                ("layer", self._selection.layers_of),
                ("step", self._selection.steps_of),
                ("head", self._selection.heads_of),
            )
            if axis in keep
        ]
        found += [] if self._whole is None else [REFINED]
        return f"<HeatMaps of {quoted(self.tokens.prompt)}: {', '.join(found)}>"

    @property
    def tokens(self) -> TokenTable:
        """The words and tokens of the prompt, as the model read them."""
        return self.recording.table

    @property
    def words(self) -> tuple[Word, ...]:
        """The words that the model read, in order."""
        return self.recording.table.read_words

    def __iter__(self) -> Iterator[HeatMap]:
        """The map of each word that the model read, in order."""
        return (self.at(word.number) for word in self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, query: str) -> HeatMap:
        """The map of a word or phrase.

        A word's tokens are added up, and so are a phrase's words and all the places at which it
        stands in the prompt: the value is the share of attention that went to any of them.

        Raises:
            UnknownWordError: if the prompt has no such word.
            TruncatedWordError: if it stands past the last token that the model read.
        """
        found = self.tokens.find(query)
        return self._map(query.strip(), found)

    def __contains__(self, query: object) -> bool:
        """Whether there is a map of a word or phrase."""
        try:
            return isinstance(query, str) and bool(self.tokens.find(query))
        except HeedmapError:
            return False

    def keys(self) -> tuple[str, ...]:
        """Return the words that have maps, each once, in order."""
        return tuple(dict.fromkeys(word.text for word in self.words))

    def at(self, number: int) -> HeatMap:
        """The map of the word with this number (negative ones count from the end).

        Raises:
            UnknownWordError: if the prompt has no such word.
            TruncatedWordError: if it stands past the last token that the model read.
        """
        return self._map(self.tokens.at(number).text, self.tokens.tokens_at(number))

    def alone(self, word: str | int) -> HeatMap:
        """The map of a word or phrase, or of the word of a number, without the others' scale.

        Its `shared` is 0 to 1. Where many maps of a long prompt are drawn, finding the range of all
        words would take nearly all of the time.

        Raises:
            UnknownWordError: if the prompt has no such word.
            TruncatedWordError: if it stands past the last token that the model read.
        """
        if isinstance(word, str):
            label, positions = word.strip(), self.tokens.find(word)
        else:
            label, positions = self.tokens.at(word).text, self.tokens.tokens_at(word)
        return self._map(label, positions, alone=True)

    def token(self, position: int) -> HeatMap:
        """The map of one token, by its position in the encoded text (0 is the start token).

        Raises:
            SelectionError: if it was not recorded.
        """
        position = checks.whole("the token's position", position)
        if position not in self.recording.positions:
            raise SelectionError(
                f"token {quoted(position)} was not recorded: expected one of "
                f"{', '.join(map(str, self.recording.positions))}; record with tokens='all' for all"
            )
        return self._map(self.tokens.tokens[position].text, (position,), word=False)

    def share(self, query: str) -> HeatMap:
        """The share of a word or phrase among the content words at each place: 0 to 1.

        Most attention goes to the start token, and how much does differs from place to place; a
        share among the words alone shows which of them a place is about. Words such as "the" and
        "of" do not count, unless they are asked for. Where none of them draws anything, the share
        is 0.

        A word of negative weight draws less than nothing, and acts by it: what counts is how much
        each word's own map is away from 0, on either side. With weights of 0 and above that is the
        map itself; a phrase has the shares of its words, added up.

        Raises:
            UnknownWordError: if the prompt has no such word.
            TruncatedWordError: if it stands past the last token that the model read.
        """
        asked = set(self.tokens.find(query))
        own = [word for word in self.words if asked.issuperset(word.tokens)]
        mine = {word.number for word in own}
        others = [w for w in self.words if is_content(w.text) and w.number not in mine]
        drawn, rest = self._averages.magnitude(own), self._averages.magnitude(others)
        among = drawn + rest  # even rounded it is not below `drawn`: no share is above 1
        values = np.divide(drawn, among, out=np.zeros_like(drawn), where=among > 0)
        size, refined = self.recording.size, self._whole is not None
        return HeatMap(query.strip(), values, size, self.image, refined=refined)

    def select(
        self,
        layers: LayerFilter | None = None,
        steps: int | slice | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        *,
        resolution: int | tuple[int, int] | None = None,
        timesteps: tuple[float, float] | None = None,
    ) -> "HeatMaps":
        """The same maps over a part of what was kept.

        Args:
            layers: "down", "mid" or "up"; a layer's name; a pattern ("*attentions.0*"); a list of
                these; or a function of a `Layer` that says whether to take it.
            steps: a step number, a slice or a list (negative numbers count from the end).
            heads: a head's number or a list; layers with fewer heads are then left out.
            resolution: only layers whose grid is (h, w), or has this many cells on its short side.
            timesteps: (high, low): only steps whose timestep lies in this range, both ends in.

        Raises:
            SelectionError: if an axis was not kept, or nothing is left.
            ArgumentError: if an argument is of the wrong kind.
        """
        part, recording = self._selection, self.recording
        self._check_plain()
        if layers is not None or resolution is not None:
            part = part.with_layers(recording, layers, resolution)
        if steps is not None or timesteps is not None:
            part = part.with_steps(recording, steps, timesteps)
        if heads is not None:
            part = part.with_heads(recording, heads)
        return replace(self, _selection=part, stability=None)

    @property
    def refined(self) -> "HeatMaps":
        """The same maps, refined by the picture's attention to itself: truer to what is seen.

        A word's share of attention, carried from place to place along self-attention in the later
        part of the run (`heedmap.mathematics.refining`). Of all layers, steps and heads: a
        selection of these has none.

        Raises:
            SelectionError: if there are none, or these are the maps of a selection.
        """
        if self._selection != Selection():
            raise SelectionError(_PART)
        if self._whole is not None:
            return self
        alone = self.recording.refined_alone()
        return replace(self, recording=alone, _whole=self.recording, stability=None)

    def segment(
        self,
        phrases: Sequence[str | int] | None = None,
        *,
        threshold: float = MASK_THRESHOLD,
        image: Image.Image | None = None,
    ) -> Segments:
        """Which phrase each pixel of the picture shows: that with the greatest soft mask, if any.

        Args:
            phrases: words or phrases, or numbers of words; left out, all phrases of the prompt.
            threshold: 0 to 1, what a soft mask must have at least; else it is background.
            image: the picture, where the maps do not know it.

        Raises:
            ArgumentError: if nothing is to tell apart, or two of one phrase; or the picture is odd.
            SelectionError: if there are no refined maps, or these are the maps of a selection.
            UnknownWordError: if the prompt has no such word.
            TruncatedWordError: if the model did not read it.
        """
        whole = self._whole or self.refined._whole
        picture = self.image if image is None else image
        assert whole is not None
        check_picture(picture, whole.size)
        return segmented(whole, phrases, picture, threshold, self.stability)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the selection."""
        return tuple(self.recording.layers[i] for i in self._selection.layers_of(self.recording))

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the selection's steps, from 0; SelectionError where they were averaged."""
        self._check_plain()
        return self._selection.steps_of(self.recording)

    @property
    def heads(self) -> tuple[int, ...]:
        """The numbers of the selection's heads, from 0; SelectionError where they were averaged."""
        self._check_plain()
        return self._selection.heads_of(self.recording)

    def sheet(
        self,
        chosen: Sequence[HeatMap] | None = None,
        *,
        title: str | None = None,
        scale: Scale = "shared",
    ) -> Image.Image:
        """What `figure` shows, as a picture; the arguments are the same."""
        return self.laid_out(chosen, title=title, scale=scale)[0].image()

    def figure(
        self,
        chosen: Sequence[HeatMap] | None = None,
        *,
        title: str | None = None,
        scale: Scale = "shared",
    ) -> "Sheet":
        """The picture, then one overlay a word, captioned, with the scale that was used.

        Of a prompt of more than 75 words the first 75 are shown, and the title says so; the scale
        says where maps are refined. Where no picture is known, the heat stands alone. For a prompt
        without words the sheet is the picture, and says so.

        Args:
            chosen: maps of this selection; left out, those of every word.
            title: left out, the prompt.
            scale: as in `HeatMap.span`.

        Returns:
            A matplotlib Figure, which saves itself as PNG, SVG or PDF.

        Raises:
            ArgumentError: if there is neither a map nor a picture to show, or no such scale.
        """
        return self.laid_out(chosen, title=title, scale=scale)[0]

    def laid_out(
        self,
        chosen: Sequence[HeatMap] | None = None,
        *,
        title: str | None = None,
        scale: Scale = "shared",
        note: str = "",
    ) -> tuple["Sheet", Iterator[Image.Image]]:
        """As `figure`, with a note below its title; and each map's `overlay`, drawn but once."""
        check_scale(scale)
        title = self.tokens.prompt if title is None else checks.text("title", title)
        if chosen is None:
            heats = list(itertools.islice(self, MOST_SHOWN))
            title += f" · the first {MOST_SHOWN} words" if len(self) > MOST_SHOWN else ""
        else:
            heats = map_sheets.checked_maps(chosen)
        if not heats and self.image is None:
            raise ArgumentError(
                "there is nothing to draw: expected a word, a chosen map or a picture; pass maps, "
                "as in sheet([maps.token(0)])"
            )
        note = note if heats or self.words else "the prompt has no words that the model read"
        return map_sheets.sheet_of(heats, self.image, title, scale, note=note)

    def _repr_png_(self) -> bytes | None:
        if not self.recording.arrays or not (self.words or self.image):
            return None  # nothing to show: the notebook falls back to text
        return png(self.sheet())

    def _map(
        self, label: str, positions: tuple[int, ...], *, word: bool = True, alone: bool = False
    ) -> HeatMap:
        return HeatMap(
            label,
            self._averages.of(positions),
            self.recording.size,
            self.image,
            (0.0, 1.0) if alone else self._averages.shared,
            self._mentioned(positions) if word else None,
            self._whole is not None,
            stability_at(self.stability, self.words, positions),
        )

    def _check_plain(self) -> None:
        if [layer.name for layer in self.recording.layers] == [REFINED]:
            raise SelectionError(_WHOLE)

    @cached_property
    def _averages(self) -> Averages:
        return Averages(self.recording, self._selection)

    def _mentioned(self, positions: tuple[int, ...]) -> Mentioned | None:
        """Words of the whole run, if it has what a mask is made of."""
        whole = self._whole or self.recording
        none = self._selection != Selection() or whole.refined is None
        return None if none else Mentioned(whole, positions)
