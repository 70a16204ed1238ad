"""The blend of latents against its definition, from what `oracle` saw the layers attend to."""

from fractions import Fraction
from math import ceil

import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor2_0
from oracle import HOUSE, RED, SIZE, K, columns, edited, injected, oracled


def acting(held, image, tokens, step):
    """Where tokens acted up to a step, on layers of 16 to 32 cells or else the finest."""
    middle = [name for name, grid in held.grids.items() if 16 <= min(grid) <= 32]
    finest = max(min(grid) for grid in held.grids.values())
    middle = middle or [name for name, grid in held.grids.items() if min(grid) == finest]
    size = max(held.grids[name] for name in middle)
    planes = []
    for name in middle:
        passes = [held.edited[name, before][image] for before in range(step + 1)]
        heat = torch.stack(passes)[..., tokens].sum(-1).mean((0, 1))
        heat = heat.reshape(1, 1, *held.grids[name])
        planes.append(torch.nn.functional.interpolate(heat, size=size, mode="bilinear"))
    return torch.stack(planes).mean(0)


def mask_of(heat, size, threshold):
    pooled = torch.nn.functional.max_pool2d(heat, 3, stride=1, padding=1)
    large = torch.nn.functional.interpolate(pooled, size=size, mode="bilinear")[0, 0]
    return large > large.min() + threshold * (large.max() - large.min())


@pytest.mark.parametrize(
    ("size", "steps", "options", "keep"),
    [
        (SIZE, 5, {"blend_from": 0.4, "threshold": 0.7}, ("layer",)),  # 16 and 8 cells
        (SIZE, 5, {"blend_from": 0.3, "protect": "red"}, ("step",)),
        (SIZE, 5, {"only": '"house"->"at"', "threshold": 0.5}, ("layer",)),  # these words alone
        (SIZE, 2, {"only": "house->at, a->a", "protect": ["red", "house"]}, ("layer",)),
        (SIZE, 2, {"only": "a->a, house->at", "threshold": 0.8}, ("head", "layer")),
        ((96, 96), 5, {}, ("layer", "step", "head")),  # 12 cells and fewer
        ((264, 256), 2, {"blend_from": 0.0}, ()),  # 33 × 32 and 17 × 16 cells
        ((264, 264), 2, {"threshold": 0.5}, ("layer",)),  # 33 × 33 and 17 × 17
    ],
)
def test_blended_latents(random_model, size, steps, options, keep):
    blended(random_model, size, steps, options, keep)


@pytest.mark.parametrize(
    ("size", "steps", "options", "keep"),
    [
        ((256, 256), 3, {"blend_from": 0.4, "threshold": 0.7}, ("layer",)),  # 16 cells
        (SIZE, 5, {"blend_from": 0.3, "protect": "red"}, ("step",)),  # 8
        ((96, 160), 2, {"only": '"house"->"at"', "threshold": 0.5}, ()),  # 5 × 3
    ],
)
def test_blended_latents_of_a_transformer(size, steps, options, keep):
    blended(oracled("pixart", AttnProcessor2_0), size, steps, options, keep)


def blended(pipe, size, steps, options, keep):
    """Draw an edit that is blended, and hold the latents of each step against the definition."""
    begin, threshold = options.get("blend_from", 0.2), options.get("threshold", 0.4)
    same = columns(*(([n], [n]) for n in range(K)))
    before, after = [], []
    step = pipe.scheduler.step

    def stepped(model_output, timestep, sample, **given):
        found = step(model_output, timestep, sample, **given)
        before.append(found[0].clone())
        return found

    def rule(here, source, own):
        return injected(here, source, own, same, 0.6)

    vars(pipe.scheduler)["step"] = stepped
    try:
        _, held = edited(
            pipe, "a red house", "a red at", rule, size=size, cross=0.6, keep=keep,
            preview=after.append, steps=steps, **({"only": "house->at"} | options),
        )  # fmt: skip
    finally:
        del vars(pipe.scheduler)["step"]
    assert len(before) == len(after) == steps
    blends = 0
    for number, (plain, blended) in enumerate(zip(before, after, strict=True)):
        expected = plain.clone()
        if number >= Fraction(str(begin)) * steps:
            cells = plain.shape[-2:]

            def acts(image, tokens, number=number, cells=cells):
                return mask_of(acting(held, image, tokens, number), cells, threshold)

            # "at" stands for no thing, and so in no phrase.
            house = HOUSE if '"' in options.get("only", "") else RED + HOUSE
            mask = acts(0, house) | acts(1, HOUSE)
            if "a->a" in options.get("only", ""):
                mask = mask | acts(0, [1]) | acts(1, [1])
            protect = options.get("protect", ())
            for word in [protect] if isinstance(protect, str) else protect:
                mask = mask & ~acts(0, {"red": RED, "house": HOUSE}[word])
            assert 0 < mask.float().mean() < 1
            expected[1] = torch.where(mask, plain[1], plain[0])
            blends += 1
        torch.testing.assert_close(blended, expected, atol=1e-6, rtol=0)
    assert blends == steps - ceil(Fraction(str(begin)) * steps)
