"""How far attention and cause agree, in words."""

import pytest

from heedmap.io.schemas import Agreement, Trust, WayTold


def test_both_ways_by_name():
    one = WayTold(most=0.5, mean=0.1, heat=Agreement(0.5, None), refined=None, mask=Agreement(0, 1))
    other = WayTold(most=1, mean=0.1, heat=Agreement(-1, 0), refined=None, mask=Agreement(0, 1))
    trust = Trust(columns=one, unread=other, between=None)
    assert trust.ways() == {"columns": one, "unread": other}
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
