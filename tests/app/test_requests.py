"""The app's answers to requests that no browser sends, and to many at once."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from app.serving import serve
from heedmap.app import MAX_UPLOAD, launch
from heedmap.app.jobs import Job, Models
from heedmap.errors import ArgumentError, HeedmapWarning


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serve(folder) as url:
        yield url


def test_a_foreign_host_is_refused(url: str):
    assert httpx.get(url, timeout=60).status_code == 200
    assert httpx.get(url, headers={"Host": "rebound.example"}).status_code == 400


def test_a_large_upload_is_refused(url: str):
    files = {"files": ("large.png", bytes(MAX_UPLOAD + 1))}
    assert httpx.post(f"{url}/gradio_api/upload", files=files, timeout=60).status_code == 413


@pytest.mark.parametrize("path", ["/etc/passwd", "secret.txt", "outputs/app/%2e%2e/secret.txt"])
def test_other_files_are_not_served(url: str, folder: Path, path: str):
    (folder / "secret.txt").write_text("secret")
    assert httpx.get(f"{url}/gradio_api/file={path}").status_code == 403


def test_a_path_in_a_message_is_not_read(url: str, folder: Path):
    secret = folder / "secret.png"
    secret.write_bytes(b"secret")
    image = {"path": str(secret), "meta": {"_type": "gradio.FileData"}}
    data = ["heedmap-tiny", image, "a cat", "", "1"]
    event = httpx.post(f"{url}/gradio_api/call/locate", json={"data": data}).json()
    answer = httpx.get(f"{url}/gradio_api/call/locate/{event.get('event_id')}", timeout=60).text
    assert "event: error" in answer and "complete" not in answer
    assert [*folder.rglob("secret.png")] == [secret]


@pytest.mark.parametrize("name", ["../../..", "/etc", "..", ""])
def test_a_path_in_place_of_a_results_name_is_refused(url: str, name: str):
    client = Client(url, verbose=False, httpx_kwargs={"timeout": 60})
    with pytest.raises(AppError):
        client.predict("", [name], "", "shared", api_name="/compare")


def test_clients_at_once_are_each_served(url: str, folder: Path):
    def draw(seed: int) -> str:
        call = f"{url}/gradio_api/call/generate"
        asked = httpx.post(call, json={"data": generated("heedmap-tiny", str(seed))}, timeout=60)
        return httpx.get(f"{call}/{asked.json()['event_id']}", timeout=60).text

    with ThreadPoolExecutor(6) as pool:
        answers = [*pool.map(draw, range(6))]
    assert all("event: complete" in answer for answer in answers), answers
    assert len([*(folder / "outputs/app").glob("a-cat-*/run.json")]) == 6


def generated(model: str, seed: str) -> list[object]:
    """The fields of the first tab."""
    return [model, "a cat", seed, "1", "", "", "", [], "all", ""]


def test_flags_and_a_password_reach_the_app(tmp_path: Path, random_folder: Path):
    """A password keeps others out, and sessions have no results of each other."""
    model = str(random_folder)
    flags = ("--model", model, "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1")
    with serve(tmp_path, *flags, HEEDMAP_AUTH="bob:b\nann:x:y") as url:
        assert httpx.get(f"{url}/config").status_code == 401
        wrong = {"username": "ann", "password": "wrong"}
        assert httpx.post(f"{url}/login", data=wrong).status_code == 400
        client = Client(url, auth=("ann", "x:y"), verbose=False, httpx_kwargs={"timeout": 60})
        client.predict(*generated(model, "3"), api_name="/generate")
        assert not (tmp_path / "outputs").exists()
        other = Client(url, auth=("ann", "x:y"), verbose=False, httpx_kwargs={"timeout": 60})
        with pytest.raises(AppError):
            other.predict(["a-cat-3", "a-cat-3"], "", "shared", api_name="/compare")


def test_a_folder_with_a_public_host_is_refused(tmp_path: Path):
    with pytest.raises(ArgumentError):
        launch(out=tmp_path, host="0.0.0.0")


def test_only_models_on_offer_are_loaded(tmp_path: Path):
    models = Models([str(tmp_path)])
    assert models.load("heedmap-tiny") is models.load("heedmap-tiny")
    with pytest.raises(ArgumentError):
        models.load("org/other")


def test_a_job_that_nobody_follows_ends():
    seen: list[int] = []

    def work(job: Job) -> None:
        for step in range(1000):
            seen.append(step)
            job.progress(step, 1000)
            stop.wait(0.05)

    stop, job = Event(), Job(work)
    for _ in job:
        break
    stop.wait(0.5)
    assert 0 < len(seen) < 100


def test_a_job_collects_warnings_and_its_error():
    def work(_: Job) -> int:
        warnings.warn("one", HeedmapWarning, stacklevel=1)
        warnings.warn("two", UserWarning, stacklevel=1)
        return 3

    job = Job(work)
    for _ in job:
        pass
    assert job.future.result() == 3 and job.warnings == ["one"]
    job = Job(lambda _: 1 // 0)
    for _ in job:
        pass
    assert isinstance(job.future.exception(), ZeroDivisionError)
