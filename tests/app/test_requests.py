"""The app's answers to requests that no browser sends, and to many at once; its end."""

import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from app.serving import serve
from heedmap.errors import ArgumentError, HeedmapWarning

GENERATE = "/gradio_api/call/generate"


@pytest.fixture(scope="module")
def app() -> Any:
    """The package of the app, imported where tests run that need it: Gradio takes seconds."""
    import heedmap.app

    return heedmap.app


def fields(model: str = "heedmap-tiny", seed: int = 1, steps: int = 1) -> list[object]:
    """The fields of the first tab."""
    return [model, "a cat", str(seed), str(steps), "", "", "", "", "", "all", []]


def test_a_foreign_host_is_refused(app_url: str):
    assert httpx.get(app_url, timeout=60).status_code == 200
    assert httpx.get(app_url, headers={"Host": "rebound.example"}).status_code == 400


def test_a_large_upload_is_refused(app: Any, app_url: str):
    files = {"files": ("large.png", bytes(app.MAX_UPLOAD + 1))}
    answer = httpx.post(f"{app_url}/gradio_api/upload", files=files, timeout=60)
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/etc/passwd", "secret.txt", "outputs/app/%2e%2e/secret.txt"])
def test_other_files_are_not_served(app_url: str, app_folder: Path, path: str):
    (app_folder / "secret.txt").write_text("secret")
    assert httpx.get(f"{app_url}/gradio_api/file={path}").status_code == 403


def test_a_path_in_a_message_is_not_read(app_url: str, app_folder: Path):
    secret = app_folder / "secret.png"
    secret.write_bytes(b"secret")
    image = {"path": str(secret), "meta": {"_type": "gradio.FileData"}}
    data = ["heedmap-tiny", image, "a cat", "", "1"]
    call = f"{app_url}/gradio_api/call/locate"
    event = httpx.post(call, json={"data": data}).json()
    answer = httpx.get(f"{call}/{event.get('event_id')}", timeout=60).text
    assert "event: error" in answer and "complete" not in answer
    assert [*app_folder.rglob("secret.png")] == [secret]


@pytest.mark.parametrize("name", ["../../..", "/etc", ""])
def test_a_path_in_place_of_a_results_name_is_refused(app_url: str, name: str):
    client = Client(app_url, verbose=False, httpx_kwargs={"timeout": 60})
    with pytest.raises(AppError):
        client.predict("heedmap-tiny", name, "cat", "1,1", "", "", "", api_name="/explain")


def test_clients_at_once_are_each_served(app_url: str, app_folder: Path):
    def generate(seed: int) -> str:
        call = f"{app_url}{GENERATE}"
        event = httpx.post(call, json={"data": fields(seed=seed)}, timeout=60).json()
        return httpx.get(f"{call}/{event['event_id']}", timeout=60).text

    with ThreadPoolExecutor(3) as pool:
        answers = [*pool.map(generate, range(3))]
    assert all("event: complete" in answer for answer in answers), answers
    results = [app_folder / f"outputs/app/a-cat-{seed}/run.json" for seed in range(3)]
    assert all(path.is_file() for path in results)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_password_protects_sessions_which_end_with_the_app(tmp_path: Path, random_folder: Path):
    """Sessions have no results of each other; temporary ones are deleted, jobs are cancelled."""
    model, temporary, folder = str(random_folder), tmp_path / "temporary", tmp_path / "app"
    temporary.mkdir()
    folder.mkdir()
    flags = ("--model", model, "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1")
    environment = {"HEEDMAP_AUTH": "bob:b\nann:x:y", "TMPDIR": str(temporary)}
    with ExitStack() as stack, serve(folder, *flags, end=signal.SIGHUP, **environment) as url:
        assert httpx.get(f"{url}/config").status_code == 401
        wrong = {"username": "ann", "password": "wrong"}
        assert httpx.post(f"{url}/login", data=wrong).status_code == 400
        ann, other = (
            Client(url, auth=("ann", "x:y"), verbose=False, httpx_kwargs={"timeout": 60})
            for _ in range(2)
        )
        ann.predict(*fields(model, 3), api_name="/generate")
        assert not (folder / "outputs").exists() and [*temporary.rglob("a-cat-3/run.json")]
        with pytest.raises(AppError):
            other.predict(model, "a-cat-3", "cat", "1,1", "", "", "", api_name="/explain")

        login = httpx.Client(base_url=url, timeout=60)
        login.post("/login", data={"username": "bob", "password": "b"})
        event = login.post(GENERATE, json={"data": fields(model, 4, steps=900)}).json()
        follow = login.stream("GET", f"{GENERATE}/{event['event_id']}")
        assert any("Step" in line for line in stack.enter_context(follow).iter_lines())
    assert not [*temporary.glob("heedmap-*")] and not [*tmp_path.rglob("run.json")]


def test_a_folder_with_a_public_host_is_refused(app: Any, tmp_path: Path):
    with pytest.raises(ArgumentError):
        app.launch(out=tmp_path, host="0.0.0.0")


def test_only_models_on_offer_are_loaded(app: Any, tmp_path: Path):
    models = app.Models([str(tmp_path)])
    assert models.load("heedmap-tiny") is models.load("heedmap-tiny")
    with pytest.raises(ArgumentError):
        models.load("org/other")


def test_a_job_that_nobody_follows_ends(app: Any):
    steps: list[int] = []

    def work(job: Any) -> None:
        for step in range(1000):
            steps.append(step)
            job.progress(step, 1000)
            stop.wait(0.05)

    stop, job = Event(), app.jobs.Job(work)
    for _ in job:
        break
    stop.wait(0.5)
    assert 0 < len(steps) < 100


def test_a_job_collects_warnings_and_its_error(app: Any):
    def work(_: Any) -> int:
        warnings.warn("one", HeedmapWarning, stacklevel=1)
        warnings.warn("two", UserWarning, stacklevel=1)
        return 1 // 0

    job = app.jobs.Job(work)
    for _ in job:
        pass
    assert job.warnings == ["one"]
    assert isinstance(job.future.exception(), ZeroDivisionError)
