"""The app without a browser: jobs, previews, archives, the gate, and the bytes that it saves."""

import base64
import html
import io
import json
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_pipeline
from test_cli import bad, call, files, in_a_process

from heedmap import editing, models, studio
from heedmap.app import Limits, Options, address, archives, is_loopback, jobs, limits
from heedmap.app.fragments import of_made, of_page, of_state, of_trouble
from heedmap.app.jobs import Job, Line, State
from heedmap.app.shelf import Shelf, read_result
from heedmap.app.workshop import Editing, Generating, Workshop
from heedmap.cli.serving import parse_users
from heedmap.errors import ArgumentError, HeedmapError, RunError
from heedmap.runs import Run

PROMPT = "a red house"
# Gradio counts its events in a table of pandas, with an option that pandas 3 finds old-fashioned.
pytestmark = pytest.mark.filterwarnings(
    "ignore:'future.no_silent_downcasting' is deprecated:DeprecationWarning"
)


@pytest.fixture(scope="module")
def random_model():
    return random_pipeline()


@pytest.fixture
def model(random_model, monkeypatch: pytest.MonkeyPatch):
    """The random model in place of every model."""
    monkeypatch.setattr(models, "load", lambda *_, **__: random_model)
    return random_model


@pytest.fixture(scope="module")
def run(random_model) -> Run:
    return studio.generate(random_model, PROMPT, seed=3, steps=2)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return tmp_path


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line(most=3)
    yield made
    made.close()


@pytest.fixture
def shop(tmp_path: Path, model) -> Workshop:
    return Workshop(Shelf(tmp_path / "shelf", 10), Limits())


def ended(job: Job) -> State:
    """The last state of a job."""
    *_, last = job.states(pause=0.01)
    return last


def until(holds: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


# --- the preview of heedmap's own calls -------------------------------------------------------


def hostile(seen: list[torch.Tensor]) -> Callable[[torch.Tensor], None]:
    """A preview that keeps what it sees, and then spoils what it was given."""

    def preview(latents: torch.Tensor) -> None:
        seen.append(latents.clone())
        latents.zero_()
        torch.rand(7)

    return preview


def test_a_preview_changes_neither_picture_nor_settings(random_model, tmp_path: Path):
    seen: list[torch.Tensor] = []
    plain = studio.generate(random_model, PROMPT, seed=5, steps=3)
    watched = studio.generate(random_model, PROMPT, seed=5, steps=3, preview=hostile(seen))
    assert [tuple(latents.shape) for latents in seen] == [(1, 4, 16, 16)] * 3
    plain.save(tmp_path / "plain")
    watched.save(tmp_path / "watched")
    for name in files(tmp_path / "plain"):
        a, b = ((tmp_path / which / name).read_bytes() for which in ("plain", "watched"))
        assert a == b, name
    decoded = random_model.vae.decode(seen[-1] / random_model.vae.config.scaling_factor).sample
    picture = ((decoded[0] / 2 + 0.5).clamp(0, 1).movedim(0, -1) * 255).round().byte().numpy()
    assert np.array_equal(picture, np.asarray(plain.image))  # the last latents are the picture's


def test_a_preview_of_an_edit_sees_source_and_edit_and_changes_neither(random_model):
    seen: list[torch.Tensor] = []
    asked: dict[str, Any] = {"seed": 5, "steps": 3, "only": "house->sea"}
    plain = editing.edit(random_model, PROMPT, "a red sea", **asked)
    watched = editing.edit(random_model, PROMPT, "a red sea", preview=hostile(seen), **asked)
    assert [tuple(latents.shape) for latents in seen] == [(2, 4, 16, 16)] * 3
    assert not torch.equal(seen[-1][0], seen[-1][1])
    for side in ("source", "edited"):
        before, after = getattr(plain, side), getattr(watched, side)
        assert np.array_equal(np.asarray(before.image), np.asarray(after.image))
        assert before.settings == after.settings
    grid = editing.grid(
        random_model, PROMPT, weights={"red": [1, 2]}, seeds=5, steps=2, preview=hostile(seen)
    )
    assert len(grid) == 2 and tuple(seen[-1].shape) == (3, 4, 16, 16)


# --- the line of jobs -------------------------------------------------------------------------


def test_one_job_at_a_time_and_the_others_are_told_their_place(line: Line):
    gate, busy, most = threading.Event(), [0], [0]

    def work(job: Job) -> int:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        gate.wait(20)
        time.sleep(0.02)
        busy[0] -= 1
        return 7

    first = line.enter(work)
    until(lambda: first.state.phase == "working")
    second, third = line.enter(work), line.enter(work)
    assert [job.state for job in (second, third)] == [State("waiting", 1), State("waiting", 2)]
    assert "1 job is before yours" in of_state(second.state)
    assert "2 jobs are before yours" in of_state(third.state)
    second.cancel()
    assert third.state == State("waiting", 1)
    gate.set()
    assert ended(third) == State("done", result=7)
    assert (ended(first).phase, ended(second).phase, most[0]) == ("done", "cancelled", 1)


def test_the_line_is_full_at_some_time(line: Line):
    gate = threading.Event()
    first = line.enter(lambda job: gate.wait(20))
    until(lambda: first.state.phase == "working")
    waiting = [line.enter(lambda job: None) for _ in range(3)]
    with pytest.raises(HeedmapError, match="3 jobs are waiting already"):
        line.enter(lambda job: None)
    waiting[0].cancel()  # whoever leaves makes room
    waiting.append(line.enter(lambda job: None))
    gate.set()
    assert [ended(job).phase for job in waiting] == ["cancelled", "done", "done", "done"]


def test_a_job_that_nobody_listens_to_is_ended(line: Line, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "PATIENCE", 0.05)
    steps: list[int] = []

    def work(job: Job) -> None:
        for step in range(1000):
            steps.append(step)
            job.tell("Drawing", step, 1000)
            time.sleep(0.005)

    alone = line.enter(work)
    until(lambda: alone.state.ended)
    assert alone.state.phase == "cancelled" and len(steps) < 1000


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ArgumentError("the seed is odd"), "the seed is odd"),
        (MemoryError(), "There is not enough memory for this: try a smaller size."),
        (RuntimeError("CUDA out of memory at 0x7f"), "There is not enough memory"),
        (RuntimeError("secret of /etc/passwd"), jobs.GENERAL),
    ],
)
def test_errors_are_one_sentence_and_the_next_job_works(line: Line, caplog, error, sentence):
    def fail(job: Job) -> None:
        raise error

    state = ended(line.enter(fail))
    assert state.phase == "failed" and sentence in state.sentence
    shown = of_state(state)
    assert 'role="alert"' in shown and "Traceback" not in shown and "secret" not in shown
    assert bool(caplog.records) != isinstance(error, HeedmapError)  # the log has what is our fault
    assert ended(line.enter(lambda job: 1)) == State("done", result=1)


def test_a_closed_line_ends_its_jobs_and_takes_none():
    line = Line(most=3)

    def work(job: Job) -> None:
        while True:
            job.tell("Drawing")
            time.sleep(0.002)

    first, second = line.enter(work), line.enter(work)
    until(lambda: first.state.phase == "working")
    line.close()
    assert [ended(job).phase for job in (first, second)] == ["cancelled", "cancelled"]
    with pytest.raises(HeedmapError, match="about to stop"):
        line.enter(work)


# --- the workshop -----------------------------------------------------------------------------


def test_generate_gives_the_bytes_of_the_command_line(shop: Workshop, line: Line, desk: Path):
    states: list[State] = []
    asked = Generating(
        prompt="a (red:2) house", seed=7, steps=3, guidance=3.5, size=(64, 96), negative="blue",
        keep=frozenset({"layer", "step"}),
    )  # fmt: skip
    shop.check(asked)
    job = line.enter(lambda job: shop.generate(asked, job))
    states.extend(job.states(pause=0.001))
    made = states[-1].result
    result = call(
        *("generate", "a (red:2) house", "--seed", 7, "--steps", 3, "--guidance", 3.5),
        *("--size", "64x96", "--negative", "blue", "--keep", "layer,step", "--out", "said", "-q"),
    )
    assert result.exit_code == 0
    folder = shop.shelf.folder(made.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name
    assert {state.step for state in states if state.steps == 3} & {1, 2, 3}
    assert any(state.preview.startswith("data:image/webp;base64,") for state in states)


def test_edit_gives_the_bytes_of_the_command_line(shop: Workshop, line: Line, desk: Path):
    asked = Editing(
        source=PROMPT, target="a red sea", seed=7, steps=2, cross=0.6, only="house->sea",
        threshold=0.2,
    )  # fmt: skip
    state = ended(line.enter(lambda job: shop.edit(asked, job)))
    assert state.phase == "done", state.sentence
    result = call(
        *("edit", PROMPT, "a red sea", "--seed", 7, "--steps", 2, "--cross", 0.6),
        *("--only", "house->sea", "--threshold", 0.2, "--out", "said", "-q"),
    )
    assert result.exit_code == 0, result.output
    folder = shop.shelf.folder(state.result.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name


def test_an_edit_of_weights_and_what_it_warns_of(shop, line, model, monkeypatch):
    monkeypatch.setattr(shop.shelf, "put", lambda result: "20261121-name")
    options: dict[str, Any] = {"seed": 1, "steps": 2, "self_attention": 0.5}
    for source, warns in (("a (red:3) house", 0), ("a (red:1.000001) house", 1)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            pair = editing.edit(model, source, **options)
        told = [str(one.message) for one in told if "the edit " in str(one.message)]
        state = ended(
            line.enter(lambda job, text=source: shop.edit(Editing(source=text, **options), job))
        )
        made = state.result
        assert (
            made.result.about == pair.about
            and made.title == f"{pair.source.settings['prompt']} → {source}"
        )
        assert made.notes == tuple(told) and len(told) == warns
        assert of_made(made).count("changed nothing in the picture above rounding") == warns


def test_cancel_leaves_the_pipeline_as_it_was_and_writes_nothing(shop, line, model):
    asked = Generating(prompt=PROMPT, seed=7, steps=16)
    before = dict(model.unet.attn_processors)
    plain = ended(line.enter(lambda job: shop.generate(asked, job)))
    there = files(shop.shelf.root)
    job = line.enter(lambda job: shop.generate(asked, job))
    seen = 0
    for state in job.states(pause=0.001):
        if state.step >= 2 and not seen:
            seen = state.step
            job.cancel()
        last = state
    assert last == State("cancelled") and 2 <= seen < 16
    after = model.unet.attn_processors
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert files(shop.shelf.root) == there
    assert not [path for path in shop.shelf.root.iterdir() if path.name.startswith(".")]
    again = ended(line.enter(lambda job: shop.generate(asked, job)))
    pictures = [made.result.result.image.tobytes() for made in (plain, again)]
    assert pictures[0] == pictures[1]


def test_one_pipeline_is_held(shop: Workshop, monkeypatch: pytest.MonkeyPatch):
    import weakref

    class Pipeline:
        pass

    loaded: list[Any] = []

    def load(model: Any, **_: Any) -> Any:
        assert all(held() is None for held in loaded), "the former one is still held"
        pipe = Pipeline()
        loaded.append(weakref.ref(pipe))
        return pipe

    monkeypatch.setattr(models, "load", load)
    shop.pipeline("org/a")
    shop.pipeline("org/a")
    shop.pipeline("org/b")
    shop.pipeline(models.EMBEDDED)
    assert len(loaded) == 3


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (Generating(prompt="a", model="/etc"), "the model '/etc' is not offered here"),
        (Generating(prompt="a", steps=101), "101 steps are more than this server draws"),
        (Generating(prompt="a", size=(1032, 8)), "1032×8 pixels are more than this server draws"),
        (Generating(prompt="a" * 2001), "the prompt has 2001 characters: expected at most 2000"),
        (Generating(prompt="a", negative="a" * 2001), "the negative prompt has 2001 characters"),
        (Editing(source="a", target="b" * 2001), "the new prompt has 2001 characters"),
    ],
)
def test_what_is_beyond_the_limits(shop: Workshop, asked, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        shop.check(asked)


def test_what_a_model_draws_by_itself_has_limits_too(shop: Workshop, line: Line, tmp_path: Path):
    for limit, part in (({"size": 64}, "128×128 pixels are more"), ({"steps": 20}, "50 steps are")):
        small = Workshop(Shelf(tmp_path / "small", 10), Limits(**limit))
        state = ended(
            line.enter(lambda job, small=small: small.generate(Generating(prompt="a"), job))
        )
        assert state.phase == "failed" and part in state.sentence
    assert not (tmp_path / "small").exists()


def test_models_of_the_operator_and_free_text(tmp_path: Path):
    shelf = Shelf(tmp_path, 1)
    named = Workshop(shelf, Limits(), named=["org/model", "org/model"])
    assert named.models == (models.EMBEDDED, "org/model")
    named.check(Generating(prompt="a", model="org/model"))
    Workshop(shelf, Limits(), free=True).check(Generating(prompt="a", model="/my/folder"))


def test_a_wrong_model_ends_in_heedmaps_own_sentence(line: Line, tmp_path: Path):
    shop = Workshop(Shelf(tmp_path, 1), Limits(), free=True)
    asked = Generating(prompt="a", model="no/such/folder")
    state = ended(line.enter(lambda job: shop.generate(asked, job)))
    assert state.sentence.startswith("there is no model folder no/such/folder")


@pytest.mark.parametrize("text", ["x", "nan", "inf", "1e400", [7], "7 8", "0x7", "−"])
def test_what_is_no_number(text):
    for read in (limits.whole_number, limits.real_number):
        with pytest.raises(ArgumentError, match=r"the seed is .*: expected a (whole )?number"):
            read(text, "the seed")


def test_numbers_that_may_be_left_out():
    assert [limits.whole_number(text, "it") for text in ("", None, " ", "7", " 7 ", "-7", 7)] == [
        *(None, None, None, 7, 7, -7, 7)
    ]
    assert limits.whole_number(str(2**63 - 1), "it") == 2**63 - 1  # no float on the way
    assert [limits.real_number(text, "it") for text in ("", "0.5", "4", 0.8)] == [None, 0.5, 4, 0.8]
    with pytest.raises(ArgumentError, match=r"the seed is '7.5': expected a whole number"):
        limits.whole_number("7.5", "the seed")


# --- previews ---------------------------------------------------------------------------------


def test_the_linear_colours_are_fitted_exactly_where_a_code_is_linear():
    from types import SimpleNamespace

    from heedmap.app.previews import fit_colours, unscaled

    mix = torch.tensor([[0.5, 0.1, 0.0], [0.2, -0.7, 0.3], [0.0, 0.4, 0.9], [1.0, 0.0, -0.2]])

    def encode(pixels: torch.Tensor) -> Any:
        means = torch.nn.functional.avg_pool2d(pixels, 8)  # (B, 3, h, w), -1 to 1
        code = torch.einsum("cr,brhw->bchw", mix, means) + 0.3
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: code))

    config = SimpleNamespace(scaling_factor=0.5, shift_factor=0.25)
    vae = SimpleNamespace(config=config, encode=encode, dtype=torch.float32, device="cpu")
    colours = fit_colours(vae)
    wanted = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(1))
    code = torch.einsum("cr,brhw->bchw", mix, wanted * 2 - 1) + 0.3
    scaled = (code - 0.25) * 0.5  # as a pipeline holds it
    assert torch.allclose(colours(unscaled(vae, scaled)), wanted, atol=1e-3)
    config.latents_mean, config.latents_std = [1.0, 2.0, 3.0, 4.0], [2.0] * 4
    mean = torch.tensor(config.latents_mean).view(1, 4, 1, 1)
    assert torch.allclose(unscaled(vae, (code - mean) * 0.5 / 2), code, atol=1e-5)


def test_a_vae_that_is_raised_for_the_fit_is_afterwards_as_it_was():
    from heedmap.app.previews import fit_colours

    vae = random_pipeline().vae.to(torch.float16)
    vae.register_to_config(force_upcast=True)
    before = {name: value.clone() for name, value in vae.state_dict().items()}
    fit_colours(vae, side=64, count=1)
    after = vae.state_dict()
    assert vae.dtype == torch.float16
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_the_linear_preview_resembles_the_picture(embedded):
    from heedmap.app import previews

    latents: list[torch.Tensor] = []
    run = studio.generate(
        embedded, "a red house at sunset", seed=1, steps=8, preview=latents.append
    )
    colours = previews.fit_colours(embedded.vae)(previews.unscaled(embedded.vae, latents[-1]))
    small = run.image.resize((16, 16), resample=4)
    wanted = np.asarray(small, dtype=float).reshape(-1) / 255
    found = colours[0].movedim(0, -1).numpy().reshape(-1)
    # This autoencoder is far from linear; those of Stable Diffusion are nearer to it.
    assert np.corrcoef(wanted, found)[0, 1] > 0.35


def test_previews_cost_a_bounded_share_of_the_time(random_model):
    from heedmap.app.previews import Previewer

    now, shown = [0.0], []

    def show(image: Any) -> None:
        now[0] += 2.0  # each takes two seconds
        shown.append(image)

    previewer = Previewer(random_model, show, clock=lambda: now[0])
    for _ in range(100):
        previewer(torch.zeros(2, 4, 16, 16))
        now[0] += 1.0
    assert shown[0].size == (256 + 8 + 256, 256)  # two images side by side
    assert 2 * len(shown) <= 0.25 * now[0] and len(shown) >= 10
    large = torch.zeros(1, 4, 64, 96)
    now[0] += 100
    previewer(large)
    assert shown[-1].size == (384, 256)


# --- the shelf --------------------------------------------------------------------------------


def test_results_are_named_by_time_and_chance_and_the_oldest_go(tmp_path: Path, run: Run):
    shelf = Shelf(tmp_path / "app", 2)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "letters").mkdir()
    names = []
    for _ in range(3):
        names.append(shelf.put(run))
        time.sleep(1.01)  # the names tell seconds
    assert shelf.names() == names[1:]
    assert all(PROMPT.split()[2] not in name for name in names)
    assert (tmp_path / "app" / "letters").is_dir()
    assert isinstance(shelf.read(names[2]), Run)
    with pytest.raises(RunError, match="not there any more"):
        shelf.read(names[0])


@pytest.mark.parametrize("name", ["", "..", "../app", "/etc", "letters", "a" * 48, "x\0y"])
def test_names_that_are_no_results(tmp_path: Path, name: str):
    (tmp_path / "letters").mkdir()
    with pytest.raises(RunError, match="not there any more"):
        Shelf(tmp_path, 2).folder(name)


def test_a_full_disk(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(RunError, match="almost full: nothing was saved"):
        Shelf(tmp_path, 2).put(run)
    assert files(tmp_path) == set()


# --- archives ---------------------------------------------------------------------------------


def zipped(members: dict[str, bytes], **attributes: int) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for key, value in attributes.items():
                setattr(entry, key, value)
            archive.writestr(entry, data)
    file.seek(0)
    return file


def packed(folder: Path) -> io.BytesIO:
    file = io.BytesIO()
    archives.pack(folder, file)
    file.seek(0)
    return file


def test_a_zip_holds_the_files_of_the_folder(run: Run, tmp_path: Path):
    folder = run.save(tmp_path / "saved")
    (folder / "link").symlink_to("/etc/passwd")
    with zipfile.ZipFile(packed(folder)) as archive:
        assert archive.testzip() is None
        held = {name: archive.read(name) for name in archive.namelist()}
    (folder / "link").unlink()
    assert held == {f"heedmap-saved/{name}": (folder / name).read_bytes() for name in files(folder)}
    assert packed(folder).getvalue() == packed(folder).getvalue()


def test_a_zip_comes_back_as_the_run_or_the_edit(random_model, run: Run, tmp_path: Path):
    pair = editing.edit(random_model, PROMPT, "a red sea", seed=3, steps=2, only="house->sea")
    for number, result in enumerate((run, pair)):
        folder = result.save(tmp_path / f"saved-{number}")
        for prefix in (f"saved-{number}/", ""):  # packed by the app or by hand, or without a folder
            at = tmp_path / f"back-{number}-{len(prefix)}"
            at.mkdir()
            file = zipped(
                {f"{prefix}{name}": (folder / name).read_bytes() for name in files(folder)}
            )
            archives.unpack(file, at, most=2**26)
            assert not any(name.endswith(("html", "sheet.png")) for name in files(at))
            back = read_result(at)
            assert type(back) is type(result)
            assert back.explorer() == result.explorer()


GOOD = {"run.json": b"{}", "image.png": b"", "maps.safetensors": b""}


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (io.BytesIO(b"no zip"), "is no zip that can be read"),
        (io.BytesIO(zipped(GOOD).getvalue()[:-30]), "is no zip that can be read"),
        (zipped({}), "holds neither a run nor an edit"),
        (zipped({"letter.txt": b"Dear"}), "holds neither a run nor an edit"),
        (zipped({"a/b/run.json": b"{}"}), "holds neither a run nor an edit"),
        (zipped({**GOOD, "../../evil": b"x"}), "names files outside of its folder"),
        (zipped({"a/../run.json": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "/etc/evil": b"x"}), "names files outside of its folder"),
        (zipped({**GOOD, "C:\\evil": b"x"}), "names files outside of its folder"),
        (zipped(GOOD, external_attr=(stat.S_IFLNK | 0o777) << 16), "holds links or devices"),
        (zipped(GOOD, external_attr=(stat.S_IFCHR | 0o777) << 16), "holds links or devices"),
        (zipped({"run.json": b"{}", "image.png": bytes(2**21)}), "unpacks to more than"),
        (zipped({**GOOD, **{f"words/{n}.png": b"" for n in range(2000)}}), "has 2003 files"),
    ],
)  # fmt: skip
def test_hostile_zips_end_in_a_sentence(tmp_path: Path, file: io.BytesIO, sentence: str):
    (tmp_path / "within").mkdir()
    with pytest.raises(RunError, match=sentence):
        archives.unpack(file, tmp_path / "within", most=2**20)
    assert files(tmp_path) <= {"within/run.json", "within/image.png"}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 2**20


def test_a_zip_that_lies_about_its_sizes(tmp_path: Path):
    raw = bytearray(zipped({"run.json": b"{}", "image.png": bytes(2**22)}).getvalue())
    real, false = (2**22).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert raw.count(real) == 2
    with pytest.raises(RunError, match=r"is no zip that can be read|unpacks to more"):
        archives.unpack(io.BytesIO(raw.replace(real, false)), tmp_path, most=2**20)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2**20


def test_encrypted_and_doubled(tmp_path: Path):
    file = zipped(GOOD)
    raw = bytearray(file.getvalue())
    at = raw.find(b"PK\x01\x02")
    raw[at + 8] |= 1  # the flag of encryption, of the first file
    with pytest.raises(RunError, match="encrypted"):
        archives.unpack(io.BytesIO(raw), tmp_path, most=2**20)
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("run.json", "{}")
        archive.writestr("run.json", "[]")
    with pytest.raises(RunError, match="has a file twice"):
        archives.unpack(twice, tmp_path, most=2**20)
    assert files(tmp_path) == set()


# --- what is shown ----------------------------------------------------------------------------

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'>"


def test_what_a_user_typed_stays_text():
    shown = of_trouble(EVIL) + of_state(State("working", doing=EVIL, preview='x" onerror="y'))
    assert "<script" not in shown and "<img src=x" not in shown and '" onerror' not in shown


def test_the_page_of_a_result_is_its_own_explorer(random_model, tmp_path: Path):
    import re

    run = studio.generate(random_model, f"a house {EVIL}", seed=1, steps=1)
    shown = of_page(run)
    found = re.search(r'srcdoc="([^"]*)"', shown)
    assert found is not None
    run.save(tmp_path / "run")
    assert html.unescape(found[1]) == (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in shown and 'sandbox="allow-scripts allow-downloads"' in shown


# --- the server -------------------------------------------------------------------------------

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


@pytest.fixture(scope="module")
def server(random_model, tmp_path_factory) -> Iterator[Any]:
    """The app of the random model, with a password, on a free port."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "load", lambda *_, **__: random_model)
        with Served(tmp_path_factory.mktemp("app"), {"ann": "pa:ss"}) as served:
            yield served


class Served:
    """A running app, asked over HTTP as a browser asks it."""

    def __init__(self, out: Path, users: dict[str, str], **options: Any) -> None:
        from uvicorn import Config, Server

        from heedmap.app import Application, bind

        self.app = Application(
            Options(out=out, users=users, limits=Limits(upload=2**20, waiting=2), **options)
        )
        self.out, self.socket = out, bind("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.server = Server(
            Config(self.app.gate, log_level="warning", access_log=False, lifespan="on",
                   timeout_graceful_shutdown=1)
        )  # fmt: skip
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.auth = ":".join(next(iter(users.items()))) if users else ""

    def __enter__(self) -> "Served":
        self.thread.start()
        until(lambda: self.server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.app.close()
        self.server.should_exit = True
        self.thread.join(10)
        self.socket.close()

    def ask(
        self, path: str, data: bytes | None = None, auth: str | None = None, **headers: str
    ) -> tuple[int, bytes, Any]:
        """Status, body and headers of an answer; the path goes out as it is."""
        auth = self.auth if auth is None else auth
        if auth:
            headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers


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
    name = server.app.workshop.shelf.put(run)
    here = Path(__file__).parents[1]
    status, body, _ = server.ask(path.format(here=here, name=name))
    assert status in (403, 404), path
    assert b"root:" not in body and b"[project]" not in body and b"settings" not in body


def test_gradios_own_way_of_uploading_is_shut(server: Served):
    form = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="evil.sh"\r\n\r\nhi\r\n'
        b"--x--\r\n"
    )
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for path in ("/gradio_api/upload", "/gradio_api/component_server", "/gradio_api/vibe-edit"):
        assert server.ask(path, data=form, **kind)[0] == 404


def test_a_result_is_downloaded_as_the_zip_of_its_folder(server: Served, run: Run):
    name = server.app.workshop.shelf.put(run)
    folder = server.app.workshop.shelf.folder(name)
    status, body, headers = server.ask(f"/results/{name}.zip")
    assert (status, headers["Content-Type"]) == (200, "application/zip")
    assert headers["Content-Disposition"] == f'attachment; filename="heedmap-{name}.zip"'
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        held = {entry: archive.read(entry) for entry in archive.namelist()}
    assert held == {f"heedmap-{name}/{f}": (folder / f).read_bytes() for f in files(folder)}


def test_uploads_have_a_limit_and_names_by_chance(server: Served):
    (uploads,) = (Path(server.app._uploads.name),)
    status, body, _ = server.ask("/uploads", data=b"hello", Filename="../../evil")
    token = json.loads(body)["token"]
    assert status == 200 and (uploads / token).read_bytes() == b"hello"
    status, body, _ = server.ask("/uploads", data=bytes(2**20 + 1))
    assert status == 413 and body == b"That is too large: expected at most 1 MB."
    for _ in range(12):
        server.ask("/uploads", data=b"more")
    assert len(list(uploads.iterdir())) <= 8


def test_pages_of_other_servers_are_refused(server: Served):
    assert server.ask("/uploads", data=b"x", Origin="http://evil.example")[0] == 403
    assert server.ask("/", Host="evil.example")[0] == 421  # a name that points to this machine
    assert server.ask("/", Host=f"localhost:{server.port}")[0] == 200
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("/uploads", data=b"x", Origin=own)[0] == 200


def test_bodies_that_are_no_uploads_are_small(server: Served):
    status, _, _ = server.ask(
        "/gradio_api/queue/join", data=bytes(2**20 + 1), **{"Content-Type": "application/json"}
    )
    assert status == 413


def event(server: Served, target: str, data: list[Any], session: str) -> Iterator[dict[str, Any]]:
    """The messages of an event: that of the button of that name, or of another kind of event."""
    config = json.loads(server.ask("/config")[1])
    labels = {one["id"]: one["props"].get("value") for one in config["components"]}
    number = next(
        place for place, one in enumerate(config["dependencies"])
        if any(labels.get(part) == target for part, _ in one["targets"])
    )  # fmt: skip
    body = {"data": data, "fn_index": config["dependencies"][number]["id"], "session_hash": session}
    status, answer, _ = server.ask(
        "/gradio_api/queue/join", data=json.dumps(body).encode(),
        **{"Content-Type": "application/json"},
    )  # fmt: skip
    assert status == 200, answer
    auth = f"Basic {base64.b64encode(server.auth.encode()).decode()}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/gradio_api/queue/data?session_hash={session}",
        headers={"Authorization": auth},
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                message = json.loads(line[5:])
                yield message
                if message["msg"] == "close_stream":
                    return


FIELDS: list[Any] = [models.EMBEDDED, "7", "2", "", "", "", "", ["layer"]]


def generating(server: Served, session: str, prompt: Any, *others: Any) -> str:
    """All that a job's messages say."""
    fields = [None, prompt, *(others or FIELDS)]
    said = json.dumps(list(event(server, "Generate", fields, session)), ensure_ascii=False)
    assert "Traceback" not in said and "<img src=x" not in said and "<script" not in said
    return html.unescape(said)


def test_a_job_over_http_saves_a_run_and_shows_its_page(server: Served):
    before = set(server.app.workshop.shelf.names())
    said = generating(server, "first", PROMPT)
    (name,) = set(server.app.workshop.shelf.names()) - before
    assert f"./results/{name}.zip" in said and "Saved as" in said and "srcdoc=" in said
    assert Run.load(server.out / name).settings["prompt"] == PROMPT


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (0, "", "The prompt '' has no words"),
        (0, EVIL * 100, "characters: expected at most 2000"),
        (2, "-1", "The seed -1 is out of range"),
        (2, "seven", "The seed is 'seven': expected a whole number"),
        (3, "5000", "5000 steps are more than this server draws: expected 1 to 100"),
        (3, "2.5", "The number of steps is '2.5': expected a whole number"),
        (5, "64", "one side of the picture was given"),
    ],
)
def test_mistakes_end_in_one_sentence_in_the_page(server, capfd, place, value, sentence):
    before = files(server.out)
    fields: list[Any] = [PROMPT, *FIELDS]
    fields[place] = value
    said = generating(server, f"wrong{place}{len(str(value))}", *fields)
    assert sentence.lower() in said.lower()
    assert 'role=\\"alert\\"' in said and files(server.out) == before
    assert "Traceback" not in capfd.readouterr().err


def test_a_bug_of_ours_is_a_general_sentence_and_stands_in_the_log(server, monkeypatch, caplog):
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret of /etc/passwd")

    monkeypatch.setattr(studio, "generate", broken)
    said = generating(server, "broken", PROMPT)
    assert "Something went wrong in heedmap itself" in said
    assert "secret" not in said and "Traceback" not in said
    assert any("secret" in str(record.exc_info[1]) for record in caplog.records if record.exc_info)


def test_a_second_visitor_waits_and_is_told_the_place(server: Served, monkeypatch):
    go, real = threading.Event(), studio.generate

    def slow(*arguments: Any, **options: Any) -> Run:
        assert go.wait(30)
        return real(*arguments, **options)

    monkeypatch.setattr(studio, "generate", slow)
    said: dict[str, str] = {}

    def visit(session: str) -> None:
        said[session] = generating(server, session, PROMPT)

    visitors = [threading.Thread(target=visit, args=(f"visitor{n}",)) for n in range(2)]
    visitors[0].start()
    until(lambda: server.app.line._current is not None)
    visitors[1].start()
    until(lambda: len(server.app.line._waiting) == 1)
    time.sleep(0.5)
    go.set()
    for visitor in visitors:
        visitor.join(60)
    assert "1 job is before yours" in said["visitor1"]
    assert "1 job is before yours" not in said["visitor0"]
    assert all("Saved as" in text for text in said.values())


def test_a_visitor_who_leaves_ends_the_job(server: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "PATIENCE", 1.0)
    before = files(server.out)
    messages = event(server, "Generate", [None, PROMPT, *FIELDS[:2], "100", *FIELDS[3:]], "leaver")
    for message in messages:
        if "step 1 of 100" in json.dumps(message) or "step 2 of 100" in json.dumps(message):
            break
    messages.close()
    until(lambda: server.app.line._current is None)
    assert files(server.out) == before


# --- the verb ---------------------------------------------------------------------------------


def test_it_is_bound_to_this_machine_and_knows_which_addresses_are():
    assert Options().host == "127.0.0.1"
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.1.2.3")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.4", "example.com", "")))
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert address("::1", 80) == "http://[::1]:80"


def test_users():
    assert parse_users(["ann:pa:ss", " bob:x\n", ""]) == {"ann": "pa:ss", "bob": "x"}
    for text in ("ann", "ann:", ":secret"):
        with pytest.raises(ArgumentError, match="is not USER:PASSWORD") as error:
            parse_users([text])
        assert "secret" not in str(error.value)
    with pytest.raises(ArgumentError, match="has the user 'ann' twice"):
        parse_users(["ann:1", "ann:2"])


def served(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[Any, Options]:
    """What the verb says, and what it would serve."""
    from heedmap import app

    found: list[Options] = []

    def serve(options: Options, **rest: Any) -> None:
        found.append(options)
        rest["ready"]("http://x")

    monkeypatch.setattr(app, "serve", serve)
    result = call("app", *arguments)
    assert result.exit_code == 0, result.output
    return result, found[0]


def test_the_options_of_the_verb(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEEDMAP_AUTH", "ann:pa ss\nbob:x")
    result, options = served(
        monkeypatch, "--model", "org/a", "--model", "b", "--auth", "eve:y", "--max-size", 512,
        "--max-steps", 30, "--max-upload", 8, "--max-results", 9, "--host", "0.0.0.0",
    )  # fmt: skip
    assert options.models == ("org/a", "b")
    assert options.users == {"eve": "y", "ann": "pa ss", "bob": "x"}
    assert options.limits == Limits(size=512, steps=30, upload=8 * 2**20, results=9)
    assert result.stderr == "" and "http://x" in result.stdout
    assert "x" not in result.stdout.replace("http://x", "").split()  # no password is told


def test_a_warning_where_everybody_is_let_in(desk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEEDMAP_AUTH", raising=False)
    result, _ = served(monkeypatch, "--host", "0.0.0.0")
    assert result.stderr.startswith("Warning: everybody who reaches 0.0.0.0 can use this app")
    assert served(monkeypatch)[0].stderr == ""


def test_a_port_in_use_and_an_address_that_is_none(desk: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = bad("app", "--port", port)
    assert f"Port {port} of 127.0.0.1 cannot be used" in said and "--port 0" in said
    assert "is not known: expected an address" in bad("app", "--host", "no such host")
    assert files(desk) == set()


def test_without_gradio_it_says_what_to_install(desk: Path):
    code = """
import sys
sys.modules["gradio"] = None
from heedmap.cli import app
app(["app", "--port", "0"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "pip install 'heedmap[app]'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_it_cleanly(desk: Path):
    import signal

    process = subprocess.Popen(
        [sys.executable, "-m", "heedmap.cli", "app", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    assert "heedmap is at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    assert files(desk) == set()


def test_help_tells_every_option(desk: Path):
    done = in_a_process("app", "--help")
    assert done.returncode == 0
    for option in ("--auth", "--host", "--max-size", "--max-steps", "--max-upload", "HEEDMAP_AUTH"):
        assert option in done.stdout
