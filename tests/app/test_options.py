"""What the operator decides: who is let in, and what may be asked for."""

import dataclasses
from typing import Any

import pytest

from heedmap.app.options import Limits, Options, is_loopback
from heedmap.errors import ArgumentError


def test_it_is_bound_to_this_machine_and_knows_which_addresses_are():
    assert Options().host == "127.0.0.1"
    assert all(map(is_loopback, ("127.0.0.1", "::ffff:127.0.0.1", "::1", "127.1.2.3")))
    assert not any(
        map(
            is_loopback,
            ("0.0.0.0", "::", "::ffff:1.2.3.4", "192.168.1.4", "example.com", "localhost", ""),
        )
    )


def test_the_names_to_which_a_server_answers():
    own = ["127.0.0.1", "::1", "localhost"]
    assert Options().hosts == own
    assert Options(host="127.0.0.2").hosts == sorted([*own, "127.0.0.2"])
    assert Options(host="0.0.0.0").hosts is None
    named = Options(host="0.0.0.0", names=("App.example",))
    assert named.hosts == sorted([*own, "0.0.0.0", "app.example"])
    private = {"127.0.0.1": True, "0.0.0.0": False}
    assert {host: Options(host=host).is_private for host in private} == private
    assert not any(Options(host=host, names=("a",)).is_private for host in private)
    # Whatever it is called, what counts is the address that it turns out to be.
    called = Options(host="Desk", bound="127.0.1.1")
    assert called.is_private and called.hosts == sorted([*own, "127.0.1.1", "desk"])
    for odd in (Options(host="localhost", bound="10.0.0.1"), Options(host="desk", bound="::")):
        assert not odd.is_private and odd.hosts is None


def test_limits_let_in_what_they_name_and_nothing_beyond():
    limits = Limits(size=64, steps=3, upload=10)
    assert limits.unpacked > limits.upload
    limits.check_size((64, 64))
    limits.check_steps(3)
    for size in ((65, 8), (8, 65)):
        with pytest.raises(ArgumentError, match="than this server draws: expected at most 64 on"):
            limits.check_size(size)
    with pytest.raises(
        ArgumentError, match="steps is 4, more than this server draws: expected 1 to 3"
    ):
        limits.check_steps(4)


def test_what_a_server_lets_in_where_nothing_is_said():
    """64 MiB, 500 results and 16 jobs; 1024 pixels, and the 100 steps that a page is weighed by."""
    limits = Limits()
    assert (limits.upload, limits.results, limits.waiting) == (67_108_864, 500, 16)
    limits.check_size((1024, 1024))
    limits.check_steps(100)
    for check, most in ((limits.check_steps, 101), (limits.check_size, (1025, 8))):
        with pytest.raises(ArgumentError):
            check(most)


def test_a_server_is_not_changed_while_it_runs():
    for kind in (Options(), Limits()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind.size = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("options", "all_see_all"),
    [
        ({}, True),
        ({"users": {"ann": "x"}}, False),
        ({"host": "0.0.0.0"}, False),
        ({"names": ("app.example",)}, False),
        ({"users": {"ann": "x"}, "gallery": "all"}, True),
        ({"host": "0.0.0.0", "gallery": "all"}, True),
        ({"gallery": "own"}, False),
    ],
)
def test_who_sees_a_result(options: dict[str, Any], all_see_all: bool):
    assert Options(**options).is_shared is all_see_all


def test_a_grid_has_a_bound():
    Limits(cells=4).check_cells(4)
    with pytest.raises(ArgumentError, match=r"a grid of 5 edits is more .* expected at most 4"):
        Limits(cells=4).check_cells(5)
