"""What the jobs do: the bytes of the command line, within the limits of the operator."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
from cli.calling import call, files

from app.serving import PROMPT, ended
from heedmap.app.fragments import of_made
from heedmap.app.jobs import JobQueue, State
from heedmap.app.options import Limits, Options
from heedmap.app.result_store import ResultStore
from heedmap.app.worker import EditRequest, GenerateRequest, Worker
from heedmap.drawing import editing
from heedmap.errors import ArgumentError
from heedmap.models import pipelines
from heedmap.options import DrawOptions, EditOptions
from heedmap.results.runs import Run
from heedmap.tiny.card import EMBEDDED
from heedmap.wiring import registry


def test_generate_gives_the_bytes_of_the_command_line(worker: Worker, queue: JobQueue, desk: Path):
    states: list[State] = []
    asked = GenerateRequest(
        prompt="a (red:2) house",
        seed=7,
        options=DrawOptions(
            steps=3, guidance=3.5, size=(64, 96), negative="blue", keep={"layer", "step"}
        ),
    )
    worker.check(asked)
    job = queue.enter(lambda job: worker.generate(asked, job))
    states.extend(job.states(pause=0.001))
    made = states[-1].result
    result = call(
        *("generate", "a (red:2) house", "--seed", 7, "--steps", 3, "--guidance", 3.5),
        *("--size", "64x96", "--negative", "blue", "--keep", "layer,step", "--out", "said", "-q"),
    )
    assert result.exit_code == 0
    folder = worker.store.folder(made.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name
    assert {state.step for state in states if state.steps == 3} & {1, 2, 3}
    assert any(state.preview.startswith("data:image/webp;base64,") for state in states)


def test_edit_gives_the_bytes_of_the_command_line(worker: Worker, queue: JobQueue, desk: Path):
    asked = EditRequest(
        source=PROMPT,
        target="a red sea",
        seed=7,
        options=DrawOptions(steps=2),
        edit=EditOptions(cross=0.6, only="house->sea", threshold=0.2),
    )
    state = ended(queue.enter(lambda job: worker.edit(asked, job)))
    assert state.phase == "done", state.sentence
    result = call(
        *("edit", PROMPT, "a red sea", "--seed", 7, "--steps", 2, "--cross", 0.6),
        *("--only", "house->sea", "--threshold", 0.2, "--out", "said", "-q"),
    )
    assert result.exit_code == 0, result.output
    folder = worker.store.folder(state.result.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name


def test_an_edit_of_weights_and_what_it_warns_of(worker, queue, model, monkeypatch):
    put: list[Any] = []
    monkeypatch.setattr(worker.store, "put", lambda result: put.append(result) or "20261121-name")
    options: dict[str, Any] = {"seed": 1, "steps": 2, "self_attention": 0.5}
    asked: dict[str, Any] = {
        "seed": 1,
        "options": DrawOptions(steps=2),
        "edit": EditOptions(self_attention=0.5),
    }
    for source, warns in (("a (red:3) house", 0), ("a (red:1.000001) house", 1)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            pair = editing.edit(model, source, **options)
        told = [str(one.message) for one in told if "the edit " in str(one.message)]
        state = ended(
            queue.enter(
                lambda job, text=source: worker.edit(EditRequest(source=text, **asked), job)
            )
        )
        made = state.result
        assert (
            put.pop().about == pair.about
            and made.title == f"{pair.source.settings.prompt} → {source}"
        )
        assert made.notes == tuple(told) and len(told) == warns
        assert of_made(made).count("changed nothing in the picture above rounding") == warns


def test_cancel_leaves_the_pipeline_as_it_was_and_writes_nothing(worker, queue, model):
    asked = GenerateRequest(prompt=PROMPT, seed=7, options=DrawOptions(steps=16))
    before = dict(model.unet.attn_processors)
    plain = ended(queue.enter(lambda job: worker.generate(asked, job)))
    there = files(worker.store.root)
    job = queue.enter(lambda job: worker.generate(asked, job))
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
    assert files(worker.store.root) == there
    assert not [path for path in worker.store.root.iterdir() if path.name.startswith(".")]
    again = ended(queue.enter(lambda job: worker.generate(asked, job)))
    pictures = [
        Run.load(worker.store.folder(made.result.name)).image.tobytes() for made in (plain, again)
    ]
    assert pictures[0] == pictures[1]


def test_one_pipeline_is_held(worker: Worker, monkeypatch: pytest.MonkeyPatch):
    import weakref

    class Pipeline:
        pass

    loaded: list[Any] = []

    def load(model: Any, **_: Any) -> Any:
        assert all(held() is None for held in loaded), "the former one is still held"
        pipe = Pipeline()
        loaded.append(weakref.ref(pipe))
        return pipe

    monkeypatch.setattr(pipelines, "load", load)
    worker.pipeline("org/a")
    worker.pipeline("org/a")
    worker.pipeline("org/b")
    worker.pipeline(EMBEDDED)
    assert len(loaded) == 3


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (GenerateRequest(prompt="a", model="/etc"), "the model '/etc' is not offered here"),
        (
            GenerateRequest(prompt="a", options=DrawOptions(steps=101)),
            "101 steps are more than this server draws",
        ),
        (
            GenerateRequest(prompt="a", options=DrawOptions(size=(1032, 8))),
            "1032×8 pixels are more than this server draws",
        ),
        (
            GenerateRequest(prompt="a" * 2001),
            "the prompt has 2001 characters: expected at most 2000",
        ),
        (
            GenerateRequest(prompt="a", options=DrawOptions(negative="a" * 2001)),
            "the negative prompt has 2001 characters",
        ),
        (EditRequest(source="a", target="b" * 2001), "the new prompt has 2001 characters"),
    ],
)
def test_what_is_beyond_the_limits(worker: Worker, asked, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        worker.check(asked)


STEPS = "drawn in {}, the most that this server draws; the model's own are 50"
SIZE = (
    "drawn at {} pixels, the most of the model's own shape that this server draws; its own are {}"
)


@pytest.mark.parametrize(
    ("limits", "own", "size", "notes"),
    [
        ({"steps": 3}, (128, 128), (128, 128), [STEPS.format("3 steps")]),
        ({"steps": 1}, (128, 128), (128, 128), [STEPS.format("1 step")]),
        ({"steps": 2, "size": 128}, (128, 128), (128, 128), [STEPS.format("2 steps")]),
        ({"steps": 2, "size": 70}, (128, 128), (64, 64),
         [STEPS.format("2 steps"), SIZE.format("64×64", "128×128")]),
        ({"steps": 2, "size": 100}, (288, 512), (56, 96),
         [STEPS.format("2 steps"), SIZE.format("56×96", "288×512")]),
        ({"steps": 2, "size": 100}, (64, 128), (48, 96),
         [STEPS.format("2 steps"), SIZE.format("48×96", "64×128")]),
        ({"steps": 50, "size": 128}, (128, 128), (128, 128), []),
        ({"steps": 2, "size": 9}, (640, 64), (8, 8),
         [STEPS.format("2 steps"), SIZE.format("8×8", "640×64")]),
    ],
)  # fmt: skip
def test_what_is_left_to_the_model_is_drawn_within_the_limits(
    queue: JobQueue, model, tmp_path: Path, monkeypatch, limits, own, size, notes
):
    monkeypatch.setattr(registry, "usual_size", lambda _: own)
    worker = Worker(ResultStore(tmp_path, 10), Options(limits=Limits(**limits)))
    options = DrawOptions(size=None if "size" in limits else size)
    asked = GenerateRequest(prompt=PROMPT, seed=1, options=options)
    made = ended(queue.enter(lambda job: worker.generate(asked, job))).result
    run = Run.load(worker.store.folder(made.name))
    assert run.settings.steps == limits["steps"] and run.image.size == size
    assert made.notes == tuple(notes)
    assert all(f"<p>D{note[1:]}" in of_made(made).replace("&#x27;", "'") for note in notes)


def test_a_pipeline_that_does_not_say_its_steps_is_asked_for_none(worker: Worker, model):
    class Silent(type(model)):
        def __call__(self, prompt, num_inference_steps=None): ...

    pipe = copy.copy(model)
    pipe.__class__ = Silent
    asked = GenerateRequest(prompt=PROMPT)
    assert worker._fitted(asked, pipe) == (asked, [])


def test_an_edit_within_the_limits(queue: JobQueue, model, tmp_path: Path):
    worker = Worker(ResultStore(tmp_path, 10), Options(limits=Limits(steps=2, size=64)))
    asked = EditRequest(source=PROMPT, target="a red sea", seed=1)
    made = ended(queue.enter(lambda job: worker.edit(asked, job))).result
    assert made.notes == (STEPS.format("2 steps"), SIZE.format("64×64", "128×128"))
    said = EditRequest(
        source=PROMPT, target="a red sea", seed=1, options=DrawOptions(steps=2, size=(64, 64))
    )
    same = ended(queue.enter(lambda job: worker.edit(said, job))).result
    assert same.notes == ()
    one, other = (worker.store.folder(name) for name in (made.name, same.name))
    assert files(one) == files(other)
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in files(one))


def test_a_model_without_a_size_that_is_small_enough(queue: JobQueue, model, tmp_path: Path):
    worker = Worker(ResultStore(tmp_path / "none", 10), Options(limits=Limits(size=7)))
    state = ended(queue.enter(lambda job: worker.generate(GenerateRequest(prompt=PROMPT), job)))
    assert state.sentence.startswith("8×8 pixels are more than this server draws")
    assert not (tmp_path / "none").exists()


def test_models_of_the_operator_and_free_text(tmp_path: Path):
    store = ResultStore(tmp_path, 1)
    named = Worker(store, Options(models=("org/model", "org/model"), names=("app.example",)))
    assert named.models == (EMBEDDED, "org/model")
    named.check(GenerateRequest(prompt="a", model="org/model"))
    Worker(store, Options()).check(GenerateRequest(prompt="a", model="/my/folder"))


def test_a_wrong_model_ends_in_heedmaps_own_sentence(queue: JobQueue, tmp_path: Path):
    worker = Worker(ResultStore(tmp_path, 1), Options())
    asked = GenerateRequest(prompt="a", model="no/such/folder")
    state = ended(queue.enter(lambda job: worker.generate(asked, job)))
    assert state.sentence.startswith("there is no model folder no/such/folder")
