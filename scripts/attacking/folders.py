"""Fuzzed folders and archives: each is opened by every reader, and what opened is used.

A case that opens gives its maps, its page and the commands on it, always; one in `SAMPLED` of them,
by the case's number, also its sheets, a timeline, its rows, and is saved and read back. A case that
is replayed gets all of it.
"""

import ast
import io
import os
import re
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from attacking import changes, seeds, zips
from attacking.findings import EVIL, Trouble, Wrong, trouble
from attacking.recipes import ODD_PATHS, Case, Deck
from heedmap import explorer
from heedmap.app import archives, options
from heedmap.app.result_store import read_result
from heedmap.explorer import repeating
from heedmap.results import folders
from heedmap.results.ablations import Ablation
from heedmap.results.explanations import Explanation
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

SAMPLED = 16
MEMORY = 2**30
"""Bytes that any one use of a result may take, beyond what the process has before."""
_WORDS = 8  # of a run whose maps are made one by one

Tried = list[Trouble]


class Attack:
    """Tries cases, in a folder of its own.

    Args:
        root: the seeds (`seeds.make`).
        scratch: an empty folder.
        seed: of the draw.
    """

    def __init__(self, root: Path, scratch: Path, seed: int) -> None:
        self._scratch = scratch
        self._seeds = {
            name: {file: (root / name / file).read_bytes() for file in seeds.files(root / name)}
            for name in seeds.NAMES
        }
        self.deck = Deck(root, seed)
        self.told = {"folders": 0, "archives": 0, "opened": 0, "used in full": 0}

    def __call__(self, number: int) -> tuple[Case, Tried]:
        """The case of a number, and what is wrong with it."""
        case = self.deck.case(number)
        return case, self.attempt(case, full=number % SAMPLED == 0)

    def attempt(self, case: Case, *, full: bool = True) -> Tried:
        """What is wrong with a case."""
        found: Tried = []
        try:
            for doing, act in self._acts(case, full):
                with bounded():
                    wrong = trouble(act, doing)
                if wrong is not None:
                    found.append(wrong)
        finally:
            _emptied(self._scratch)
        return found

    def _acts(self, case: Case, full: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
        """What is done with a case: names, and functions that may end in a sentence."""
        if "path" in case:
            path = ODD_PATHS[case["path"]]
            for reader in (folders.load_result, Run.load, Pair.load, Grid.load):
                yield f"opening {case['path']}", lambda reader=reader: reader(path)
            return
        target = self._scratch / "result"
        target.mkdir()
        changes.lay(self._seeds[case["seed"]], target, case["changes"])
        held: list[Any] = []
        if "zip" in case:
            self.told["archives"] += 1
            data, unpacked = zips.pack(target, case["zip"]), self._scratch / "unpacked"
            unpacked.mkdir()
            most = options.Limits().unpacked
            yield "unpacking", lambda: archives.unpack(io.BytesIO(data), unpacked, most=most)
            yield "what was unpacked", lambda: _contained(self._scratch, unpacked)
            yield "reading an upload", lambda: held.append(read_result(unpacked))
        elif alone := {"why": Explanation, "without": Ablation}.get(case["seed"]):
            self.told["folders"] += 1
            yield "opening", lambda: held.append(alone.load(target))
        else:
            self.told["folders"] += 1
            yield "opening", lambda: held.append(folders.load_result(target))
            if full:
                for reader in (Run.load, Pair.load, Grid.load):
                    yield "opening as another kind", lambda reader=reader: reader(target)
        if held:
            self.told["opened"] += 1
            self.told["used in full"] += full
            yield from uses(held[0], self._scratch if full else None)


def uses(result: Any, scratch: Path | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a user does with what was opened; saved only where there is a place for it."""
    if isinstance(result, Explanation):
        yield "page", lambda: _explained(result)
        if scratch is not None:
            yield "saving", lambda: _explained(_kept(result, scratch / "saved"))
        return
    if isinstance(result, Ablation):
        yield "trust", lambda: _trusted(result)
        if scratch is not None:
            yield "sheet", result.sheet
            yield "saving", lambda: alike(result, Ablation.load(result.save(scratch / "saved")))
        return
    for run in _runs(result):
        yield "maps", lambda run=run: _maps(run)
        yield "commands", lambda run=run: _commands(run)
    yield "page", lambda: _page(result)
    if isinstance(result, Grid):
        yield "rows", result.rows
        yield "axes", lambda: result.axes
    if scratch is None:
        return
    yield "sheet", result.sheet
    if isinstance(result, Run):
        words = result.maps.words
        kept = result.maps.recording.keep
        if words and "step" in kept:
            yield "timeline", lambda: result.timeline(words[-1].number).image()
        if words and kept & {"layer", "head"}:
            yield "layers by heads", lambda: result.layers_by_heads(words[0].number).data("svg")
    if isinstance(result, Pair):
        yield "difference", result.difference
    yield "saving", lambda: _saved(result, scratch / "saved")


def _runs(result: Any) -> list[Run]:
    if isinstance(result, Run):
        return [result]
    if isinstance(result, Pair):
        return [result.source, result.edited]
    if isinstance(result, Ablation):
        return [result.run, result.columns, result.unread]
    return [result.cells[0].pair.source, *(cell.pair.edited for cell in result.cells[:4])]


def _maps(run: Run) -> None:
    for maps in filter(None, (run.maps, run.negative_maps, run.concepts)):
        for word in maps.words[:_WORDS]:
            heat = maps.at(word.number)
            if not np.isfinite(heat.values).all():
                raise Wrong("map", "a map is not finite")
            if heat.stability is not None and not -1 <= heat.stability <= 1:
                raise Wrong("map", "a map's stability is no correlation")
        if maps.words:
            maps[maps.words[0].text].mask()
            maps.share(maps.words[-1].text)
        if maps.recording.refined is not None and maps.recording.table.phrases:
            maps.segment()


_QUOTED = re.compile(r"""\$'(?:[^'\\]|\\.)*'|'[^']*'|"'"|"[\w ]*\"""", re.ASCII)
_PLAIN = re.compile(r"[\w@%+=:,./ -]*", re.ASCII)


def _commands(run: Run) -> None:
    """What the page offers to copy runs heedmap and nothing else."""
    ways = repeating.repeat_run(run.settings, negative=run.negative_maps is not None)
    for _, text, *_ in ways:
        if not text.startswith("heedmap "):
            _harmless_python(text)
        elif not _PLAIN.fullmatch(_QUOTED.sub("", text)):
            raise Wrong("command", f"unquoted: {text[:200]!r}")


def _harmless_python(text: str) -> None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise Wrong("command", f"no Python: {error} in {text[:200]!r}") from error
    called = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    if strange := {name for name in called if not name.startswith(("hm.", "heedmap.", "pipe"))}:
        strange -= {"float", "frozenset", "set", "dict", "list", "tuple"}
        if strange:
            raise Wrong("command", f"calls: {sorted(strange)}")


def _page(result: Any) -> None:
    page = result.explorer()
    page.encode()
    if EVIL in page:
        raise Wrong("page", "markup: what a stranger wrote became part of the page")
    explorer.frame(page)


def _explained(found: Explanation) -> None:
    page = found.page()
    page.encode()
    if EVIL in page:
        raise Wrong("page", "markup: what a stranger wrote became part of the page")
    repr(found)
    found.table()
    if abs(found.acted[found.about.head].sum() - 1) > 1e-6 and found.given.edited is None:
        raise Wrong("unequal", "row: it does not sum to 1")


def _trusted(found: Ablation) -> None:
    repr(found)
    for told in found.trust.ways().values():
        values = [value for one in (told.heat, told.mask) for value in (one.rank, one.auc)]
        if not all(value is None or -1 <= value <= 1 for value in [*values, told.most, told.mean]):
            raise Wrong("unequal", "trust: a figure out of its range")


def _kept(found: Explanation, folder: Path) -> Explanation:
    again = Explanation.load(found.save(folder))
    if (again.about, again.given, again.tokens) != (found.about, found.given, found.tokens):
        raise Wrong("unequal", "explanation: not read back as it was saved")
    return again


def _saved(result: Any, folder: Path) -> None:
    result.save(folder)
    alike(result, folders.load_result(folder))


def alike(result: Any, again: Any) -> None:
    """Raise `Wrong` unless two results are equal, to the byte of their pictures and maps."""
    if type(again) is not type(result):
        raise Wrong("unequal", f"kind: saved {type(result)}, read {type(again)}")
    for before, after in zip(_runs(result), _runs(again), strict=True):
        if before.settings != after.settings:
            raise Wrong("unequal", "settings: other than what was saved")
        if before.image.tobytes() != after.image.tobytes():
            raise Wrong("unequal", "picture: other than what was saved")
        pairs = [(before.maps, after.maps), (before.negative_maps, after.negative_maps)]
        pairs.append((before.concepts, after.concepts))
        for one, other in pairs:
            if (one is None) != (other is None):
                raise Wrong("unequal", "maps: there on one side alone")
            if one is not None and other is not None:
                _recordings_alike(one.recording, other.recording)
    if isinstance(result, Ablation):
        if (result.word, result.tokens, result.trust) != (again.word, again.tokens, again.trust):
            raise Wrong("unequal", "ablation: other than what was saved")
    elif not isinstance(result, Run) and result.about != again.about:
        raise Wrong("unequal", "about: other than what was saved")


def _recordings_alike(one: Any, other: Any) -> None:
    for name in ("layers", "keep", "timesteps", "positions", "table", "latent", "size"):
        if getattr(one, name) != getattr(other, name):
            raise Wrong("unequal", f"{name}: other than what was saved")
    if any(a.tobytes() != b.tobytes() for a, b in zip(one.arrays, other.arrays, strict=True)):
        raise Wrong("unequal", "arrays: other than what was saved")


def _contained(scratch: Path, unpacked: Path) -> None:
    """Whatever an archive says, its files are plain, and in their folder."""
    strange = {path.name for path in scratch.iterdir()} - {"result", "unpacked"}
    for path in unpacked.rglob("*"):
        kind = path.lstat().st_mode
        plain = stat.S_ISREG(kind) and not kind & 0o111
        if not (plain or stat.S_ISDIR(kind)):
            strange.add(path.name)
    if strange:
        raise Wrong("unpacked", f"strange: {sorted(strange)}")


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path, onerror=_opened_up)


def _opened_up(function: Callable[..., Any], path: str, _: Any) -> None:
    os.chmod(os.path.dirname(path), 0o700)
    function(path)


@contextmanager
def bounded(most: int = MEMORY) -> Iterator[None]:
    """For a while, let this process take so many bytes more than it has now, and not one more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def smaller(attack: Attack, case: Case, key: str) -> Case:
    """A case with as few changes as bring the same trouble about."""
    for name in ("changes", "zip"):
        number = 0
        while number < len(case.get(name, ())):
            less = {**case, name: [c for n, c in enumerate(case[name]) if n != number]}
            if any(found.key == key for found in attack.attempt(less)):
                case = less
            else:
                number += 1
    if case.get("zip") == []:
        less = {name: value for name, value in case.items() if name != "zip"}
        if any(found.key == key for found in attack.attempt(less)):
            return less
    return case
