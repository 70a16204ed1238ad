"""Saving processes, killed at random moments: what is left, and what the next save makes of it.

Of each kill: what stands under the name is the older result or the new one, whole, or nothing; and
after the next save in that place nothing else is left, and an older result is back.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from attacking import seeds
from attacking.crowd import Tally
from attacking.findings import Finding, Trouble, Wrong, trouble
from attacking.folders import alike
from heedmap.errors import HeedmapError
from heedmap.results import folders
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

_ROUNDS = ("first", "again")  # where nothing is yet, and over an older result
_AFTER = 1.15  # of the time that a save takes: up to which it may be killed


def attack(root: Path, scratch: Path, n: int, seed: int) -> Tally:
    """Kill so many.

    Args:
        root: the seeds (`seeds.make`).
        scratch: an empty folder.
        n: kills.
        seed: of the moments.
    """
    tally = Tally("kills")
    tally.told = dict.fromkeys(("as it was", "written", "absent"), 0)
    began = time.monotonic()
    results = {name: folders.load_result(root / name) for name in seeds.DRAWN}
    takes = {name: _seconds(result, scratch / name) for name, result in results.items()}
    chance = random.Random(seed)
    for number in range(n):
        name, when = seeds.DRAWN[number // 4 % 4], _ROUNDS[number // 2 % 2]
        # At any moment, and every other time where folders take their places, at about the end.
        share = chance.uniform(0, _AFTER) if number % 2 else chance.gauss(1, 0.08)
        after = max(0.0, share * takes[name])
        case = {"number": number, "result": name, "save": when, "after": round(after, 4)}
        place = scratch / str(number)
        place.mkdir()
        for wrong in _one(results[name], results["run"], place, when == "again", after, tally):
            tally.add(Finding("kills", wrong, case))
        shutil.rmtree(place)
        tally.cases += 1
    tally.seconds = time.monotonic() - began
    return tally


def _seconds(result: Any, folder: Path) -> float:
    result.save(folder)  # what is loaded once is loaded here
    began = time.monotonic()
    result.save(folder, force=True)
    took = time.monotonic() - began
    shutil.rmtree(folder)
    return took


def _one(
    result: Any, small: Any, place: Path, again: bool, after: float, tally: Tally
) -> Iterator[Trouble]:
    """One kill; the older result is the new one with another word in its settings."""
    target, older = place / "x", _marked(result)
    if again:
        older.save(target)
    killed(lambda: result.save(target, force=again), after)
    there = target.exists()

    def look() -> None:
        if not there:
            tally.told["absent" if again else "as it was"] += 1
            return
        now = folders.load_result(target)
        for name, whole in (("as it was", older), ("written", result)):
            if _same(now, whole):
                tally.told[name] += 1
                return
        raise Wrong("half", "half-written: neither the older nor the new one", "after the kill")

    def next_save() -> None:
        small.save(place / "y")
        left = sorted(path.name for path in place.iterdir())
        expected = ["x", "y"] if again or there else ["y"]
        if left != expected:
            names = [name.split(".")[1] if name[0] == "." else name for name in left]
            raise Wrong("left", f"left: {names}, expected {expected}", "after the next save")
        if again and not any(_same(folders.load_result(target), one) for one in (older, result)):
            raise Wrong("half", "half-written: neither the older nor the new one", "put back")

    for doing, act in (("after the kill", look), ("the next save", next_save)):
        wrong = _plain(act, doing)
        if wrong is not None:
            yield wrong


def killed(act: Callable[[], Any], after: float) -> None:
    """Do something in a process of its own, and kill that after some seconds."""
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            act()
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _plain(act: Callable[[], None], doing: str) -> Trouble | None:
    """Trouble, even where heedmap says it in one sentence: what it saved itself must open."""

    def strict() -> None:
        try:
            act()
        except HeedmapError as error:
            raise Wrong("half", f"refused: {error}", doing) from error

    return trouble(strict, doing)


def _marked(result: Any) -> Any:
    """The same result with another model in its settings: a sound one that can be told apart."""
    if isinstance(result, Run):
        settings = structs.replace(result.settings, model="older")
        return Run(
            result.image, result.maps, settings, result.negative_maps, concepts=result.concepts
        )
    if isinstance(result, Pair):
        edited = _marked(result.edited)
        return Pair(_marked(result.source), edited, result.about, result.blend)
    more = {**result.about.more, "model": "older"}
    return Grid(result.cells, structs.replace(result.about, more=more))


def _same(one: Any, other: Any) -> bool:
    try:
        alike(one, other)
    except Wrong:
        return False
    return True
