"""Heat maps of words: selected from a recording, coloured over the image, cut to masks.

Axes: S step · H head · Q latent position (Q = h·w, row-major) · K text token · h, w a map's cells.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from PIL import Image

from heedmap.checks import check_fraction, check_one_of, is_constant
from heedmap.errors import (
    ArgumentError,
    HeedmapError,
    SelectionError,
    UnknownWordError,
    format_number,
    join_words,
    quoted,
)
from heedmap.figures import overlays, plots
from heedmap.figures.plots import Panel, ScaleBar
from heedmap.maps.masks import Segments, scaled, segmented, soft_masks
from heedmap.maps.recordings import (
    Layer,
    LayerFilter,
    Recording,
    Selection,
)
from heedmap.options import MASK_THRESHOLD, SHARES, Share
from heedmap.text.words import TokenTable, Word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Scale = Literal["word", "shared", "raw"]
Range = tuple[float, float]
SCALES: dict[Scale, str] = {
    "shared": "shared by all words",
    "word": "separate for each word",
    "raw": "raw probability",
}
"""The name of each scale in figures of several words."""
REFINED_BY = "refined by self-attention"
"""The mark of refined maps in figures and tables."""
MOST_SHOWN = 75
"""The largest number of words in a figure, and of overlays in a saved run, by default."""


@dataclass(frozen=True, eq=False)
class HeatMap:
    """The heat map of a word or phrase; `numpy.asarray` returns its values.

        heat = run.maps["house"]
        heat.values, heat.peak, heat.overlay(), heat.mask()

    Attributes:
        label: the word or phrase.
        values: float32 (h, w), 64 positions on the short side: the share of attention (0 to 1)
            from each position to the word's tokens, the mean over the selection. Weights and edits
            can lead to values outside of 0 to 1.
        size: (width, height) of the image in pixels.
        image: the image, if known.
        shared: the lowest and the highest value among the maps of all the prompt's words in the
            selection.
        tokens: the positions of the word's tokens; empty for a single token.
        recording: the recording whose phrases its masks are made of; None if they are made of the
            map itself.
        refined: True if self-attention refined the map.
        share_of: as in `Recording`.
        reads: the map of the word's own attention to the image (`HeatMaps.reads`); None without.
    """

    label: str
    values: np.ndarray
    size: tuple[int, int]
    image: Image.Image | None = None
    shared: tuple[float, float] = (0.0, 1.0)
    tokens: tuple[int, ...] = ()
    recording: Recording | None = field(default=None, repr=False)
    refined: bool = False
    share_of: Share | None = None
    reads: "HeatMap | None" = None

    def __repr__(self) -> str:
        span = f"{self.values.min():.3g} to {self.values.max():.3g}"
        return f"<HeatMap of {quoted(self.label)}: {span}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values, for `numpy.asarray`."""
        return np.array(self.values, dtype=dtype, copy=copy)

    def value_range(self, scale: Scale = "word") -> tuple[float, float]:
        """Return the coldest and the hottest value of a scale.

        Args:
            scale: "word" (this map's least and greatest value; of a constant map, but for rounding,
                its least twice), "shared" (those of all the prompt's words, and of this map if it
                goes beyond, as a phrase may) or "raw" (0 to 1). If a word of the prompt has values
                below 0, each scale is widened to have 0 in its middle ("raw" is -1 to 1).

        Raises:
            ArgumentError: if there is no such scale.
        """
        check_one_of("scale", scale, SCALES)
        low = float(self.values.min())
        high = float(self.values.max())
        if scale == "word" and is_constant(low, high):
            return low, low
        shared = min(low, self.shared[0]), max(high, self.shared[1])
        ends = {"word": (low, high), "shared": shared, "raw": (0.0, 1.0)}[scale]
        return overlays.centred(*ends) if shared[0] < 0 else ends

    def overlay(
        self,
        image: Image.Image | None = None,
        *,
        scale: Scale = "word",
        short_side: int = 256,
    ) -> Image.Image:
        """Draw the heat over the image.

        Args:
            image: the image, if the map does not know it (maps of a bare `trace`).
            scale: see `value_range`.
            short_side: in pixels, at least; smaller images are enlarged by a whole number.

        Returns:
            An RGB image.

        Raises:
            ArgumentError: if no image is known or passed, or an argument is wrong.
        """
        image = image or self.image
        if image is None:
            raise ArgumentError(
                f"the map of '{self.label}' has no image: pass it, as in overlay(image)"
            )
        return self.render(*self.value_range(scale), image=image, short_side=short_side)

    def render(
        self,
        low: float,
        high: float,
        *,
        image: Image.Image | None = None,
        short_side: int = 256,
    ) -> Image.Image:
        """Draw the heat from `low` to `high` over the image, or alone if none is known.

        The arguments are those of `overlay`, with the two ends in place of a scale.
        """
        image = image or self.image
        blank = Image.new("RGB", self.size)
        base = overlays.enlarge(image or blank, short_side=short_side)
        if image is None:
            return overlays.heat(
                self.values,
                base.size,
                low=low,
                high=high,
            )
        return overlays.overlay(
            base,
            self.values,
            low=low,
            high=high,
        )

    def figure(self, *, scale: Scale = "word") -> "Figure":
        """Draw the heat over the image, or alone if none is known, with a bar of its `scale`."""
        low, high = self.value_range(scale)
        name = "the word's own" if scale == "word" else SCALES[scale]
        name = scale_name(name, self.share_of, self.refined)
        panels = [Panel("", self.render(low, high, short_side=384))]
        bar = ScaleBar(name, (low, high), alone=self.image is None)
        return plots.draw_panels(panels, title=self.label, bars=[bar])

    def plot(self, ax: "Axes", *, scale: Scale = "word") -> "AxesImage":
        """Draw the heat over the image, or alone if none is known, on axes of your own figure.

        Args:
            ax: of any matplotlib figure; its units become the image's pixels.
            scale: see `value_range`.

        Returns:
            The pixels; `figure.colorbar` makes a bar of the heat's colours.
        """
        low, high = self.value_range(scale)
        pixels = np.asarray(self.render(low, high, short_side=1))
        ax.set_axis_off()
        colours = overlays.colormap(low)
        return cast(Any, ax).imshow(
            pixels,
            colours,
            vmin=low,
            vmax=high,
            origin="upper",
        )

    def _repr_png_(self) -> bytes:
        return plots.encode(self.figure())

    def mask(self, threshold: float = MASK_THRESHOLD) -> np.ndarray:
        """Return where the image shows the word: bool (H, W), at the image's size.

        Args:
            threshold: 0 to 1, the value that the soft mask must have at least. A soft mask that is
                0 everywhere has an empty mask.

        Raises:
            ArgumentError: if the threshold is out of range.
        """
        threshold = check_fraction("threshold", threshold)
        soft = self.soft_mask()
        return (soft >= threshold) & soft.any()

    def soft_mask(self) -> np.ndarray:
        """Return the soft mask of the word: float32 (H, W), 0 to 1.

        For an unselected map, the mask is made from the refined map of the word's phrase ("red
        house", for "red" and for "house"), which is lowered where another phrase is stronger and
        aligned with the image's edges (`heedmap.maps.masks`), or with its own if the image is not
        known. Any other map, or one of a run without refined maps, is scaled by its magnitude, from
        0 at the least to 1 at the greatest.
        """
        if self.recording is not None:
            return next(soft_masks(self.recording, [self.tokens], self.image))
        return overlays.resize_map(scaled(np.abs(self.values)), self.size)

    @property
    def extremum(self) -> float:
        """The value farthest from 0."""
        return float(max(self.values.min(), self.values.max(), key=abs))

    @property
    def peak(self) -> tuple[int, int]:
        """The pixel (x, y) at the middle of the position whose value is farthest from 0."""
        h, w = self.values.shape
        width, height = self.size
        y, x = divmod(int(np.abs(self.values).argmax()), w)
        return int((x + 0.5) * width / w), int((y + 0.5) * height / h)


def scale_name(name: str, share_of: Share | None, refined: bool = False) -> str:
    """Return the name of a scale in figures, with its share and the mark of refined maps."""
    if share_of == "outputs":
        name = name.removesuffix(" probability")
    if share_of == "places":
        name = name.replace("word", "place")
    return " · ".join(filter(None, (name, SHARES[share_of], REFINED_BY * refined)))


def common_range(heats: Iterable[HeatMap], scale: Scale) -> Range:
    """Return the lowest and the highest value of one scale for several maps."""
    lows, highs = zip(*(heat.value_range(scale) for heat in heats), strict=True)
    return min(lows), max(highs)


def colour_ranges(
    groups: Iterable[Iterable[HeatMap]],
    scale: Scale,
    *,
    shared: bool,
) -> tuple[list[Range], Range | tuple[str, str]]:
    """Return the range of the colours of each group of maps, and the ends of the scale's bar.

    `scale` is that of each map. If `shared`, all groups have one range; else the bar has words at
    its ends.
    """
    ranges = [common_range(group, scale) for group in groups]
    ends = min(low for low, _ in ranges), max(high for _, high in ranges)
    if ends[0] < 0:
        ends = overlays.centred(*ends)
        ranges = [overlays.centred(*one) for one in ranges]
    if shared:
        return [ends] * len(ranges), ends
    return ranges, ("−most" if ends[0] < 0 else "least", "most")


@dataclass(frozen=True, eq=False)
class HeatMaps(Mapping[str, HeatMap]):
    """The heat maps of one image: by word, by number, over a selection of layers, steps and heads.

        maps["house"], maps["red house"], maps.at(2), "cat" in maps
        {word: heat.peak for word, heat in maps.items()}
        maps.select(layers="up", steps=slice(0, 10), heads=[1, 3])["house"]
        maps.refined["house"], maps.segment()

    A map is the mean of the attention probabilities over layers, steps and heads, each layer
    resized to the map's grid, after DAAM (Tang et al., 2022, arXiv 2210.04885). Those of `outputs`
    are of similarities instead.

    Attributes:
        recording: the probabilities, at the axes that were kept: of each layer float32
            (S, H, Q, K), where S or H is 1 if it was averaged.
        image: the image, if known.
        reading: the recording of the words' own attention to the image (`reads`), if known.
    """

    recording: Recording
    image: Image.Image | None = None
    reading: Recording | None = field(default=None, repr=False, kw_only=True)
    _selection: Selection | None = None  # None: all
    _whole: Recording | None = None  # the recording of refined maps

    def __repr__(self) -> str:
        return f"<HeatMaps of {quoted(self.tokens.prompt)}>"

    @property
    def tokens(self) -> TokenTable:
        """The words and tokens of the prompt, as the model read them."""
        return self.recording.table

    def with_image(self, image: Image.Image) -> "HeatMaps":
        """Return the maps of a trace with their image, for masks and figures.

        Raises:
            ArgumentError: if the image is of another size than the maps'.
        """
        size = self.recording.size
        if image.size != size:
            raise ArgumentError(
                f"the image has {image.width}×{image.height} pixels: expected the image of these "
                f"maps, of {size[0]}×{size[1]}"
            )
        return replace(self, image=image)

    @property
    def words(self) -> tuple[Word, ...]:
        """The words that the model read, in order."""
        return self.recording.table.read_words

    def __iter__(self) -> Iterator[str]:
        """Yield the words that have maps, each once, in order."""
        return iter(dict.fromkeys(word.text for word in self.words))

    def __len__(self) -> int:
        return len({word.text for word in self.words})

    def __getitem__(self, query: str | int) -> HeatMap:
        """Return the map of a word or phrase, regardless of case, or of a word by its number.

        A word's tokens are added up, and so are a phrase's words and all the places at which it
        stands in the prompt: the value is the share of attention that went to any of them. "cat#2"
        is the second "cat" alone.

        Raises:
            WordError: if the prompt has no such word, or the model did not read it.
        """
        if isinstance(query, int):
            return self.at(query)
        if self.recording.share_of == "places" and query not in self:
            known = join_words([quoted(place) for place in self])
            raise UnknownWordError(
                f"the place {quoted(query)} was not recorded: the run has {known}, and "
                "hm.repeat(run, places=…) or `heedmap repeat` records others"
            )
        return self._map(self.tokens.name_of(query), self.tokens.find(query))

    def __contains__(self, query: Any) -> bool:
        """Return whether there is a map of a word or phrase."""
        try:
            return bool(self.tokens.find(query))
        except HeedmapError:
            return False

    def at(self, number: int) -> HeatMap:
        """Return the map of the word with this number, from 0; negative ones count from the end.

        Raises:
            WordError: if the prompt has no such word, or the model did not read it.
        """
        return self._map(self.tokens.at(number).text, self.tokens.tokens_at(number))

    def token(self, position: int) -> HeatMap:
        """Return the map of one token, by its position in the encoded text (0 is the start token).

        Raises:
            SelectionError: if it was not recorded.
        """
        heat = self._map("", (position,))
        label = self.tokens.tokens[position].text
        return replace(
            heat,
            label=label,
            tokens=(),
            recording=None,
        )

    def select(
        self,
        layers: LayerFilter | None = None,
        steps: int | slice | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        *,
        resolution: int | tuple[int, int] | None = None,
        encoder: int | None = None,
    ) -> "HeatMaps":
        """Return the maps over a part of the axes that were kept.

        Args:
            layers: a group ("down", "mid" or "up" of a UNet; "early", "middle" or "late" of SD 3;
                "double" or "single" of Flux); a layer's name; a pattern (`"*attentions.0*"`); a
                list of these; or a predicate of a `Layer`.
            steps: a step number, a slice or a list (negative numbers count from the end).
            heads: a head's number or a list; layers with fewer heads are then left out.
            resolution: only layers whose grid is (h, w), or has this many cells on its short side.
            encoder: only a word's tokens in one of several text encoders: 0 for CLIP or 1 for T5 of
                SD 3.

        Raises:
            UnknownWordError: if the prompt was read by no such encoder.
            SelectionError: if an axis was not kept, or nothing is left.
            ArgumentError: if an argument is of the wrong kind.
        """
        part = self.part
        if layers is not None or resolution is not None:
            part = part.with_layers(layers, resolution)
        if steps is not None:
            part = part.with_steps(steps)
        if heads is not None:
            part = part.with_heads(heads)
        recording = self.recording
        if encoder is not None:
            table = self.tokens.of_encoder(encoder)
            recording = replace(recording, table=table)
            part = replace(part, recording=recording)
        return replace(self, recording=recording, _selection=part)

    @property
    def refined(self) -> "HeatMaps":
        """The maps over all layers, steps and heads, propagated along the image's self-attention.

        A value becomes a mean over the positions that its position attends to, so the maps fit the
        image better: after Dataset Diffusion (Nguyen et al., 2023, arXiv 2309.14303).

        Raises:
            SelectionError: if there are none, or these are the maps of a selection or of outputs.
        """
        self._check_whole("refined maps")
        if self._whole is not None:
            return self
        refined = self.recording.refined_alone()
        return replace(self, recording=refined, reading=None, _whole=self.recording)

    @property
    def outputs(self) -> "HeatMaps":
        """The maps of concepts by the similarity of attention outputs, in SD 3 and Flux.1.

            run.concepts.outputs["tree"], run.concepts.outputs.select(layers="late")["tree"]

        A value is a share among the concepts, from 0 to 1, and no attention: the softmax over the
        concepts of the inner products of the image's output at a position and of each concept's. A
        layer's outputs are the sums of its values by their probabilities, all heads side by side,
        before the output projection. A concept's is the mean over its tokens, those in the prompt
        included. The map is the mean over layers and steps, which can be selected if they were
        kept. After ConceptAttention (Helbling et al., 2025, arXiv 2502.04320), which leaves out the
        single blocks of Flux: `select(layers="double")` does so.

        Raises:
            SelectionError: if there are none: these are no maps of two or more concepts, or the
                model's text has a softmax of its own; or if these are the maps of a selection.
        """
        self._check_whole("maps of outputs")
        return replace(self, recording=self.recording.outputs_alone())

    @property
    def reads(self) -> "HeatMaps":
        """The maps of what each word reads of the image, in the same selection: joint attention.

            run.maps.reads["house"], run.maps["house"].reads

        All other maps show where a word is read. A value is the share of the attention of the
        word's tokens, the mean over these, to a position of the image.

        Raises:
            SelectionError: if it was not recorded, or these are refined maps or maps of outputs.
        """
        if self.reading is None:
            raise SelectionError(
                "there are no maps of what the words read: generate the run with reads=True "
                "(--reads), by a model whose text and image share one softmax"
            )
        part = replace(self.part, recording=self.reading)
        return replace(self, recording=self.reading, reading=None, _selection=part)

    def _check_whole(self, kind: str) -> None:
        if self._selection is not None or self.recording.share_of == "outputs":
            raise SelectionError(
                f"selections and maps of outputs have no {kind} of their own: take them from the "
                "run's unselected maps"
            )

    def segment(
        self,
        phrases: Sequence[str | int] | None = None,
        *,
        threshold: float = MASK_THRESHOLD,
    ) -> Segments:
        """Label each pixel of the image with the phrase that has the greatest soft mask there.

        Args:
            phrases: words or phrases, or numbers of words; all phrases of the prompt if None.
            threshold: 0 to 1, the value that a soft mask must have at least; else it is background.

        Returns:
            Segments, with `.labels` (uint8 (H, W), 0 for the background), `.names`, `.shares`,
            `.mask(name)`, `.sheet()` and `.save(folder)`.

        Raises:
            ArgumentError: if there is no phrase, or two are the same.
            SelectionError: if there are no refined maps, or these are the maps of a selection.
            WordError: if the prompt has no such word, or the model did not read it.
        """
        whole = self.refined._whole
        assert whole is not None
        return segmented(whole, phrases, self.image, threshold)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the selection."""
        return tuple(self.recording.layers[i] for i in self.part.layer_numbers)

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the selection's steps, from 0; SelectionError where they were averaged."""
        return self.part.step_numbers

    @property
    def heads(self) -> tuple[int, ...]:
        """The numbers of the selection's heads, from 0; SelectionError where they were averaged."""
        return self.part.head_numbers

    def sheet(self) -> Image.Image:
        """Return `figure` as an image."""
        return plots.render(self.figure())

    def figure(
        self,
        chosen: Sequence[HeatMap] | None = None,
        *,
        title: str | None = None,
        scale: Scale = "shared",
    ) -> "Figure":
        """Draw the image, then one overlay a word, with captions and the scale.

        Args:
            chosen: maps of this selection; those of every word if None, or of the first 75.
            title: above all; the prompt if None.
            scale: see `HeatMap.value_range`.

        Raises:
            ArgumentError: if there is neither a map nor an image to show, or no such scale.
        """
        return self.figure_and_overlays(chosen, title=title, scale=scale)[0]

    def figure_and_overlays(
        self,
        chosen: Sequence[HeatMap] | None = None,
        *,
        title: str | None = None,
        scale: Scale = "shared",
    ) -> tuple["Figure", list[Image.Image]]:
        """Draw `figure`, and return it with each map's overlay."""
        title = self.tokens.prompt if title is None else title
        if chosen is None:
            chosen = [self.at(word.number) for word in self.words[:MOST_SHOWN]]
            if len(self.words) > MOST_SHOWN:
                title += f" · the first {MOST_SHOWN} words"
        panels: list[Panel] = []
        if self.image is not None:
            panels.append(Panel("", self.image, "the image"))
        if not chosen:
            return plots.draw_panels(panels, title=title), []
        groups = [[heat] for heat in chosen]
        ranges, ends = colour_ranges(groups, scale, shared=scale != "word")
        all_refined = all(heat.refined for heat in chosen)
        images: list[Image.Image] = []
        for heat, span in zip(chosen, ranges, strict=True):
            most = format_number(heat.extremum, ".2g")
            text = f"down to {most}" if heat.extremum < 0 else f"up to {most}"
            if heat.refined and not all_refined:
                text += ", refined"
            images.append(heat.render(*span))
            panels.append(Panel(heat.label, images[-1], text))
        name = scale_name(SCALES[scale], self.recording.share_of, all_refined)
        bar = ScaleBar(name, ends, alone=self.image is None)
        return plots.draw_panels(panels, title=title, bars=[bar]), images

    def _repr_png_(self) -> bytes | None:
        if self.recording.arrays:
            return plots.encode(self.figure())
        return None  # nothing to show: the notebook falls back to text

    def _map(self, label: str, positions: tuple[int, ...]) -> HeatMap:
        whole = self._whole or self.recording
        has_phrases = self._selection is None and whole.refined is not None
        if self.recording.share_of == "reads":
            label = f"what “{label}” reads"
        return HeatMap(
            label,
            self.part.mean_of(positions),
            self.recording.size,
            self.image,
            self.part.extremes,
            positions,
            whole if has_phrases else None,
            self._whole is not None,
            self.recording.share_of,
            reads=None if self.reading is None else self.reads._map(label, positions),
        )

    @cached_property
    def part(self) -> Selection:
        """The part of the recording that is selected."""
        return self._selection or Selection(self.recording)
