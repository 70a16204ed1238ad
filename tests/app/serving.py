"""The app in a process of its own, as its command starts it."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest


@contextmanager
def serve(
    folder: Path, *flags: str, end: int = signal.SIGTERM, **environment: str
) -> Iterator[str]:
    """Serve the app of the embedded model until the block ends, by a signal; give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    direct = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    process = subprocess.Popen(
        [sys.executable, "-m", "heedmap", "app", "--port", str(port), *flags],
        cwd=folder,
        env={**direct, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process)
        yield url
    finally:
        process.send_signal(end)
        code = process.wait(timeout=90)
    assert code == 0, code


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except HTTPError:  # an answer: the app asks for a password
            return
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the app does not answer: {process.poll()}")


@pytest.fixture(scope="session")
def app_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the app of all tests was started in."""
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="session")
def app_url(app_folder: Path) -> Iterator[str]:
    """The address of the app, started once for all tests."""
    with serve(app_folder) as url:
        yield url
