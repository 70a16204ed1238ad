"""The app as a whole: where it is bound, and under which address it is found."""

import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from heedmap.app import application
from heedmap.app.application import address, bind
from heedmap.app.options import Options
from heedmap.errors import ArgumentError


def test_the_address_is_one_that_a_browser_can_ask():
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert address("::", 80) == address("::1", 80) == "http://[::1]:80"
    assert address("app.example", 8) == "http://app.example:8"


def test_any_port_that_is_free():
    with bind("127.0.0.1", 0) as one, bind("127.0.0.1", 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1] > 0
        with pytest.raises(ArgumentError, match=r"cannot be used .* choose another with --port"):
            bind("127.0.0.1", one.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "part"),
    [
        ("", "the host ''"),
        ("a" * 64, "the host 'aaa"),  # a part of a name has 63 letters
        ("a." * 900, "the host 'a.a.a"),
        ("no\x1b[31m", r"the host 'no\x1b[31m' is not known"),
        ("a\0b", r"the host 'a\x00b' is not known"),
        ("\udcff", "the host '\\udcff' is not known"),
    ],
)
def test_a_host_that_no_name_can_be(host: str, part: str):
    with pytest.raises(ArgumentError, match="is not known: expected an address") as error:
        bind(host, 0)
    assert part in str(error.value) and len(str(error.value)) < 120


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_at_an_interrupt(busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the server has not ended when nobody waits for it any longer: it is not torn."""
    pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")
    from heedmap.app.connections import Server

    left = threading.Event()
    if busy:
        monkeypatch.setattr(application, "_PATIENCE", 0.1)
        shutdown = Server.shutdown

        async def late(self: Server, sockets: Any = None) -> None:
            assert left.wait(60)
            await shutdown(self, sockets)

        monkeypatch.setattr(Server, "shutdown", late)
    threads: list[threading.Thread] = []

    def ready(url: str, private: bool) -> None:
        assert private and urllib.request.urlopen(url, timeout=60).status == 200
        threads.extend(one for one in threading.enumerate() if one.name == "heedmap-server")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        application.serve(Options(out=tmp_path, port=0), ready=ready)
    (thread,) = threads
    assert thread.is_alive() == busy
    left.set()
    thread.join(60)
    assert not thread.is_alive()  # what it raises pytest would tell
