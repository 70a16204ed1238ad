"""The picture against the definition: what every layer puts out in an edited run, in float64.

`oracle` computes it beside the run, from the layer's weights and the rule as its docstring says it.
"""

import warnings

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import generate_batch
from oracle import (
    HOUSE,
    RED,
    SIZE,
    STEPS,
    SWAP,
    TAIL,
    K,
    acts,
    columns,
    compare_layers,
    confined,
    edited,
    first,
    generated,
    held_maps,
    injected,
    load_random,
    normal,
    reads,
    weighed,
)

import heedmap as hm

KINDS = [("unet", AttnProcessor2_0), ("pixart", AttnProcessor)]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def pipe(request):
    """An edit leaves it as it was; once with the fused attention, once with the classic one."""
    return load_random(*request.param)


# --- rules in generate --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "edits", "guidance"),
    [
        ("a red house", [hm.Reweight("red", -1.5), hm.Reweight("house", 2)], 1.0),
        ("a (red:-0.5) ((house:2):1)", [hm.Reweight("red", 3)], 7.5),
    ],
)
def test_weighted_words_equal_the_definition(pipe, prompt, edits, guidance):
    rule = lambda here: weighed(here.p[0], [(RED, -1.5), (HOUSE, 2)])  # noqa: E731
    _, held = generated(pipe, edits, rule, prompt, guidance=guidance)
    assert min(held.moved) > 1e-3


def test_renormalized_weights_equal_the_definition(pipe):
    edits = [hm.Reweight("red", -2, renormalize=True), hm.Reweight("house", 3)]
    rule = lambda here: weighed(normal(weighed(here.p[0], [(RED, -2)])), [(HOUSE, 3)])  # noqa: E731
    generated(pipe, edits, rule)


BOX = (0, 0, 52, 100)  # half of a cell at 16 cells, a quarter at 8, five eighths at 4
HALF = (0, 0, 64, 128)
SMALL = (60, 20, 66, 30)  # smaller than a cell


@pytest.mark.parametrize(
    ("box", "strength", "tail"),
    [
        (BOX, 1.5, True),
        (BOX, 1.5, False),
        (SMALL, 3.0, True),
        (HALF, -100, False),
        (HALF, 100, False),
    ],
)
def test_a_confined_word_equals_the_definition(pipe, box, strength, tail):
    window = (0.2, 0.6)
    word = hm.Confine("house", box, strength, *window, along=["red"], tail=tail)

    def rule(here):
        bias = confined(here, RED + HOUSE, box, strength, window, SIZE)
        if tail:
            bias = bias + confined(here, TAIL, box, 0.0, window, SIZE)
        return (here.scores[0] + bias).softmax(-1)

    _, held = generated(pipe, [word], rule, steps=STEPS)
    layers = len(held.grids)
    acted = [acts(window, n // layers, STEPS) for n in range(layers * STEPS)]
    assert [moved > 0 for moved in held.moved] == acted


def test_several_confined_and_weighted_words_equal_the_definition(pipe):
    """Biases add up, and act first wherever they stand; where regions meet the tail is seen."""
    boxes = {"house": (0, 0, 70, 128), "red": (40, 8, 128, 128)}
    edits = [
        hm.Reweight("a", 2),
        hm.Confine("house", boxes["house"], strength=2, along=[], end=1.0),
        hm.Confine("red", boxes["red"], strength=1, along=["a"], end=1.0),
        hm.Confine("red", boxes["red"], strength=0.5, along=[], end=1.0, tail=False),
    ]

    def rule(here):
        whole = (0.0, 1.0)
        bias = confined(here, HOUSE, boxes["house"], 2, whole, SIZE)
        bias = bias + confined(here, TAIL, boxes["house"], 0, whole, SIZE)
        bias = bias + confined(here, [*first(pipe), *RED], boxes["red"], 1, whole, SIZE)
        bias = bias + confined(here, TAIL, boxes["red"], 0, whole, SIZE)
        bias = bias + confined(here, RED, boxes["red"], 0.5, whole, SIZE)
        return weighed((here.scores[0] + bias).softmax(-1), [(first(pipe), 2)])

    generated(pipe, edits, rule)


def test_a_users_rule_is_called_once_a_site(pipe):
    """The map is of what acted in the picture, though the rule draws lots and works in place."""
    made = {}

    def chance(p, site):
        assert (site.layer, site.step) not in made
        factors = torch.rand_like(p)
        made[site.layer, site.step] = site.steps, site.grid, factors
        return p.mul_(factors)

    def rule(here):
        steps, grid, factors = made[here.name, here.step]
        assert (steps, grid) == (2, here.grid)
        return weighed(here.p[0] * factors, [(RED, -1)])

    run, held = generated(
        pipe,
        [chance, hm.Reweight("red", -1)],
        rule,
        keep=("layer", "step", "head"),
    )
    assert set(made) == set(held.edited)
    held_maps([run.maps.recording], held)


def test_each_image_of_a_batch_has_its_rules(pipe):
    prompts = ["a (red:3) house", "at the sea", "(at:-1) home"]

    def rule(here):
        return [
            weighed(here.p[0], [(RED, 3)]),
            here.p[1],
            weighed(here.p[2], [(first(pipe)[:1], -1)]),
        ]

    with compare_layers(pipe, 2, rule, images=3):
        generate_batch(pipe, prompts, seeds=[1, 2, 3], steps=2, **reads(pipe))


# --- what an edit takes from its source ---------------------------------------------------------


@pytest.mark.parametrize("window", [(0.2, 0.8), (0.4, 0.4)])
def test_a_replaced_word_equals_the_definition(pipe, window):
    def rule(here, source, own):
        return injected(here, source, own, SWAP, window)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if window == (0.4, 0.4) else "error")
        pair, held = edited(pipe, "a red house", "a blue house", rule, cross_replace=window)
    steps = [step for step in range(STEPS) if acts(window, step, STEPS)]
    assert pair.report.sites == len(held.grids) * len(steps)
    assert pair.report.moved == pytest.approx(np.mean(held.moved), rel=1e-4)


def test_added_words_equal_the_definition(pipe):
    """New tokens keep their own columns, also where padding took the place of them."""
    taken = {0: 0, 1: 1, 5: 2, 6: 3, 7: 4, 8: 5, 9: 6} | {n + 3: n for n in range(7, K - 3)}
    matrix = columns(*(([w], [n]) for n, w in taken.items()))

    def rule(here, source, own):
        return injected(here, source, own, matrix, 0.6, list(taken))

    pair, _ = edited(pipe, "a red house", "a big red house", rule, steps=3, cross_replace=0.6)
    assert pair.report.kind == "refine"


@pytest.mark.parametrize("renormalize", [False, True])
def test_weights_of_source_and_target_equal_the_definition(pipe, renormalize):
    """What is taken is the source's plain attention; each prompt's weights are its own."""
    finish = normal if renormalize else lambda p: p

    def rule(here, source, own):
        p = injected(here, source, own, SWAP, 0.6)
        return weighed(source, [(RED, 3)]), finish(weighed(p, [([2, 3, 4, 5], -2), ([6], 1.5)]))

    arguments = {"cross_replace": 0.6, "renormalize": renormalize}
    texts = "a (red:3) house", "a (blue:-2) (house:1.5)"
    edited(pipe, *texts, rule, steps=3, **arguments)


def test_several_targets_equal_the_definition(pipe):
    """Words of as many tokens are replaced token by token."""
    same = columns(*(([n], [n]) for n in range(K)))

    def both(here):
        source, sea, house = here.p
        return (
            source,
            injected(here, source, sea, same, 0.6),
            weighed(injected(here, source, house, same, 0.6), [(RED, 2)]),
        )

    with compare_layers(pipe, 3, both, lambda step, cells: [0, 1, 2], images=3):
        targets = ["a red at", "a (big:2) house"]
        given = {"seed": 7, "steps": 3, "cross_replace": 0.6, "self_replace": 0, **reads(pipe)}
        hm.edit(pipe, "a red house", targets, **given)


@pytest.mark.parametrize("cells", [64, 63])
def test_replaced_self_attention_equals_the_definition(pipe, cells):
    window = (0.2, 0.6)

    def sharing(step, size):
        return [0, 0 if acts(window, step, STEPS) and size <= cells else 1]

    def draw():
        return edited(
            pipe,
            "a red house",
            "a red at",
            lambda here, source, own: own,
            sharing=sharing,
            cross_replace=0,
            self_replace=window,
            max_self_cells=cells,
        )

    if cells == 63 and hasattr(pipe, "transformer"):  # its one grid has 64
        with pytest.warns(hm.HeedmapWarning, match="self"):
            pair, held = draw()
        assert pair.report.self_sites == held.own == 0
        return
    pair, held = draw()
    assert pair.report.self_sites == held.own > 0
