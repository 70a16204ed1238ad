"""One word of a run over its steps: a sheet of some of them, and an animation."""

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import plural
from heedmap.figures import layout
from heedmap.figures.animations import Animation
from heedmap.figures.blocks import Block, stack
from heedmap.figures.layout import Panel
from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale
from heedmap.maps.word_sheets import SIDE, check_many, heat_of, mean_of, scale_bar, shown_at

if TYPE_CHECKING:
    from heedmap.figures.sheet import Sheet

FRAMES = 9
"""Steps on a timeline."""
MOVING = 60
"""Steps in an animation at most."""
MOVING_SIDE = 384
"""Pixels of the picture in an animation, the geometric mean of its sides."""
MOST_STEPS = 1000
"""Steps of which a timeline or an animation can be made."""
_DONE, _REST = (99, 99, 104), (225, 225, 229)  # the strip that shows how far a run is


def timeline(
    maps: HeatMaps, word: str | int, *, frames: int = FRAMES, scale: Scale = "word"
) -> "Sheet":
    """Draw a word's overlay at several steps, in reading order, and the picture they lead to.

    The frames are single steps, evenly chosen from the first to the last of the selection; between
    them nothing is averaged. The scale is one for all steps, those between the frames too, so that
    it is that of `animation`.

    Args:
        maps: of one image, with "step" kept; a selection of it, as a rule of layers or heads.
        word: a word or phrase of the prompt, or a word's number.
        frames: how many steps; all, where there are fewer.
        scale: "word", "shared" or "raw".

    Raises:
        SelectionError: if the steps were averaged while recording, or are more than 1000.
        WordError: if the model did not read such a word.
    """
    maps = shown_at(maps, SIDE)
    heats, low, high = _each_step(maps, word, scale, frames)
    timesteps = maps.recording.timesteps
    panels = [
        Panel(
            f"step {step}", heat.drawn(low, high, short_side=1), f"timestep {timesteps[step]:.4g}"
        )
        for step, heat in heats
    ]
    if maps.image is not None:
        panels.append(Panel("the picture", maps.image))
    heat, over = heats[0][1], "" if maps.image is None else ", over the finished picture"
    said = f"{len(heats)} of {plural(len(timesteps), 'step')}, each by itself{over}"
    return layout.framed(
        layout.in_rows(panels),
        title=f"Over the steps: {heat.label}",
        note=f"{said} · {mean_of(maps, 'step')} · {maps.tokens.prompt}",
        bar=scale_bar(scale, heat, "at all steps", low, high),
    )


def animation(maps: HeatMaps, word: str | int, *, scale: Scale = "word") -> Animation:
    """Draw a word's overlay step by step, each with its step's number, on one scale.

    Of more than `MOVING` steps, so many are shown, evenly chosen.

    Args:
        maps: as in `timeline`.
        word: a word or phrase of the prompt, or a word's number.
        scale: "word", "shared" or "raw", over all steps.

    Raises:
        SelectionError: if the steps were averaged while recording, or are more than 1000.
        WordError: if the model did not read such a word.
    """
    maps = shown_at(maps, MOVING_SIDE)
    heats, low, high = _each_step(maps, word, scale, MOVING)
    total = len(maps.recording.timesteps)
    bar = scale_bar(scale, heats[0][1], "at all steps", low, high)
    label = f"Over the steps: {heats[0][1].label}"
    drawn: list[Image.Image] = []
    for step, heat in heats:
        picture = Block.of(heat.drawn(low, high, short_side=1))
        strip = Image.new("RGB", (picture.width, 6), _REST)
        strip.paste(_DONE, (0, 0, max(1, round(picture.width * (step + 1) / total)), 6))
        body = stack([picture, Block.of(strip)], gap=6)
        note = f"step {step} of 0–{total - 1}"
        drawn.append(layout.framed(body, title=label, note=note, bar=bar).image())
    each = round(min(max(5000 / len(drawn), 80), 400) / 10) * 10  # GIFs count in hundredths
    return Animation(label, tuple(drawn), (*[each] * (len(drawn) - 1), max(1500, each)))


def _each_step(
    maps: HeatMaps, word: str | int, scale: Scale, frames: int
) -> tuple[list[tuple[int, HeatMap]], float, float]:
    """Some steps of a selection with a word's map there, and the scale of all of its steps."""
    steps = maps.steps
    count = min(len(steps), checks.whole("frames", frames, least=1))
    # Evenly: the last and, of two or more, the first too.
    chosen = set(np.linspace(len(steps) - 1, 0, count).round())
    check_many(maps, len(steps), MOST_STEPS, "steps", scale)
    heats: list[tuple[int, HeatMap]] = []
    spans: list[tuple[float, float]] = []
    for at, step in enumerate(steps):
        heat = heat_of(maps.select(steps=step), word, scale)
        spans.append(heat.span(scale))
        if at in chosen:  # of the others no more than their span is kept
            heats.append((step, heat))
    return heats, min(low for low, _ in spans), max(high for _, high in spans)
