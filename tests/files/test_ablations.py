"""What `ablate.json` may hold, and what is shown of trust."""

import json

import pytest
from making import MARKS

from heedmap.errors import RunError
from heedmap.files import schemas
from heedmap.files.ablations import AblationFile, Agreement, Trust, WayTold

LEAST = MARKS["ablate.json"]


def read(**held: object) -> AblationFile:
    return schemas.read(json.dumps({**LEAST, **held}).encode(), AblationFile, "x", version=1)


def test_what_it_holds():
    assert (read().word, read().tokens, read().trust) == ("house", (2,), {})
    assert read(trust=[{"whatever": None}]).trust == [{"whatever": None}]  # it is not read


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        ({"format": 2}, "x has format 2"),
        ({"word": 7}, "expected text, got a whole number at word"),
        ({"word": "a" * 100_001}, "of length at most 100000"),
        ({"tokens": []}, "of length at least 1"),
        ({"tokens": [1] * 2049}, "of length at most 2048"),
        ({"tokens": [-1]}, "of at least 0 at tokens"),
        ({"files": "all"}, "expected a list, got text at files"),
    ],
)
def test_what_it_may_not_hold(held, sentence):
    with pytest.raises(RunError, match=sentence):
        read(**held)
    missing = {name: value for name, value in LEAST.items() if name != "word"}
    with pytest.raises(RunError, match="expected the field word"):
        schemas.read(json.dumps(missing).encode(), AblationFile, "x", version=1)


def test_both_ways_by_name():
    one = WayTold(most=0.5, mean=0.1, heat=Agreement(0.5, None), refined=None, mask=Agreement(0, 1))
    other = WayTold(most=1, mean=0.1, heat=Agreement(-1, 0), refined=None, mask=Agreement(0, 1))
    trust = Trust(columns=one, unread=other, between=None)
    assert trust.ways() == {"columns": one, "unread": other}
    for held, begins in ((trust, "Trust(columns="), (one, "WayTold(most=0.5"), (read(), "Ablat")):
        assert repr(held).startswith(begins)
    assert repr(Agreement(0.5, None)) == "Agreement(rank=0.5, auc=None)"


@pytest.mark.parametrize(
    ("most", "rank", "auc", "said"),
    [
        (0, None, None, "nothing"),
        (0.2, None, None, "the same everywhere"),
        (0.2, None, 0.5, "up to 20% of full range; the heat is the same everywhere"),
        (0.2, -0.5, 0.25, "up to 20% of full range; heat and change agree: rank −0.50, AUC 0.25"),
        (0.2, -0.004, 0.5, "up to 20% of full range; heat and change agree: rank 0.00, AUC 0.50"),
    ],
)
def test_a_way_in_words(most, rank, auc, said):
    heat = Agreement(rank, auc)
    assert str(WayTold(most=most, mean=0, heat=heat, refined=None, mask=heat)) == said
