"""Importing without the collector: what it does to the collector, and what it leaves as it was."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from heedmap.models.imports import uncollected


class Node:
    """Something that can hold itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.unfreeze()  # the command line freezes what its process holds
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def passes() -> int:
    return sum(row["collections"] for row in gc.get_stats())


def test_nothing_is_collected_within():
    before = passes()
    kept = []
    with uncollected():
        kept += [[number] for number in range(100_000)]
        assert passes() == before and not gc.isenabled()
    assert gc.isenabled()
    assert len(kept) == 100_000


def test_what_was_made_within_counts_as_looked_through():
    with uncollected():
        kept = [[number] for number in range(100_000)]
        mine = {id(one) for one in kept}
    assert not mine & {id(one) for age in (0, 1) for one in gc.get_objects(age)}
    assert mine <= {id(one) for one in gc.get_objects(2)}
    assert gc.get_freeze_count() == 0


def test_garbage_from_within_is_found_later():
    with uncollected():
        gone = weakref.ref(Node())
        assert gone() is not None
    gc.collect()
    assert gone() is None


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_on_again_after_an_error_and_within_one_another():
    with pytest.raises(ImportError), uncollected(), uncollected():
        import no_such_module  # noqa: F401 # pyright: ignore[reportMissingImports]
    assert gc.isenabled()
    with uncollected():
        with uncollected():
            pass
        assert not gc.isenabled(), "only the outer one turns it on"
    assert gc.isenabled()


def test_what_somebody_froze_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with uncollected():
        pass
    assert gc.get_freeze_count() >= frozen - 100  # some go when their last reference does
    assert gc.isenabled()
