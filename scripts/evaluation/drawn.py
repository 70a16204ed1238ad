"""Do maps of pictures that the model drew itself say where the words are?

The model draws held-out captions as anybody would have it draw (`heedmap.generate`); what it drew
where is told by an independent segmenter of the picture's pixels (`segmenter`, on what the judge
finds), never by attention. The ways to make a map, and what is measured of them, are `truth`'s.
"""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import numpy as np

import heedmap
from evaluation import judge, segmenter, truth
from evaluation.cases import Progress, as_array
from evaluation.listening import listening
from evaluation.measures import Figures, share
from evaluation.rivals import Gathered
from world import captions, layouts

FIRST = truth.FIRST + 100_000_000
"""Layouts of these captions begin here; no other question has them, nor has any training."""


def masks_of(layout: layouts.Layout, picture: np.ndarray, said: judge.Judgement) -> np.ndarray:
    """Where the things of a caption are in a picture that was drawn of it.

    Args:
        layout: what the caption tells of; where its things lie plays no part.
        picture: uint8 (128, 128, 3).
        said: what the judge finds in it.

    Returns:
        bool (things of the layout, 128, 128). Empty are those of a kind (noun and colour) of which
        the judge does not find as many as the caption tells: which of them a word speaks of could
        not be known.
    """
    found = segmenter.masks(picture, said.things)
    made = np.zeros((len(layout.things), *picture.shape[:2]), bool)
    for kind in {(thing.noun, thing.colour) for thing in layout.things}:
        told = [k for k, one in enumerate(layout.things) if (one.noun, one.colour) == kind]
        there = [k for k, one in enumerate(said.things) if (one.noun, one.colour) == kind]
        if len(told) == len(there):
            made[told] = found[there]
    return made


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> Figures:
    """All methods over pictures drawn of the first n captions.

    Returns:
        as `truth.compared`; and `left_out`, the share of all words that were not asked for, since
        the judge does not find their thing.
    """
    left: list[bool] = []

    def draw() -> Iterator[truth.Shown]:
        for number, (name, layout) in enumerate(islice(truth.held_out(FIRST), n)):
            caption = captions.object_caption(layout, Random(layout.seed))
            noise = Random(f"{seed} maps {number}").getrandbits(31)
            with listening(pipe) as heard:
                run = heedmap.generate(pipe, caption.text, seed=noise, **how)
            picture = as_array(run)
            (said,) = judge.detect(picture[None], eye)
            masks = masks_of(layout, picture, said)
            asked = truth.asked_of(name, masks, caption, run.maps)
            every = truth.asked_of(name, np.ones_like(masks), caption, run.maps)
            left.extend([False] * len(asked) + [True] * (len(every) - len(asked)))
            yield truth.Shown(run.maps, Gathered.of(heard), asked)
            progress("drawn", number + 1, n)

    figures = truth.compared(truth.scores_of(draw()), seed)
    return {**figures, "left_out": share(left)}
