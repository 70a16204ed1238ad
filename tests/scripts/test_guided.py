"""The evaluation of guides: captions, verdicts, a folder that goes on, and the published losses."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from making import table
from scipy.ndimage import gaussian_filter

from evaluation import attending, guided, judge
from world import layouts


def found(noun: str, colour: str, x: float = 0.5, y: float = 0.5) -> judge.Found:
    return judge.Found(noun, colour, np.ones((32, 32), bool), (x, y), 0.1)


def said(case: guided.Case, centres=None) -> judge.Judgement:
    """What the judge says of a picture that shows the caption's things, at some centres."""
    things = case.plan.layout.things
    centres = centres or [(thing.x, thing.y) for thing in things]
    pairs = zip(things, centres, strict=True)
    return judge.Judgement(tuple(found(t.noun, t.colour, *c) for t, c in pairs), "none")


@pytest.mark.parametrize("kind", guided.KINDS)
def test_captions_are_held_out_repeat_and_differ_by_seed(kind):
    first, again, other = ([c.plan for c in islice(guided.cases(kind, s), 4)] for s in (0, 0, 1))
    assert first == again != other
    for case in islice(guided.cases(kind), 4):
        assert layouts.is_held_out(case.plan.layout) or kind == "colours"
        assert case.right(said(case)) or kind == "box"
        assert not case.right(judge.Judgement((), "none"))
        for way in guided.WAYS[kind].values():
            for guide in way(case):
                text = case.plan.caption.text.replace(",", "").split()
                assert all(word.partition("#")[0] in text for word in guide.words)


def test_a_relation_and_a_box_are_judged_by_the_places_of_things():
    case = next(c for c in guided.cases("relation") if c.plan.layout.relation == "left")
    assert case.right(said(case, [(0.2, 0.5), (0.8, 0.5)]))
    assert not case.right(said(case, [(0.8, 0.5), (0.2, 0.5)]))
    left, right = guided.boxes_of(case)
    assert left[:, :64].all() and right[:, 64:].all() and not (left & right).any()
    case = next(c for c in guided.cases("box") if c.half == "top")
    assert case.right(said(case, [(0.5, 0.2)])) and not case.right(said(case, [(0.5, 0.8)]))


def test_a_folder_goes_on_where_it_was(tmp_path, monkeypatch):
    """Each picture is drawn once, also by a second call."""
    drawn = []

    def generate(pipe, texts, seed, **how):
        drawn.extend(texts)
        return [SimpleNamespace(image=guided.Image.new("RGB", (128, 128))) for _ in texts]

    def draw(pipe, case):
        drawn.append(case.plan.caption.text)
        return np.zeros((128, 128, 3), np.uint8), 3

    monkeypatch.setattr(guided.heedmap, "generate", generate)
    monkeypatch.setattr(guided, "WAYS", {"two": {}})
    call = (None, tmp_path, 2, 4, 0, lambda *_: None, ["two"], {"two": {"own": draw}})
    figures = guided.measure(*call)
    assert len(drawn) == 4 + 2 + 2  # plain, own, and from another seed
    assert figures["two"]["plain"] == {"n": 4, "right": 0}
    own = figures["two"]["own"]
    assert (own["n failed"], own["repaired"], own["n passed"], own["broken"]) == (2, 0, 0, None)
    assert own["passes"] == 3
    assert guided.measure(*call) == figures and len(drawn) == 8
    assert "| | own | 0 % of 2 | – of 0 |" in guided.table(figures)


def test_the_published_maps_are_shares_of_a_sharp_softmax():
    """Without the start token, and blurred."""
    tokens = table("a red house", 10)
    values = 0.01 * torch.rand(10, 6, 6, generator=torch.Generator().manual_seed(0))

    class Maps:
        events: dict = {"one": SimpleNamespace(site=SimpleNamespace(grid=(6, 6)))}  # noqa: RUF012

        def select(self, names):
            return self

        def of_tokens(self, positions):
            return values[list(positions)]

    maps = Maps()
    maps.tokens = tokens
    exact = torch.exp(100 * values[1:].double())
    exact = (exact / exact.sum(0))[tokens.find("house")[-1] - 1]
    blurred = gaussian_filter(exact.numpy(), 0.5, mode="mirror", radius=1)
    (result,) = attending.maps_of(maps, ["house"])
    np.testing.assert_allclose(result.numpy(), blurred, atol=1e-5)
    loss = attending.attend_and_excite(SimpleNamespace(nouns=["house"]))
    assert float(loss(maps, 0)) == pytest.approx(1 - np.max(blurred), abs=1e-5)
