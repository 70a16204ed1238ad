"""The mutation run itself: what it breaks, what it leaves, and that it tells who noticed."""

import ast
import importlib.util
import subprocess
import sys

import pytest

import mutate
from mutation import trials
from mutation.mutants import mutants_of

SOURCE = mutate.ROOT / "src" / "heedmap"

CODE = '''\
"""A module."""
from typing import TypeVar

T = TypeVar("T", bound=int)
LIMIT = 2.0
Name = int | str


def clip(x: int | None, low: int = 0, *, high=1) -> float:
    """At most high (1)."""
    if not x and low < high:
        raise ValueError(f"{x + 1} is none")
    total = 0
    for y in [z for z in range(x) if z > 3]:
        total += y * 2
    assert total >= 0
    total = min(total, high)
    return total[1:] if x is None else sum(total, start=2)
'''
EXPECTED = {
    ("", "2.0", "1.0"), ("", "2.0", "4.0"),
    ("clip", "0", "1"), ("clip", "1", "2"), ("clip", "1", "0"),
    ("clip", "not x and low < high", "not x or low < high"),
    ("clip", "not x and low < high", "not x"), ("clip", "not x and low < high", "low < high"),
    ("clip", "not x", "x"), ("clip", "low < high", "low <= high"),
    ("clip", "raise ValueError(f'{x + 1} is none')", "pass"),
    ("clip", "[z for z in range(x) if z > 3]", "[z for z in range(x)]"),
    ("clip", "z > 3", "z >= 3"), ("clip", "3", "4"), ("clip", "3", "2"),
    ("clip", "total += y * 2", "total = y * 2"), ("clip", "total += y * 2", "total -= y * 2"),
    ("clip", "total += y * 2", "pass"), ("clip", "y * 2", "y / 2"), ("clip", "y * 2", "y"),
    ("clip", "y * 2", "2"), ("clip", "2", "3"), ("clip", "2", "1"),
    ("clip", "total = min(total, high)", "pass"),
    ("clip", "min(total, high)", "max(total, high)"),
    ("clip", "return total[1:] if x is None else sum(total, start=2)", "return None"),
    ("clip", "total[1:]", "total[:]"), ("clip", "x is None", "x is not None"),
    ("clip", "sum(total, start=2)", "sum(total)"),
}  # fmt: skip


def test_what_is_broken(tmp_path):
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    mutants = mutants_of(file, "code.py")
    assert {mutant.key[1:4] for mutant in mutants} == EXPECTED
    assert len({mutant.key for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        broken = mutant.apply(CODE.encode()).decode()
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(CODE))
    heads = {m.before: m.lines for m in mutants if m.before in ("low < high", "2.0", "x is None")}
    assert heads == {"low < high": (11, 11), "2.0": None, "x is None": (18, 18)}


def test_the_draw():
    every = mutate.all_mutants(["mathematics/rules.py", "mathematics/windows.py"])
    drawn = mutate.drawn(every, 20, seed=0)
    assert drawn == mutate.drawn(every[::-1], 20, seed=0) != mutate.drawn(every, 20, seed=1)
    rest = [mutant for mutant in every if mutant.module == "mathematics/rules.py"]
    kept = [mutant for mutant in drawn if mutant.module == "mathematics/rules.py"]
    assert mutate.drawn(rest, len(kept), seed=0) == kept


def test_every_listed_fault_is_one():
    known = {mutant.key for mutant in mutate.all_mutants(mutate.modules())}
    assert sorted(set(mutate.equivalent()) - known) == []
    assert all(why.strip() for why in mutate.equivalent().values())


def test_what_is_left_alone_draws_or_has_no_code():
    left = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    left -= set(mutate.modules())
    for name in left:
        starts = name in ("__init__.py", "__main__.py", "cli/__main__.py")
        assert starts or not mutants_of(SOURCE / name, name), name


def test_every_module_has_tests_of_its_own():
    there = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    assert set(mutate.BESIDES) <= set(mutate.modules()) <= there
    for module in mutate.modules():
        names = mutate.BESIDES.get(module, ())
        found = mutate.own_tests(module)
        assert found and {f"tests/{name}.py" for name in names} <= set(found), module
    assert mutate.families()


CODE_OF_RUNS = """
import pathlib, sys
sys.path[:0] = [{scripts!r}]
import mutate
both = ["text/weights.py", "mathematics/windows.py"]
print("exit code", mutate.main(["--n", "12", "--own", "--modules", *both]))
print("--- the second run")
every = [mutant for mutant in mutate.all_mutants(["text/weights.py"]) if mutant.key in {some!r}]
assert len(every) == 2
mutate.all_mutants = lambda of: every
mutate.LISTED = pathlib.Path({listed!r})
print("exit code", mutate.main(["--modules", "text/weights.py", "--own", "--listed"]))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The lines of two runs, in one process of their own: this one has heedmap loaded, whole."""
    some = (
        ("text/weights.py", "_without", "0", "1", 1),
        ("text/weights.py", "token_weights", "0", "1", 1),
    )
    listed = tmp_path_factory.mktemp("mutate") / "none.toml"
    listed.write_text("", encoding="utf-8")
    scripts = str(mutate.ROOT / "scripts")
    code = CODE_OF_RUNS.format(scripts=scripts, some=some, listed=str(listed))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [said.splitlines() for said in done.stdout.split("--- the second run\n")]


@pytest.mark.slow
def test_a_short_run(runs: list[list[str]]):
    *_, last, code = runs[0]
    assert code == "exit code 0", "\n".join(runs[0])
    assert last.startswith("12 faults of ") and " 0 survived (0.00%)" in last


@pytest.mark.slow
def test_a_fault_that_nobody_sees(runs: list[list[str]]):
    """Where it is not listed the exit code says so, and it is shown; one that is seen is killed."""
    *_, last, code = runs[1]
    assert code == "exit code 1", "\n".join(runs[1])
    assert any(line.startswith("survived: src/heedmap/text/weights.py:") for line in runs[1])
    assert "1 killed" in last and "0 listed" in last and "1 survived (50.00%)" in last


@pytest.mark.parametrize("module", ["explorer/__init__.py", "explorer/bars.py"])
def test_what_is_broken_is_what_is_imported(tmp_path, module: str):
    """A folder's own file, too, which is imported by the folder's name."""
    (tmp_path / "explorer").mkdir()
    (tmp_path / module).write_text("A = 1\n")
    (mutant, *_) = mutants_of(tmp_path / module, module)
    finder = trials._Finder(tmp_path, mutant)
    name = f"heedmap.{module.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")
    spec = finder.find_spec(name)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert vars(made).get("A") != 1
    assert (spec.submodule_search_locations is not None) == (name == "heedmap.explorer")
