"""Masks by pixels, held against the exact ones of rendered scenes, sharp and as decoded."""

from itertools import islice

import numpy as np
import torch

from evaluation import judge, measures, segmenter, truth
from evaluation.judge import Found
from world import layouts, scenes

UNUSED = layouts.HELD_OUT_SEED + 900_000_000


def rendered(n: int) -> list[scenes.Scene]:
    """Scenes of each kind in turn that nothing else is measured on."""
    return [scenes.render(layout) for _, layout in islice(truth.held_out(UNUSED + 500_000), n)]


@torch.no_grad()
def decoded(pipe, picture: np.ndarray) -> np.ndarray:
    """A picture as the model's autoencoder gives it back."""
    x = judge.to_tensor(picture[None])
    y = pipe.vae.decode(pipe.vae.encode(x).latent_dist.mode()).sample
    return ((y[0].movedim(0, -1) + 1) * 127.5).clamp(0, 255).round().to(torch.uint8).numpy()


def test_masks_overlap_the_exact_ones(embedded):
    drawn = rendered(5)
    pictures = np.stack([decoded(embedded, s.image) for s in drawn])
    overlaps, by_cells = [], []
    for scene, picture, said in zip(drawn, pictures, judge.detect(pictures), strict=True):
        made = segmenter.masks(picture, said.things)
        for thing, mask in zip(scene.layout.things, scene.masks, strict=True):
            kind = thing.colour, thing.noun
            found = [k for k, one in enumerate(said.things) if (one.colour, one.noun) == kind]
            overlaps.append(max((measures.overlap(made[k], mask) for k in found), default=0))
            cells = (measures.pixels(said.things[k].mask) for k in found)
            by_cells.append(max((measures.overlap(one, mask) for one in cells), default=0))
    assert len(overlaps) == 10
    assert np.mean(overlaps) > 0.94 and np.min(overlaps) > 0.6
    assert np.mean(overlaps) > np.mean(by_cells) + 0.05


def disc(radius: float, x: float = 64, y: float = 64) -> np.ndarray:
    rows, columns = np.indices((128, 128)) + 0.5
    return (rows - y) ** 2 + (columns - x) ** 2 < radius**2


def found(mask: np.ndarray, colour: str = "red") -> Found:
    """As the judge would have it: the cells that are covered by half."""
    cells = mask.reshape(32, 4, 32, 4).mean((1, 3)) >= 0.5
    return Found("balloon", colour, cells, (0.5, 0.5), float(cells.mean()))


def test_a_disc_with_a_contour_and_a_window_is_one_object():
    """All of it is the thing: what encloses nothing but itself, and the contour outside."""
    picture = np.full((128, 128, 3), 235, np.uint8)
    picture[disc(30)] = scenes.tints("red")["ink"]
    picture[disc(29)] = layouts.COLOURS["red"]
    window = disc(6) | disc(1.2, x=91.4)  # in the middle, and where the edge is near
    picture[window] = 235  # the background's colour
    (made,) = segmenter.masks(picture, [found(disc(30))])
    assert measures.overlap(made, disc(30)) > 0.97
    assert made[window].all()


def test_separate_pixels_are_no_part_of_an_object():
    picture = np.full((128, 128, 3), 235, np.uint8)
    picture[disc(20)] = layouts.COLOURS["red"]
    speck = disc(1.2, x=87)
    picture[speck] = layouts.COLOURS["red"]
    (made,) = segmenter.masks(picture, [found(disc(20))])
    assert not made[speck].any() and measures.overlap(made, disc(20)) > 0.97


def test_two_things_that_touch_are_told_by_their_colours():
    picture = np.full((128, 128, 3), 235, np.uint8)
    left, right = disc(20, x=44), disc(20, x=82) & ~disc(20, x=44)
    picture[left], picture[right] = layouts.COLOURS["red"], layouts.COLOURS["blue"]
    made = segmenter.masks(picture, [found(left), found(right, "blue")])
    assert made.shape == (2, 128, 128) and not (made[0] & made[1]).any()
    assert measures.overlap(made[0], left) > 0.95 and measures.overlap(made[1], right) > 0.95


def test_no_objects_give_no_masks():
    assert segmenter.masks(np.zeros((128, 128, 3), np.uint8), []).shape == (0, 128, 128)
