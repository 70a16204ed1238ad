"""What the even steps drew and what the odd ones did, beside the sums of all there was."""

from itertools import product

import numpy as np
import pytest
import torch

from heedmap.mathematics.rules import Site
from heedmap.recording.accumulation import Halves, Tally

GRIDS = {"one": (4, 6), "two": (2, 3), "three": (4, 6)}


def everything(steps: int, heads: int = 3) -> dict[tuple[int, str, int], torch.Tensor]:
    """By image, layer and step: (H, Q, K) of five tokens."""
    generator = torch.Generator().manual_seed(0)
    return {
        (image, name, step): torch.rand(heads, h * w, 5, generator=generator)
        for image, step, (name, (h, w)) in product(range(2), range(steps), GRIDS.items())
    }


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_both_halves_are_the_sums_of_their_steps_by_grid(steps: int):
    there, halves = everything(steps), Halves()
    for (image, name, step), p in there.items():
        whole = p.clone()
        halves.add(image, Site(name, step, steps, GRIDS[name]), p)
        assert torch.equal(p, whole)
    for image in range(2):
        found = halves.of(image)
        assert len(found) == min(steps, 2)
        for half, sums in enumerate(found):
            assert sums.keys() == {(4, 6), (2, 3)}
            for grid, total in sums.items():
                expected = [
                    p.double().mean(dim=0).numpy()
                    for (i, name, step), p in there.items()
                    if (i, GRIDS[name], step % 2) == (image, grid, half)
                ]
                np.testing.assert_allclose(total, np.sum(expected, axis=0), rtol=1e-5)
    assert halves.of(2) == ()


@pytest.mark.parametrize("keep", [(), ("layer",), ("layer", "head"), ("layer", "step")])
def test_a_tally_keeps_the_same_with_them_and_they_are_the_same_whatever_it_keeps(keep):
    there, cpu = everything(4), torch.device("cpu")
    plain, halved = (Tally(frozenset(keep), [(0, 3), (1,)], halves) for halves in (False, True))
    for tally in (plain, halved):
        for (image, name, step), p in there.items():
            site = Site(name, step, 4, GRIDS[name])
            of = lambda heads, tokens, p=p: p[heads][..., list(tokens)].clone()  # noqa: E731
            tally.add(image, site, of, 3, (4, 6), cpu)
    assert plain.halves is None and halved.halves is not None
    layers = GRIDS if "layer" in keep else [""]
    for image, name in product(range(2), layers):
        steps = range(4) if "step" in keep else [0]
        assert torch.equal(halved.mean(image, name, steps), plain.mean(image, name, steps))
    own = Halves()
    for (image, name, step), p in there.items():
        own.add(image, Site(name, step, 4, GRIDS[name]), p[..., [(0, 3), (1,)][image]])
    for image in range(2):
        for mine, theirs in zip(halved.halves.of(image), own.of(image), strict=True):
            for grid in mine:
                np.testing.assert_allclose(mine[grid], theirs[grid], rtol=1e-6)
