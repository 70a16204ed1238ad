"""The blend of latents against its definition, from what `oracle` saw the layers attend to."""

from fractions import Fraction
from math import ceil

import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor2_0
from oracle import HOUSE, RED, SIZE, K, columns, edited, injected, load_random, propagated_maps
from torch.nn.functional import interpolate


def read_places(held, image, step, steps, tokens, rivals=()):
    """Where tokens act, lessened where those of another phrase stand out more."""
    late = [at >= steps / 2 or at == steps - 1 for at in range(step + 1)]
    plain, refined = propagated_maps(held, image, [(1, is_late) for is_late in late])
    strength = []
    for part in (tokens, *rivals):
        heat = plain[..., part].abs().sum(-1)
        above = (heat - heat.mean()).clamp(min=0)
        strength.append((above / above.max()) ** 4)
    own = refined[..., tokens].abs().sum(-1)
    own = (own - own.min()) / (own.max() - own.min())
    if rivals:
        mine, rival = strength[0], torch.stack(strength[1:]).amax(0)
        own = own * (1 - torch.where(rival > 0, rival / (mine + rival), 0))
    return own[None, None]


def cut(heat, size, threshold):
    pooled = torch.nn.functional.max_pool2d(heat, 3, stride=1, padding=1)
    large = interpolate(pooled, size=size, mode="bilinear")[0, 0]
    return large > large.min() + threshold * (large.max() - large.min())


@pytest.mark.parametrize(
    ("kind", "size", "steps", "options", "keep"),
    [
        ("unet", SIZE, 5, {"blend_from": 0.3, "protect": "red"}, ("step",)),
        # These words alone.
        ("unet", SIZE, 3, {"only": '"house"->"at"', "threshold": 0.5}, ("layer",)),
        (
            "unet",
            SIZE,
            2,
            {"only": "house->at, a->a", "protect": ["red", "house"], "threshold": 0.5},
            ("head", "layer"),
        ),
        # The source's decides.
        ("unet", SIZE, 5, {"self_replace": 1.0, "blend_from": 0.0, "threshold": 0.5}, ()),
        # 12 cells and fewer.
        ("unet", (96, 96), 5, {}, ("layer", "step", "head")),
        # 33 × 32 and 17 × 16 cells.
        ("unet", (264, 256), 2, {"blend_from": 0.0, "threshold": 0.5}, ()),
        # 16 cells.
        ("pixart", (256, 256), 3, {"blend_from": 0.4, "threshold": 0.7}, ("layer",)),
    ],
)
@pytest.mark.filterwarnings("ignore:the edit .* did not visibly change")
def test_blended_latents_equal_the_definition(kind, size, steps, options, keep):
    draw_blend(load_random(kind, AttnProcessor2_0), size, steps, options, keep)


@pytest.mark.parametrize(("kind", "house", "protect"), [("unet", 1, ["house"]), ("pixart", 0, [])])
def test_the_blend_mask_gives_a_cell_to_the_strongest_phrase(kind, house, protect):
    pipe, sea = load_random(kind, AttnProcessor2_0), [house + 2, house + 3, house + 4]

    def mask_of(acts):
        mask = acts(0, sea, [[house]]) | acts(1, sea, [[house]])
        return mask & ~acts(0, [house], [sea]) if protect else mask

    options = {"only": "sea->bed", "threshold": 0.3, "protect": protect}
    draw_blend(pipe, (256, 192), 3, options, (), ("house at sea", "house at bed"), mask_of)


def where_the_house_is(acts, options):
    """Of "a red house" and "a red at": "at" stands for no thing, and so in no phrase."""
    house = HOUSE if '"' in options.get("only", "") else RED + HOUSE
    mask = acts(0, house) | acts(1, HOUSE)
    if "a->a" in options.get("only", ""):
        mask = mask | acts(0, [1]) | acts(1, [1])
    protect = options.get("protect", ())
    for word in [protect] if isinstance(protect, str) else protect:
        mask = mask & ~acts(0, {"red": RED, "house": HOUSE}[word])
    return mask


def draw_blend(pipe, size, steps, options, keep, prompts=("a red house", "a red at"), mask_of=None):
    """Draw an edit that is blended, and hold the latents of each step against the definition."""
    begin, threshold = options.get("blend_from", 0.2), options.get("threshold", 0.25)
    same = columns(*(([n], [n]) for n in range(K)))
    before, after = [], []
    step = pipe.scheduler.step

    def step_and_keep(model_output, timestep, sample, **given):
        found = step(model_output, timestep, sample, **given)
        before.append(found[0].clone())
        return found

    def rule(here, source, own):
        return injected(here, source, own, same, 0.6)

    vars(pipe.scheduler)["step"] = step_and_keep
    try:
        _, held = edited(
            pipe,
            *prompts,
            rule,
            size=size,
            cross_replace=0.6,
            keep=keep,
            preview=after.append,
            steps=steps,
            sharing=(lambda *_: [0, 0]) if "self_replace" in options else None,
            **({"only": "house->at"} | options),
        )
    finally:
        del vars(pipe.scheduler)["step"]
    assert len(before) == len(after) == steps
    blends = 0
    for number, (plain, result) in enumerate(zip(before, after, strict=True)):
        expected = plain.clone()
        if number >= Fraction(str(begin)) * steps:
            cells = plain.shape[-2:]

            def acts(image, tokens, rivals=(), number=number, cells=cells):
                heat = read_places(held, image, number, steps, tokens, rivals)
                return cut(heat, cells, threshold)

            mask = where_the_house_is(acts, options) if mask_of is None else mask_of(acts)
            assert 0 < mask.float().mean() < 1
            expected[1] = torch.where(mask, plain[1], plain[0])
            blends += 1
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)
    assert blends == steps - ceil(Fraction(str(begin)) * steps)
