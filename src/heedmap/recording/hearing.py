"""What a call takes of layers that have run: the text's attention, and the picture's own."""

from collections.abc import Mapping

from heedmap.backends.family import GridShape
from heedmap.backends.registry import check_places
from heedmap.errors import TraceError
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.rules import Site
from heedmap.recording.calls import Call
from heedmap.recording.refining import Refiner, carriers, carries, middle_grid
from heedmap.recording.steering import Steerer
from heedmap.recording.tallies import averaged, unedited


def hear(call: Call, name: str, scores: Scores, steerer: Steerer | None) -> None:
    """Take in what one cross-attention layer is made of, for all rows of the batch."""
    rows, heads, positions, _ = scores.query.shape
    if rows != call.rows:
        raise TraceError(
            f"{name} computed attention for {rows} rows where the model was given {call.rows}: "
            "heedmap cannot tell which image each row belongs to; switch off the tool that leaves "
            "out a part of the batch"
        )
    moment, device = call.moment, scores.query.device
    site = Site(name, moment.step, moment.steps, call.grids[name])
    where = (heads, call.mean_grid, device)
    check_places(name, positions, site.grid)
    for side in call.sides.values():
        if side.block is None:
            continue
        side.ran[name, moment.step] += 1
        first = side.block * call.images
        other = None if side.beside is None else side.beside(name, scores, first)
        for image in range(call.images):
            of = unedited(scores, first + image) if other is None else other(image)
            conditional = side is call.sides.get("conditional")
            if conditional and steerer is not None:
                of = steerer.probabilities(scores, image, name, of)
            p = side.tally.add(image, site, of, *where, call.passes)
            if side.refiner is not None:
                side.refiner.hear(image, p, site.grid, call.passes)
            if conditional and call.watch is not None and (tokens := call.watched[image]):
                p = averaged(of, tokens, heads, device)
                call.watch.hear(image, p, site.grid, call.passes)


def refine(call: Call, own: Mapping[str, GridShape]) -> Mapping[str, GridShape]:
    """Let a call refine its maps.

    Args:
        call: which has its sides already.
        own: the self-attention layers of the model, with their grids (h, w).

    Returns:
        Those that carry.
    """
    call.carriers = {name: own[name] for name in carriers(own, call.grids)}
    grid = next(iter(call.carriers.values()), None)
    for side in call.sides.values():
        side.refiner = None if grid is None else Refiner(grid)
    if any(call.watched):
        # Where none carries, plain maps of such a grid decide.
        drawn = call.grids.values()
        call.watch = Refiner(grid or middle_grid(drawn) or max(drawn))
    return call.carriers


def carry(call: Call, name: str, scores: Scores) -> None:
    """Carry the maps so far along one self-attention layer, where it is time to."""
    h, w = call.carriers.get(name, (0, 0))
    rows, _, places, _ = scores.query.shape
    if not carries(call.moment.step, call.steps):
        return
    # Tokens may be merged, or another image's keys may stand beside the image's own (StyleAligned).
    # Then nobody can tell which place is which, and the call has no refined maps.
    if not places == h * w == scores.key.shape[2] or scores.mask is not None:
        for side in call.sides.values():
            side.refiner = None
        return
    for side_name, side in call.sides.items():
        watch = call.watch if side_name == "conditional" else None
        for image in range(call.images if side.block is not None else 0):
            row = (side.block or 0) * call.images + image
            for refiner in (side.refiner, watch):
                if refiner is not None and row < rows:
                    refiner.carry(image, scores, row, call.passes)
