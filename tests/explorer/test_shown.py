"""What a page asks of runs and edits is what they have."""

from dataclasses import fields

from heedmap.explorer.shown import PairLike, RunLike
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run


def asked(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isinstance(value, property)}


def test_runs_and_edits_have_what_a_page_asks_for():
    for wanted, kind in ((RunLike, Run), (PairLike, Pair)):
        assert asked(wanted) and asked(wanted) <= {one.name for one in fields(kind)}
