"""Masks by pixels, compared with the exact ones of rendered scenes, as decoded."""

from itertools import islice

import numpy as np
import torch

from evaluation import judge, measures, segmenter, truth
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
