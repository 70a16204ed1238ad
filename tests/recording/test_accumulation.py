"""Means of probabilities, whatever axes are kept, against the means of all there were."""

from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image

from heedmap.mathematics.rules import Site
from heedmap.recording.accumulation import AttentionAccumulator, SiteProbabilities, regrid

LATENT = (4, 6)
GRIDS = {"fine": (4, 6), "coarse": (2, 3)}
HEADS, STEPS, IMAGES = 3, 2, 2
CPU = torch.device("cpu")


def everything():
    """By image, layer and step: (H, Q, K) of ten tokens."""
    generator = torch.Generator().manual_seed(0)
    return {
        (image, name, step): torch.rand(HEADS, h * w, 10, generator=generator)
        for image, (name, (h, w)), step in product(range(IMAGES), GRIDS.items(), range(STEPS))
    }


@pytest.mark.parametrize("wanted", [(64, 64), (64, 96), (5, 7), (200, 130)])
def test_resizing_to_another_grid_equals_pillows(wanted):
    """Of a finer one no cell is skipped: each counts where it lies."""
    h, w = 128, 96
    p = torch.rand(2, h * w, 3, generator=torch.Generator().manual_seed(1))
    found = regrid(p, (h, w), wanted).unflatten(1, wanted)
    for head, token in product(range(2), range(3)):
        plane = Image.fromarray(p[head, :, token].reshape(h, w).numpy())
        expected = np.asarray(plane.resize(wanted[::-1], Image.Resampling.BILINEAR))
        np.testing.assert_allclose(found[head, ..., token], expected, atol=1e-5)


def probabilities(p, device=CPU):
    """Those of one image at one site, of P (H, Q, K)."""
    of = lambda heads, tokens: p[heads][..., list(tokens)]  # noqa: E731
    return SiteProbabilities(of, len(p), p.shape[1], device)


def told(keep, positions=((1, 4, 7), (0, 2)), passes=1, device=CPU):
    tally = AttentionAccumulator(frozenset(keep), positions, LATENT)
    all_there_is = everything()
    for _ in range(passes):
        for (image, name, step), p in all_there_is.items():
            whole = p.clone()
            site = Site(name, step, STEPS, GRIDS[name])
            tally.add(image, site, probabilities(p, device), passes)
            assert torch.equal(p, whole)
    return tally, all_there_is


@pytest.mark.parametrize("device", [CPU, torch.device("meta")])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("step", [True, False])
@pytest.mark.parametrize("head", [True, False])
def test_each_layer_has_its_mean(step, head, passes, device):
    keep = {"layer"} | ({"step"} if step else set()) | ({"head"} if head else set())
    tally, every = told(keep, passes=passes, device=device)
    for image, name in product(range(IMAGES), GRIDS):
        columns = list(tally.positions[image])
        whole = torch.stack([every[image, name, s][..., columns] for s in range(STEPS)])
        whole = whole if step else whole.mean(0, keepdim=True)
        whole = whole if head else whole.mean(1, keepdim=True)
        steps = range(STEPS) if step else [0]
        torch.testing.assert_close(tally.mean(image, name, steps), whole)
    if step:
        back = tally.mean(0, "fine", [1, 0])
        assert torch.equal(back, tally.mean(0, "fine", [0, 1]).flip(0))


@pytest.mark.parametrize("head", [True, False])
def test_maps_are_averaged_over_layers(head):
    tally, every = told({"head"} if head else ())
    columns = list(tally.positions[1])
    planes = []
    for name, s in product(GRIDS, range(STEPS)):
        p = every[1, name, s][..., columns]
        p = p if head else p.mean(0, keepdim=True)
        plane = p.permute(0, 2, 1).unflatten(-1, GRIDS[name])
        # Enlarged, each place of the latent is between the four nearest of the layer.
        large = torch.nn.functional.interpolate(plane, size=LATENT, mode="bilinear")
        planes.append(large.flatten(2).permute(0, 2, 1))
    torch.testing.assert_close(tally.mean(1, "", [0])[0], torch.stack(planes).mean(0))


@pytest.mark.parametrize("keep", [{"layer", "step"}, {"layer"}, {"step"}, set()])
def test_a_step_of_two_passes_weighs_as_much_as_one_of_one(keep):
    """As of Heun, whose last step asks the model once; whatever is kept, the mean is the same."""
    tally = AttentionAccumulator(frozenset(keep), [(0, 2)], (2, 3))
    generator = torch.Generator().manual_seed(2)
    passes = torch.rand(5, HEADS, 6, 3, generator=generator)
    for number, p in enumerate(passes):
        site = Site("a", number // 2, 3, (2, 3))
        many = 1 if number == 4 else 2
        tally.add(0, site, probabilities(p), many)
    steps = torch.stack([passes[:2].mean(0), passes[2:4].mean(0), passes[4]])[..., [0, 2]]
    steps = steps.mean(1, keepdim=True)
    name, kept = "a" if "layer" in keep else "", range(3) if "step" in keep else [0]
    torch.testing.assert_close(tally.mean(0, name, kept).mean(0), steps.mean(0))
    if "step" in keep:
        torch.testing.assert_close(tally.mean(0, name, kept), steps)
