"""The cost of recording for the host: kernels that are launched, and waits for the device.

Both are exact numbers on any machine. A wait is a copy of a number to the host, which stops a GPU.
"""

from collections import Counter
from unittest.mock import patch

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import heedmap as hm
from families.checking import paint
from families.models import TABLE

WAITS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero")
VIEWS = (
    "view", "_unsafe_view", "transpose", "permute", "expand", "select", "slice", "unsqueeze",
    "alias", "detach", "t", "as_strided", "split", "squeeze", "unflatten", "unbind", "chunk",
    "lift_fresh", "_fused_sdp_choice",
)  # fmt: skip


class Operations(TorchDispatchMode):
    """A count of the operations that run inside, by their names."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))

    def total(self, waits):
        skipped = VIEWS if not waits else ()
        return sum(
            count
            for name, count in self.counts.items()
            if (name in WAITS) == waits and name not in skipped
        )


def cost_of_a_pass(run):
    """(launches, waits) of a pass after the first: of 6 steps without those of 3, by 3."""
    totals, lists, tolist = [], [], Tensor.tolist

    def counted(tensor):
        lists.append(tensor)
        return tolist(tensor)

    for steps in (3, 6):
        lists.clear()
        with Operations() as operations, patch.object(Tensor, "tolist", counted):
            run(steps)
        totals.append([operations.total(False), operations.total(True) + len(lists)])
    return [(more - less) / 3 for less, more in zip(*totals, strict=True)]


OPTIONS = [
    {},
    {"tokens": "all"},
    {"keep": "all"},
    {"branches": {"conditional", "negative"}},
    {"concepts": ["at"]},
]


@pytest.mark.parametrize(
    ("family", "launches"),
    [("sd1", 40), ("sd3", 15), ("flux", 20), ("zimage", 30), ("lumina2", 20), ("krea", 30)],
)
def test_a_recorded_pass_waits_for_nothing_and_launches_little(load, family, launches):
    pipe, arguments = load(family), TABLE[family].arguments()

    def bare(steps):
        paint(pipe, "a red house", steps=steps, output_type="latent", **arguments)

    plain = cost_of_a_pass(bare)
    for options in OPTIONS:

        def traced(steps, options=options):
            with hm.trace(pipe, **options) as trace:
                bare(steps)
            assert trace.maps

        recorded = cost_of_a_pass(traced)
        assert recorded[1] == plain[1], options
        if "concepts" not in options:  # each has a run of its own
            branches = len(options.get("branches", {"conditional"}))
            assert recorded[0] - plain[0] <= branches * launches, options
