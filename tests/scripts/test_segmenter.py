"""Masks by pixels, compared with the exact ones of rendered scenes, as decoded."""

from itertools import islice

import numpy as np
import torch

from evaluation import judge, measures, segmenter, truth
from evaluation.judge import Found
from world import layouts, scenes

UNUSED = layouts.HELD_OUT_SEED + 900_500_000
"""Scenes that nothing else is measured on."""


@torch.no_grad()
def decode(pipe, image: np.ndarray) -> np.ndarray:
    """An image as the model's autoencoder gives it back."""
    x = judge.to_tensor(image[None])
    y = pipe.vae.decode(pipe.vae.encode(x).latent_dist.mode()).sample
    return ((y[0].movedim(0, -1) + 1) * 127.5).clamp(0, 255).round().to(torch.uint8).numpy()


def test_masks_overlap_the_exact_ones(embedded):
    rendered = [scenes.render(layout) for _, layout in islice(truth.held_out(UNUSED), 5)]
    images = np.stack([decode(embedded, scene.image) for scene in rendered])
    overlaps, by_cells = [], []
    for scene, image, judgement in zip(rendered, images, judge.detect(images), strict=True):
        masks = segmenter.masks(image, judgement.things)
        for thing, exact in zip(scene.layout.things, scene.masks, strict=True):
            same = [
                k
                for k, one in enumerate(judgement.things)
                if (one.colour, one.noun) == (thing.colour, thing.noun)
            ]
            cells = [measures.pixels(judgement.things[k].mask) for k in same]
            overlaps.append(max(measures.overlap(masks[k], exact) for k in same))
            by_cells.append(max(measures.overlap(one, exact) for one in cells))
    assert len(overlaps) == 10
    assert np.mean(overlaps) > 0.94 and np.min(overlaps) > 0.6
    assert np.mean(overlaps) > np.mean(by_cells) + 0.05


def disc(radius: float, x: float = 64) -> np.ndarray:
    rows, columns = np.indices((128, 128)) + 0.5
    return (rows - 64) ** 2 + (columns - x) ** 2 < radius**2


def judged(mask: np.ndarray, colour: str = "red") -> Found:
    """As the judge would have it: the cells that are covered by half."""
    cells = mask.reshape(32, 4, 32, 4).mean((1, 3)) >= 0.5
    return Found("balloon", colour, cells, (0.5, 0.5), float(cells.mean()))


def test_a_disc_with_a_contour_and_a_window_is_one_object():
    """All of it is the thing: what encloses nothing but itself, and the contour outside."""
    image = np.full((128, 128, 3), 235, np.uint8)
    image[disc(30)] = scenes.tints("red")["ink"]
    image[disc(29)] = layouts.COLOURS["red"]
    window = disc(6) | disc(1.2, x=91.4)  # in the middle, and where the edge is near
    image[window] = 235  # the background's colour
    (mask,) = segmenter.masks(image, [judged(disc(30))])
    assert measures.overlap(mask, disc(30)) > 0.97
    assert mask[window].all()


def test_touching_things_are_separated_by_colour_and_specks_left_out():
    image = np.full((128, 128, 3), 235, np.uint8)
    left, right = disc(20, x=44), disc(20, x=82) & ~disc(20, x=44)
    speck = disc(1.2, x=21)
    image[left | speck] = layouts.COLOURS["red"]
    image[right] = layouts.COLOURS["blue"]
    masks = segmenter.masks(image, [judged(left), judged(right, "blue")])
    assert masks.shape == (2, 128, 128) and not (masks[0] & masks[1]).any()
    assert measures.overlap(masks[0], left) > 0.95 and measures.overlap(masks[1], right) > 0.95
    assert not masks[0][speck].any()
    assert segmenter.masks(image, []).shape == (0, 128, 128)
