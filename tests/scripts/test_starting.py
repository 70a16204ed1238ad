"""What a user waits for: the books of a process balance, and the parts that are named are there."""

import functools
import importlib
import json
import sys

import pytest

import benchmark
from benchmarking import starting, watch


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows what the list says."""
    now = [0.0]
    monkeypatch.setattr(watch.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(watch.time, "process_time", lambda: now[0] / 2)
    return now


def test_each_moment_is_credited_to_what_is_at_work(ticking: list[float]):
    clock = watch.Clock()

    def wait(seconds: float) -> None:
        ticking[0] += seconds

    inner = clock.timed(lambda name: name, lambda name: wait(3))

    def both(name: str) -> None:
        wait(1)
        inner("inner")
        wait(2)
        with pytest.raises(TypeError):
            clock.timed(lambda: "broken", lambda: wait(5) or len(4))()  # type: ignore
        inner("outer")

    wait(10)
    clock.timed(lambda name: name, both)("outer")
    wait(20)
    clock.turn()
    walls = {watch.REST: 30, "outer": 6, "inner": 3, "broken": 5}
    assert clock.spent == {name: [wall, wall / 2] for name, wall in walls.items()}


def test_modules_are_told_by_their_package():
    assert watch.importing("torch.nn.functional") == "importing torch"
    assert watch.importing("json.decoder") == "importing of Python itself"


@pytest.mark.parametrize("name", sorted(watch.PARTS))
def test_the_parts_that_are_timed_are_there(name: str):
    module = importlib.import_module(name)
    for path in watch.PARTS[name]:
        assert callable(functools.reduce(getattr, path.split("."), module))


def test_medians_with_their_spread_and_small_parts_together():
    starts = [
        starting.Start(wall, 2 * wall, {"large": (wall - 0.02, 1), **small})
        for wall, small in (
            (3.0, {"a": (0.01, 0.5), "b": (0.01, 0)}),
            (9.0, {"a": (0.02, 0.5)}),
            (4.0, {"b": (0.02, 0.25)}),
        )
    ]
    found = starting.summed_up(starts)
    assert (found["wall_s"], found["cpu_s"]) == ([3, 4, 9], [6, 8, 18])
    assert found["parts"] == {
        "large": {"wall_s": [2.98, 3.98, 8.98], "cpu_s": [1, 1, 1]},
        "all else": {"wall_s": [0.02, 0.02, 0.02], "cpu_s": [0.25, 0.5, 0.5]},
    }


def test_help_is_measured_in_fresh_processes(capsys: pytest.CaptureFixture[str]):
    options = benchmark.parse(["start", "--verb", "help", "--rounds", "1", "--json"])
    options.function(options)
    figures = json.loads(capsys.readouterr().out)
    assert (figures["verb"], figures["bar"]) == ("help", 0.15)
    ((name, found),) = figures["places"].items()
    assert name == sys.executable
    assert {"importing typer", "importing heedmap", starting.ENDS} <= set(found["parts"])
    parts = sum(part["wall_s"][1] for part in found["parts"].values())
    assert parts == pytest.approx(found["wall_s"][1], abs=0.01)  # all of it, and nothing twice
    starting.report(figures)
    said = capsys.readouterr().out
    assert "help, 1 fresh processes" in said and "bar: 0.15 s" in said and "in all" in said


def test_each_python_with_each_tree(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple] = []

    def once(place: starting.Place, verb: str, folder) -> starting.Start:
        asked.append((place, verb, folder.name))
        return starting.Start(1, 1, {"drawing": (1, 1)})

    monkeypatch.setattr(starting, "once", once)
    words = ["start", "--verb", "inspect", "--rounds", "2", "--python", "p", "q", "--tree", "a"]
    figures = starting.start(benchmark.parse(words))
    one, other = starting.Place("p", "a"), starting.Place("q", "a")
    first = [(one, "generate", "0"), (one, "inspect", "0"), (other, "generate", "1")]
    rest = [(other, "inspect", "1")] + 2 * [(one, "inspect", "0"), (other, "inspect", "1")]
    assert asked == first + rest
    assert list(figures["places"]) == ["p, a", "q, a"]


def test_a_process_that_fails_says_why(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "heedmap.py").write_text("raise SystemExit('no such luck')")
    place = starting.Place(sys.executable, str(tmp_path))
    with pytest.raises(RuntimeError, match=r"ended with 1: .*no such luck"):
        starting.once(place, "help", tmp_path)
