"""Whether tests see a mutant: processes that have the libraries loaded, and heedmap anew.

Importing torch and diffusers takes seconds, a test of a small tensor next to nothing. So this
process imports every library that the tests need, but nothing of heedmap, and forks for each
mutant: the child imports a copy of heedmap, with the mutated file through an import hook, and runs
the tests that execute the mutated lines. Which these are, and how long they take, is measured in a
run without a mutant; tests that measure time are left out.
"""

import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation.mutants import Mutant

MEMORY = 16 * 2**30  # of a child's address space: a fault may ask for all there is
_CLOCKS = {"process_time", "perf_counter", "monotonic", "thread_time"}
OPTIONS = (
    *("-q", "-x", "-m", "not slow", "--tb=short", "--assert=plain", "--hypothesis-seed=0"),
    *("-p", "no:cacheprovider", "-p", "no:faulthandler"),
)


@dataclass
class Clean:
    """What tests do without a mutant.

    Attributes:
        seconds: by test.
        lines: by file of heedmap, by line, the tests that execute it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def of(self, mutant: Mutant, files: Sequence[str]) -> list[str]:
        """The tests of some files that can see a mutant, those of the first file first."""
        hit = set(self.seconds)
        if mutant.lines is not None:
            first, last = mutant.lines
            by_line = self.lines.get(mutant.module, {})
            hit = set().union(*(by_line.get(line, ()) for line in range(first, last + 1)))
        order = {file: number for number, file in enumerate(files)}
        tests = [test for test in hit if _file(test) in order]
        return sorted(tests, key=lambda test: (order[_file(test)], self.seconds[test], test))


class House:
    """A copy of the checkout in a temporary folder, which nothing but trials touches."""

    PARTS = ("src", "tests", "scripts", "pyproject.toml", "README.md", "constraints.txt")

    def __init__(self, root: Path) -> None:
        if "heedmap" in sys.modules:
            raise RuntimeError("heedmap is loaded: start the trials from a process of their own")
        self._folder = tempfile.TemporaryDirectory(prefix="heedmap-mutants-")
        self.root = Path(self._folder.name) / "house"
        self.root.mkdir()
        for part in self.PARTS:
            ignored = shutil.ignore_patterns("__pycache__")
            if (root / part).is_dir():
                shutil.copytree(root / part, self.root / part, ignore=ignored)
            elif (root / part).exists():
                shutil.copy(root / part, self.root / part)
        self.source = self.root / "src" / "heedmap"
        self._children = 0

    def __enter__(self) -> "House":
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def clean(self, files: Sequence[str]) -> Clean:
        """Run all quick tests of these files, and load here what libraries they loaded.

        Raises:
            RuntimeError: if one fails.
        """
        told = self.root.parent / f"clean-{self._children}.json"
        child = self.start(None, files, lambda: _Watch(self.source, told))
        code = child.wait()
        if code:
            raise RuntimeError(f"the tests fail without a mutant:\n{child.said()}")
        found = json.loads(told.read_text(encoding="utf-8"))
        with warnings.catch_warnings(action="ignore"):
            for name in found["libraries"]:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        gc.freeze()  # what is here lasts: children need not look through it
        lines = {
            file: {int(line): set(tests) for line, tests in by_line.items()}
            for file, by_line in found["lines"].items()
        }
        return Clean(found["seconds"], lines)

    def try_out(self, mutant: Mutant, tests: Sequence[str], clean: Clean) -> "Child":
        """Start these tests with a mutant; each has ten times as long as without.

        Raises:
            SyntaxError: if the mutant is not Python: nothing needs to kill it.
        """
        path = self.source / mutant.module
        compile(mutant.apply(path.read_bytes()), str(path), "exec")
        limits = {test: max(5.0, 10 * clean.seconds[test]) for test in tests}
        files = list(dict.fromkeys(map(_file, tests)))
        return self.start(mutant, files, lambda: _Chosen(limits), 60 + 2 * sum(limits.values()))

    def start(
        self,
        mutant: Mutant | None,
        files: Sequence[str],
        plugin: Callable[[], Any],
        limit: float = 3600,
    ) -> "Child":
        """Fork a process that runs tests; it leaves with pytest's exit code."""
        self._children += 1
        folder = self.root.parent / str(self._children)
        folder.mkdir()
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return Child(pid, time.monotonic() + limit, folder)
        code = 70  # not one of pytest's
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            with (folder / "said").open("w") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
            os.chdir(self.root)
            code = self._run(mutant, [*files, f"--basetemp={folder / 'temp'}"], plugin)
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            os._exit(code)

    def _run(self, mutant: Mutant | None, arguments: Sequence[str], plugin: Any) -> int:
        sys.path[:0] = [str(self.root / part) for part in ("src", "scripts")]
        sys.dont_write_bytecode = False  # into the copy
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(self.source, mutant))
        import hypothesis
        import pytest

        hypothesis.settings.register_profile(
            "mutation",
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        )
        hypothesis.settings.load_profile("mutation")
        code = int(pytest.main([*OPTIONS, *arguments], plugins=[plugin()]))
        module = sys.modules.get("heedmap")
        if module is not None and not str(module.__file__).startswith(str(self.root)):
            return 71
        sys.stdout.flush()
        return code


@dataclass
class Child:
    """A process at work."""

    pid: int
    until: float
    folder: Path

    def poll(self) -> int | None:
        """Its exit code; None while it runs; -1 if its time is over."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._tidy()
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() < self.until:
            return None
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._tidy()
        return -1

    def wait(self) -> int:
        """Its exit code, when it is done."""
        while (code := self.poll()) is None:
            time.sleep(0.02)
        return code

    def said(self) -> str:
        """What it printed."""
        return (self.folder / "said").read_text(encoding="utf-8", errors="replace")

    def _tidy(self) -> None:
        shutil.rmtree(self.folder / "temp", ignore_errors=True)


class _Finder:
    """Finds the one module that is mutated."""

    def __init__(self, source: Path, mutant: Mutant) -> None:
        path = source / mutant.module
        whole = ".".join(("heedmap", *Path(mutant.module).with_suffix("").parts))
        self.name = whole.removesuffix(".__init__")  # a folder is imported by its own name
        self.loader = _Loader(self.name, str(path))
        self.loader.source = mutant.apply(path.read_bytes())

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != self.name:
            return None
        return importlib.util.spec_from_loader(name, self.loader, origin=self.loader.path)


class _Loader(importlib.machinery.SourceFileLoader):
    source = b""

    def get_code(self, fullname: str) -> Any:
        return compile(self.source, self.path, "exec")


class _Chosen:
    """Runs only the chosen ones of the tests, in their order, each with so many seconds."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.order = {test: number for number, test in enumerate(limits)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order),
            key=lambda item: self.order[item.nodeid],
        )

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        # Of this process's own time, at whose end the signal ends it.
        signal.setitimer(signal.ITIMER_PROF, self.limits[nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            os._exit(1)  # killed: there is nothing else to find out


class _Watch:
    """Notes how long each test takes, and which lines of heedmap it executes."""

    def __init__(self, source: Path, told: Path) -> None:
        import coverage

        self.source, self.told = source, told
        self.seconds: dict[str, float] = {}
        self.coverage = coverage.Coverage(data_file=None, source=[str(source)], config_file=False)
        self.coverage.start()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if not _asks_the_clock(item.function.__code__)]

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.since = time.perf_counter()
        # A fixture may serve a whole file, so what one test of it sets up all of them have seen.
        self.coverage.switch_context(_file(nodeid))

    def pytest_runtest_call(self, item: Any) -> None:
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        self.seconds[nodeid] = time.perf_counter() - self.since
        self.coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {
            Path(file).relative_to(self.source).as_posix(): {
                line: self._tests(contexts)
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        house = str(self.source.parents[1])
        libraries = [
            name
            for name, module in list(sys.modules.items())
            if not (getattr(module, "__file__", None) or house).startswith(house)
        ]
        found = {"seconds": self.seconds, "lines": lines, "libraries": libraries}
        self.told.write_text(json.dumps(found), encoding="utf-8")

    def _tests(self, contexts: Iterable[str]) -> list[str]:
        """The tests, or all tests of the files, that these contexts name."""
        wanted = set(contexts)
        return [test for test in self.seconds if {test, _file(test)} & wanted]


def _asks_the_clock(code: types.CodeType) -> bool:
    """Whether a test, or a function in it, measures time: under other load it fails by chance."""
    within = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return bool(_CLOCKS & set(code.co_names)) or any(map(_asks_the_clock, within))


def _file(test: str) -> str:
    return test.partition("::")[0]


def results(
    house: House, clean: Clean, trials: Iterable[tuple[Mutant, list[str]]], processes: int
) -> Iterator[tuple[Mutant, str, float]]:
    """Try mutants, so many at once: each with "killed", "time" or "survived", and its seconds."""
    waiting = iter(trials)
    running: list[tuple[Mutant, Child, float]] = []
    while True:
        while len(running) < processes and (following := next(waiting, None)) is not None:
            mutant, tests = following
            if not tests:
                yield mutant, "survived", 0.0
                continue
            running.append((mutant, house.try_out(mutant, tests, clean), time.monotonic()))
        if not running:
            return
        for trial in list(running):
            mutant, child, since = trial
            code = child.poll()
            if code is None:
                continue
            running.remove(trial)
            if code in (5, 70, 71):  # no test was found, or the trial itself failed
                raise RuntimeError(f"a trial of {mutant} went wrong ({code}):\n{child.said()}")
            verdict = {0: "survived", -1: "time", -signal.SIGPROF: "time"}.get(code, "killed")
            yield mutant, verdict, time.monotonic() - since
        time.sleep(0.01)
