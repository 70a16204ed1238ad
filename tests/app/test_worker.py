"""What the jobs do: the bytes of the command line, within the limits of the operator."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
from cli.calling import call, files

from app.serving import PROMPT, ended
from heedmap import explorer
from heedmap.app.jobs import JobQueue, State
from heedmap.app.options import Limits, Options
from heedmap.app.requests import EditRequest, GenerateRequest, GridRequest, Placed
from heedmap.app.result_store import ResultStore, Shelved
from heedmap.app.worker import Worker
from heedmap.drawing import editing, generation
from heedmap.errors import ArgumentError, RunError
from heedmap.models import batches, cards, pipelines
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
    folder = worker.store.shelf("").folder(made.name)
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
    folder = worker.store.shelf("").folder(state.result.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name


def test_an_edit_of_weights_and_what_it_warns_of(worker, queue, model, monkeypatch):
    put: list[Any] = []
    line = Shelved("name", "edit", "", "Seed 1", 0.0, 0)
    monkeypatch.setattr(worker.store, "put", lambda result, _: put.append(result) or line)
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
        assert put.pop().about == pair.about
        # The page tells it, beneath the prompt, and the line above the page does not again.
        assert len(told) == warns and list(pair.about.notes or ()) == told and made.notes == ()
        assert explorer.pair_page(pair).count("changed nothing in the picture above") == warns


def test_what_the_page_tells_is_told_once(worker, queue, model, monkeypatch):
    """A word that was not taught, of a run, of both prompts of an edit and of a grid's."""
    put: list[Any] = []
    line = Shelved("name", "run", "", "Seed 1", 0.0, 0)
    monkeypatch.setattr(worker.store, "put", lambda result, _: put.append(result) or line)
    few: dict[str, Any] = {"seed": 1, "options": DrawOptions(steps=1)}
    horse, pig = "a red horse", "a red pig"
    asks: list[tuple[Any, Any]] = [
        (worker.generate, GenerateRequest(prompt=horse, **few)),
        (worker.edit, EditRequest(source=horse, target=pig, **few)),
        (worker.grid, GridRequest(source=horse, targets=(pig, "a red a"), **few)),
    ]
    for work, asked in asks:
        with monkeypatch.context() as patch:
            patch.setattr(cards, "words_of", lambda _: frozenset({"a", "red"}))
            state = ended(queue.enter(lambda job, work=work, asked=asked: work(asked, job)))
        assert state.phase == "done" and state.result.notes == (), state.sentence
        result = put.pop()
        assert "is not a word that this model was taught" in result.explorer()
    # The page of a grid opens with its first edit: what is of another is told beside it.
    asked = GridRequest(source="a red", targets=("a a", horse), **few)
    monkeypatch.setattr(cards, "words_of", lambda _: frozenset({"a", "red"}))
    (said,) = ended(queue.enter(lambda job: worker.grid(asked, job))).result.notes
    assert said.startswith("'horse' is not a word")


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
        Run.load(worker.store.shelf("").folder(made.result.name)).image.tobytes()
        for made in (plain, again)
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
            "steps is 101, more than this server draws",
        ),
        (
            GenerateRequest(prompt="a", options=DrawOptions(size=(1032, 8))),
            r"size is \(1032, 8\), more pixels than this server draws",
        ),
        (GenerateRequest(prompt="a" * 2001), "prompt has 2001 characters: expected at most 2000"),
        (
            GenerateRequest(prompt="a", options=DrawOptions(negative="a" * 2001)),
            "negative has 2001 characters",
        ),
        (EditRequest(source="a", target="b" * 2001), "target has 2001 characters"),
    ],
)
def test_what_is_beyond_the_limits(worker: Worker, asked, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        worker.check(asked)


STEPS = "drawn in {}, the most that this server draws; the model's own are 50"
SIZE = (
    "drawn at {} pixels, the most of the model's own shape that this server draws; its own are {}"
)


def test_a_pipeline_that_does_not_say_its_steps_is_asked_for_none(worker: Worker, model):
    class Silent(type(model)):
        def __call__(self, prompt, num_inference_steps=None): ...

    pipe = copy.copy(model)
    pipe.__class__ = Silent
    asked = GenerateRequest(prompt=PROMPT)
    assert worker._fitted(asked, pipe) == (asked, [])


def test_a_model_without_a_size_that_is_small_enough(queue: JobQueue, model, tmp_path: Path):
    worker = Worker(ResultStore(tmp_path / "none", 10, shared=True), Options(limits=Limits(size=7)))
    state = ended(queue.enter(lambda job: worker.generate(GenerateRequest(prompt=PROMPT), job)))
    assert state.sentence.startswith(
        "“Width” × “Height” is 8×8, more pixels than this server draws"
    )
    assert not (tmp_path / "none").exists()


def test_models_of_the_operator_and_free_text(tmp_path: Path):
    store = ResultStore(tmp_path, 1, shared=True)
    named = Worker(store, Options(models=("org/model", "org/model"), names=("app.example",)))
    assert named.models == (EMBEDDED, "org/model")
    named.check(GenerateRequest(prompt="a", model="org/model"))
    Worker(store, Options()).check(GenerateRequest(prompt="a", model="/my/folder"))


def test_a_wrong_model_ends_in_heedmaps_own_sentence(queue: JobQueue, tmp_path: Path):
    worker = Worker(ResultStore(tmp_path, 1, shared=True), Options())
    asked = GenerateRequest(prompt="a", model="no/such/folder")
    state = ended(queue.enter(lambda job: worker.generate(asked, job)))
    assert state.sentence.startswith("there is no model no/such/folder")


def test_a_word_in_its_place_is_confined_as_the_command_line_does(worker, queue, desk: Path):
    asked = GenerateRequest(
        prompt="a red house and a dog",
        seed=7,
        options=DrawOptions(steps=2, size=(128, 96)),
        placed=(Placed("house", "the left half"), Placed("dog", (64.0, 8.0, 128.0, 90.0))),
    )
    state = ended(queue.enter(lambda job: worker.generate(asked, job)))
    assert state.phase == "done", state.sentence
    result = call(
        *("generate", "a red house and a dog", "--seed", 7, "--steps", 2, "--size", "128x96"),
        *("--confine", "house=0,0,64,96", "--confine", "dog=64,8,128,90", "--out", "said", "-q"),
    )
    assert result.exit_code == 0, result.output
    folder = worker.store.shelf("").folder(state.result.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name
    assert Run.load(folder).settings.edits


def test_protected_and_renormalized_as_the_command_line_does(worker, queue, desk: Path):
    asked = EditRequest(
        source="a red house in snow",
        target="a (red:2) sea in snow",
        seed=7,
        options=DrawOptions(steps=2),
        edit=EditOptions(only="house->sea", protect=("snow",), renormalize=True),
    )
    state = ended(queue.enter(lambda job: worker.edit(asked, job)))
    assert state.phase == "done", state.sentence
    result = call(
        *("edit", "a red house in snow", "a (red:2) sea in snow", "--seed", 7, "--steps", 2),
        *("--only", "house->sea", "--protect", "snow", "--renormalize", "--out", "said", "-q"),
    )
    assert result.exit_code == 0, result.output
    folder = worker.store.shelf("").folder(state.result.name)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name


@pytest.mark.parametrize("fits", [True, False])
def test_all_axes_are_kept_up_to_a_bound(queue, model, tmp_path: Path, monkeypatch, fits: bool):
    """To the byte: what the maps take is what they were said to take."""
    whole = generation.generate(model, PROMPT, seed=1, steps=2, keep={"layer", "step", "head"})
    taken = sum(array.nbytes for array in whole.maps.recording.arrays)
    limits = Limits(maps=taken if fits else taken - 1)
    worker = Worker(ResultStore(tmp_path, 10, shared=True), Options(limits=limits))
    asked = GenerateRequest(prompt=PROMPT, seed=1, options=DrawOptions(steps=2), roomy=True)
    made = ended(queue.enter(lambda job: worker.generate(asked, job))).result
    kept = set(Run.load(worker.store.shelf("").folder(made.name)).settings.keep)
    assert kept == ({"layer", "step", "head"} if fits else set(DrawOptions.keep))
    for keep in (("step",), ()):
        chosen = GenerateRequest(prompt=PROMPT, seed=1, options=DrawOptions(steps=2, keep=keep))
        made = ended(queue.enter(lambda job, one=chosen: worker.generate(one, job))).result
        found = Run.load(worker.store.shelf("").folder(made.name))
        assert set(found.settings.keep) == set(keep)  # what was chosen is kept, and no more


def test_the_embedded_models_maps_are_small():
    """With all axes of two prompts of 77 tokens, in its own steps."""
    pipe, steps = pipelines.load(), 25
    assert batches.map_bytes(pipe, 2 * 77, registry.usual_size(pipe), steps) <= Limits.maps


GRID: dict[str, Any] = {"source": PROMPT, "weights": {"red": [0, 1, 2]}}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (GenerateRequest(), "prompt is empty: write what is to be drawn"),
        (GenerateRequest(prompt=" \t\n"), "^prompt is empty"),
        (EditRequest(target="a house"), "^prompt is empty"),
        (EditRequest(source="a house", target=" "), "^target is empty"),
        (GridRequest(weights={"red": [0, 1]}), "^prompt is empty"),
        (GridRequest(source=PROMPT), "nothing varies in this grid"),
        (GridRequest(**GRID, count=17), "a grid of 51 edits is more than this server draws"),
        (GridRequest(**GRID, count=10**6), "more than this server draws: expected at most 48"),
        (
            EditRequest(source="a", edit=EditOptions(protect=("b" * 1000,) * 3)),
            "protect has 3004 characters",
        ),
    ],
)
def test_what_is_refused_before_the_line(worker: Worker, asked, sentence: str):
    with pytest.raises(ArgumentError, match=sentence):
        worker.check(asked)


def test_a_full_folder_is_told_before_the_line(tmp_path: Path, model, run: Run):
    worker = Worker(ResultStore(tmp_path, 1, shared=True), Options())
    worker.check(GenerateRequest(prompt="a"))
    worker.store.put(run, "")
    with pytest.raises(RunError, match="holds 1 result, as many as it may"):
        worker.check(GenerateRequest(prompt="a"))
