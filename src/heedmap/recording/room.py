"""Whether what a call will keep fits into what may be kept."""

from collections.abc import Collection, Sequence

from heedmap.errors import ArgumentError, quoted, size_text, warn
from heedmap.options import AXES, Axis
from heedmap.recording.calls import Call, Wanted

WARN = 256 * 2**20
"""Bytes from which on a trace says beforehand how much it will keep."""


def check_heads(heads: Collection[int], keep: Collection[Axis]) -> None:
    """Raise an ArgumentError if layers with different numbers of heads are to be averaged.

    Args:
        heads: the numbers of heads of the layers.
        keep: the axes to keep, among them "head" and not "layer".
    """
    if len(set(heads)) > 1:
        raise ArgumentError(
            "the layers have different numbers of heads: heads cannot be kept while layers are "
            f"averaged; take keep={quoted([one for one in AXES if one in {'layer', *keep}])}"
        )


def check_limit(calls: Sequence[Call], wanted: Wanted) -> None:
    """Raise if the last of these calls would keep more than may be kept in all; warn if it is much.

    Raises:
        ArgumentError: if it would.
    """
    kept, size = sum(call.size for call in calls), calls[-1].size
    if kept > wanted.limit:
        need, limit = size_text(kept), size_text(wanted.limit)
        raise ArgumentError(
            f"keep={quoted(sorted(wanted.keep))} would take {need}, and the limit is {limit}: keep "
            "fewer axes, or pass a higher limit"
        )
    if size > WARN:
        warn(
            f"keep={quoted(sorted(wanted.keep))} will take {size_text(size)} of memory: keep "
            "fewer axes if that is too much"
        )
