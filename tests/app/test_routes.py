"""What the app lets in and out: passwords, hosts, paths, sizes."""

import asyncio
import base64
import io
import json
import socket
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cli.calling import files

from app.serving import Served
from heedmap.app.requests import GenerateRequest
from heedmap.errors import ArgumentError
from heedmap.results.runs import Run

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


def test_only_who_knows_the_password_is_let_in(server: Served):
    for path in ("/", "/config", "/gradio_api/queue/data"):
        status, body, headers = server.ask(path, auth="bob:pa:ss")
        assert (status, headers["WWW-Authenticate"].split()[0]) == (401, "Basic"), path
        assert b"heedmap" not in body
    for wrong in ("ann:wrong", ":"):
        assert server.ask("/", auth=wrong)[0] == 401
    assert server.ask("/", auth="x" * 3)[0] == 401
    status, body, _ = server.ask("/")
    assert status == 200 and b"heedmap" in body


def test_no_other_kind_of_connection_passes_by_the_password(server: Served):
    """Whatever serves the app: this is shut here, too."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("it was listened to")

    scope = {"type": "websocket", "path": "/gradio_api/queue/join", "headers": []}
    asyncio.run(server.app.routes(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "name", ["X-Forwarded-Host", "Forwarded", "X-Forwarded-Server", "x-forwarded-proto"]
)
def test_nobody_gives_this_server_another_name(server: Served, name: str):
    for path in ("/", "/config"):
        said = server.ask(path, **{name: "evil.example"})[1]
        assert b"evil.example" not in said


def test_the_page_asks_no_other_host_for_anything(server: Served):
    _, _, headers = server.ask("/")
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    hosts = [word for values in policy.values() for word in values.split() if "." in word]
    assert policy["default-src"] == "'self'" and not hosts and "*" not in str(policy)
    config = json.loads(server.ask("/config")[1])
    assert config["analytics_enabled"] is False
    assert not config.get("is_space") and not config.get("enable_monitoring")
    css = server.ask("/theme.css")[1]
    assert b"@import" not in css and b"//fonts" not in css


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=etc/passwd",
        "/gradio_api/file//etc/passwd",
        "/gradio_api/file={here}/pyproject.toml",
        "/gradio_api/file=../../../../etc/passwd",
        "/file=/etc/passwd",
        "/static/../../../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2f..%2f..%2fetc/passwd",
        "/assets//etc/passwd",
        "/results/../../etc/passwd.zip",
        "/results/%2e%2e.zip",
        "/results/run.json",
        "/results/20261121-000000-00000000000000000000000000000000.zip",
        "/results/{name}/run.json",
        "/{name}/run.json",
        "/svelte/../package.json",
        "/gradio_api/proxy=http://example.com/",
        "/gradio_api/vibe-code",
        "/gradio_api/deep_link",
        "/gradio_api/custom_component/1/client/component/x.js",
        "/monitoring",
        "/docs",
        "/openapi.json",
        "/login",
    ],
)
def test_no_file_of_the_machine_is_read(server: Served, run: Run, path: str):
    name = server.app.worker.store.put(run, server.visitor).name
    here = Path(__file__).parents[2]
    status, body, _ = server.ask(path.format(here=here, name=name))
    assert status in (403, 404), path
    assert b"root:" not in body and b"[project]" not in body and b"settings" not in body


@pytest.mark.parametrize("name", ["a" * 900, "a" * 256, quote("あ" * 190), "b/" * 90 + "a" * 300])
@pytest.mark.parametrize("folder", ["assets", "static"])
def test_a_name_that_no_disk_has_is_no_error_of_ours(server: Served, caplog, folder, name):
    status, body, _ = server.ask(f"/{folder}/{name}")
    assert status == 404 and len(body) < 100
    assert not caplog.records


def test_gradios_own_way_of_uploading_is_shut(server: Served):
    form = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="evil.sh"\r\n\r\nhi\r\n'
        b"--x--\r\n"
    )
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for path in ("/gradio_api/upload", "/gradio_api/component_server", "/gradio_api/vibe-edit"):
        assert server.ask(path, data=form, **kind)[0] == 404


def test_a_result_is_downloaded_as_the_zip_of_its_folder(server: Served, run: Run):
    name = server.app.worker.store.put(run, server.visitor).name
    folder = server.shelf.folder(name)
    status, body, headers = server.ask(f"/results/{name}.zip")
    assert (status, headers["Content-Type"]) == (200, "application/zip")
    assert headers["Content-Disposition"] == f"attachment; filename*=UTF-8''heedmap-{name}.zip"
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        held = {entry: archive.read(entry) for entry in archive.namelist()}
    assert held == {f"heedmap-{name}/{f}": (folder / f).read_bytes() for f in files(folder)}


def test_uploads_have_a_limit_and_names_by_chance(server: Served):
    (uploads,) = (Path(server.app._uploads.name),)
    status, body, _ = server.ask("/uploads", data=b"hello", Filename="../../evil")
    token = json.loads(body)["token"]
    assert status == 200 and (uploads / token).read_bytes() == b"hello"
    status, body, _ = server.ask("/uploads", data=bytes(2**20 + 1))
    assert status == 413 and body == b"That is too large: expected at most 1 MiB."
    for _ in range(12):
        server.ask("/uploads", data=b"more")
    assert len(list(uploads.iterdir())) <= 8


def test_pages_of_other_servers_are_refused(server: Served):
    assert server.ask("/uploads", data=b"x", Origin="http://evil.example")[0] == 403
    assert server.ask("/", Host="evil.example")[0] == 421  # a name that points to this machine
    assert server.ask("/", Host=f"localhost:{server.port}")[0] == 200
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("/uploads", data=b"x", Origin=own)[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_server_before_it_asks_by_a_name_that_the_operator_gave(model, tmp_path: Path, host: str):
    with Served(tmp_path, {}, host=host, names=("App.example",)) as server:
        for name in ("app.example", "APP.example:443", "127.0.0.1", f"localhost:{server.port}"):
            assert server.ask("/", Host=name)[0] == 200, name
        for name in ("evil.example", "app.example.evil.example", "example"):
            assert server.ask("/", Host=name)[0] == 421, name
        front = {"Host": "app.example"}
        assert server.ask("/uploads", b"x", **front, Origin="https://app.example")[0] == 200
        for other in ("https://evil.example", "https://app.example:8443", "http://127.0.0.1"):
            assert server.ask("/uploads", b"x", **front, Origin=other)[0] == 403, other
        worker = server.app.worker
        assert not worker.free  # a visitor may be of another machine: no folder is looked at
        with pytest.raises(ArgumentError, match="the model '/etc' is not offered here"):
            worker.check(GenerateRequest(prompt="a", model="/etc"))


def test_bodies_that_are_no_uploads_are_small(server: Served):
    status, _, _ = server.ask(
        "/gradio_api/queue/join", data=bytes(2**20 + 1), **{"Content-Type": "application/json"}
    )
    assert status == 413


FILE = {"path": "{path}", "meta": {"_type": "gradio.FileData"}, "orig_name": "x"}


@pytest.mark.parametrize("where", ["/gradio_api/queue/join", "/gradio_api/run/predict"])
def test_no_visitor_has_a_file_copied(server: Served, tmp_path: Path, where: str):
    """Gradio takes any object that looks like one of its files for one, in every field."""
    secret = tmp_path / "secret.env"
    secret.write_text("PASSWORD=1")
    file = FILE | {"path": str(secret)}
    config = json.loads(server.ask("/config")[1])
    before = copies(secret.name)
    for one in config["dependencies"]:
        fields = max(2, len(one["inputs"]))
        for data in ([file] * fields, [[file]] * fields, [{"a": file}] * fields):
            for event_data in (None, file, {"token": file}):
                said = {"data": data, "fn_index": one["id"], "session_hash": "thief"}
                body = json.dumps(said | {"event_data": event_data}).encode()
                status, answer, _ = server.ask(where, body, **{"Content-Type": "application/json"})
                assert status == 422 and answer == b"That is nothing that this page asks."
    assert copies(secret.name) == before == []


def copies(name: str) -> list[Path]:
    from gradio.utils import get_upload_folder

    return list(Path(get_upload_folder()).rglob(name))


def spoken(server: Served, *lines: str, body: bytes = b"") -> bytes:
    """The answer to a request as it is written."""
    auth = base64.b64encode(server.auth.encode()).decode()
    head = "\r\n".join([*lines, f"Host: 127.0.0.1:{server.port}", f"Authorization: Basic {auth}"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
        wire.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
        return wire.makefile("rb").read()


@pytest.mark.parametrize("path", ["/uploads", "/gradio_api/queue/join"])
def test_a_length_that_is_told_in_two_ways(server: Served, path: str):
    chunked = "Content-Type: application/json", "Transfer-Encoding: chunked"
    body = b"5\r\nhello\r\n0\r\n\r\n"
    both = spoken(server, f"POST {path} HTTP/1.1", *chunked, "Content-Length: 5", body=body)
    assert both.startswith(b"HTTP/1.1 400 ")
    assert spoken(server, f"POST {path} HTTP/1.1", *chunked, body=body).startswith(b"HTTP/1.1 411 ")


def test_odd_origins_and_bodies_are_no_errors_of_ours(server: Served, caplog, capfd):
    assert server.ask("/", Origin="http://[")[0] == 403
    assert server.ask("/", Origin="http://localhost:3000")[0] == 403
    for body in (b"", b"{", b"[]", b'{"data": ["\\ud800"]}', b"\xff", b"1" * 5000):
        for path in ("queue/join", "run/predict", "cancel", "reset"):
            assert server.ask(f"/gradio_api/{path}", body)[0] == 422
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
        auth = base64.b64encode(server.auth.encode()).decode()
        head = f"POST /uploads HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {auth}\r\n"
        wire.sendall(f"{head}Content-Length: 9\r\n\r\nhalf".encode())
    assert server.ask("/")[0] == 200
    assert "Traceback" not in caplog.text + capfd.readouterr().err


@pytest.mark.parametrize("session", ["", "a", "*", "x" * 9000, "%00"])
def test_who_listens_to_nothing_is_told_so(
    server: Served, session: str, caplog: pytest.LogCaptureFixture
):
    status, said, _ = server.ask(f"/gradio_api/queue/data?session_hash={session}")
    assert (status, said) == (404, b"There is nothing to listen to.")
    assert not caplog.records
