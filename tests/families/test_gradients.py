"""Maps of words as tensors with their graph: their gradients against finite differences."""

import inspect
from copy import deepcopy

import pytest
import torch
from oracle import denoiser, reference
from torch.utils._pytree import tree_map

import heedmap as hm
from families.models import TABLE

WORD = "red"


def doubled(value):
    """A tensor of the arguments of a pass in float64."""
    is_float = torch.is_tensor(value) and value.is_floating_point()
    return value.double() if is_float else value


def first_pass(pipe, call):
    """The arguments of the first pass, whose latents have a gradient, and the events there."""
    model = denoiser(pipe)
    inputs, events = {}, []

    def begin(_, args, kwargs):
        if inputs:
            return None
        names = list(inspect.signature(model.forward).parameters)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        name = names[0]
        inputs.update(given | {name: given[name].detach().clone().requires_grad_()})
        torch.set_grad_enabled(True)
        return (), dict(inputs)

    def end(*_):
        torch.set_grad_enabled(False)

    def observe(event):
        if torch.is_grad_enabled():
            events.append(event)

    handles = [
        model.register_forward_pre_hook(begin, with_kwargs=True),
        model.register_forward_hook(end),
    ]
    with hm.observe(pipe, observe):
        pipe("a red dog", num_inference_steps=1, output_type="latent", **call)
    for handle in handles:
        handle.remove()
    return inputs, events


@pytest.mark.parametrize("family", [None, "joint", "sd1", "sdxl", "sd3", "flux", "qwen"])
def test_the_gradient_of_a_map_is_that_of_finite_differences(family, load):
    """Those of all layers together, with weights by chance, in float64."""
    call = {"generator": torch.Generator().manual_seed(0)}
    if family in TABLE:
        pipe = load(family)
        call |= TABLE[family].arguments()
        tokens = TABLE[family].red
    else:
        pipe = hm.load(family)
        tokens = hm.generate(pipe, "a red dog", steps=1, seed=0).maps.tokens.find(WORD)
    pipe.set_progress_bar_config(disable=True)
    inputs, events = first_pass(pipe, call)
    latents = next(iter(inputs))
    row = [one.branch for one in events[0].layout.rows].index("conditional")
    random = torch.Generator().manual_seed(1)
    weights = {event.layer: torch.randn(event.site.grid, generator=random) for event in events}
    maps = {event.layer: event.token_maps(row, tokens).sum(0) for event in events}
    loss = sum((weights[layer] * one).sum() for layer, one in maps.items())
    (gradient,) = torch.autograd.grad(loss, inputs[latents])
    gradient = gradient.double()

    model = denoiser(pipe)
    part = next(name for name, one in pipe.components.items() if one is model)
    setattr(pipe, part, deepcopy(model).double())
    exact = tree_map(doubled, {name: one for name, one in inputs.items() if name != latents})

    def value(x):
        with torch.no_grad(), reference(pipe) as shares:
            denoiser(pipe)(**exact, **{latents: x})
        assert set(shares) == set(weights)
        total = 0.0
        for layer, (p,) in shares.items():
            one = torch.from_numpy(p[row][..., list(tokens)]).sum(-1).mean(0)
            total += float((one * weights[layer].double().flatten()).sum())
        return total

    x = inputs[latents].detach().double()
    assert value(x) == pytest.approx(loss.item(), rel=1e-4)
    direction = torch.randn(x.shape, generator=random).double()
    direction = gradient / gradient.norm() + direction / direction.norm()
    size = 0.02
    ends = [value(x + sign * size * direction) for sign in (-1, -0.5, 0.5, 1)]
    wide, narrow = (ends[3] - ends[0]) / (2 * size), (ends[2] - ends[1]) / size
    difference = (4 * narrow - wide) / 3  # by Richardson, of the fourth order
    assert float((gradient * direction).sum()) == pytest.approx(difference, rel=1e-3)
