"""The mutation run itself: what it breaks, what it leaves, and that it tells who noticed."""

import ast
import subprocess
import sys

import pytest

import mutate
from mutation.mutants import mutants_of

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
    every = mutate.all_mutants(["edits.py", "windows.py"])
    drawn = mutate.drawn(every, 20, seed=0)
    assert drawn == mutate.drawn(every[::-1], 20, seed=0) != mutate.drawn(every, 20, seed=1)
    rest = [mutant for mutant in every if mutant.module == "edits.py"]
    kept = [mutant for mutant in drawn if mutant.module == "edits.py"]
    assert mutate.drawn(rest, len(kept), seed=0) == kept


def test_every_listed_fault_is_one():
    known = {mutant.key for mutant in mutate.all_mutants()}
    assert sorted(set(mutate.equivalent()) - known) == []
    assert all(why.strip() for why in mutate.equivalent().values())


def test_every_module_has_tests_of_its_own():
    for module, names in mutate.HOUSE.items():
        assert (mutate.ROOT / "src" / "heedmap" / module).exists(), module
        assert len(mutate.own_tests(module)) == len(names), module
    assert mutate.families()


def run(code: str) -> subprocess.CompletedProcess:
    """A run of its own: this process has heedmap loaded, whole."""
    scripts = str(mutate.ROOT / "scripts")
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{scripts!r}]; import mutate\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_short_run():
    code = "sys.exit(mutate.main(['--n', '12', '--own', '--modules', 'weights.py', 'windows.py']))"
    done = run(code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("12 faults of ")
    assert " 0 survived (0.00%)" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_fault_that_nobody_sees(tmp_path):
    """Where it is not listed the exit code says so, and it is shown; one that is seen is killed."""
    some = ("weights.py", "_without", "0", "1", 1), ("weights.py", "token_weights", "0", "1", 1)
    code = f"""
every = [mutant for mutant in mutate.all_mutants(["weights.py"]) if mutant.key in {some!r}]
assert len(every) == 2
mutate.all_mutants = lambda modules: every
LISTED
sys.exit(mutate.main(["--modules", "weights.py", "--own", "--listed"]))
"""
    listed = tmp_path / "none.toml"
    listed.write_text("", encoding="utf-8")
    named = f"import pathlib; mutate.LISTED = pathlib.Path({str(listed)!r})"
    done = run(code.replace("LISTED", named))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "survived: src/heedmap/weights.py:" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert "1 killed" in last and "0 listed" in last and "1 survived (50.00%)" in last
