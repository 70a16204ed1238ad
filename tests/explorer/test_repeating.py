"""The commands on a page: they read back as the settings that they were made of."""

import inspect
import json
import os
import re
import shlex
import subprocess
from typing import Any

import msgspec
import numpy as np
import pytest
import typer
from diffusers import DPMSolverMultistepScheduler
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import EMBEDDED, made_run, noting, settings_of, small

import heedmap
from heedmap import cli, explorer, options
from heedmap.drawing import editing
from heedmap.drawing.settings import describe
from heedmap.errors import RunError
from heedmap.explorer import spelling
from heedmap.explorer.repeating import repeat_edit, repeat_grid, repeat_run
from heedmap.files.notes import to_json
from heedmap.files.reports import GridReport
from heedmap.results.runs import Run

texts = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and "\0" not in text)
words = texts.map(str.strip)
numbers = st.floats(0, 100) | st.integers(0, 100)
fractions = st.floats(0, 1)
windows = st.tuples(fractions, fractions).map(lambda pair: sorted(map(float, pair)))
drawn = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**62),
        "steps": st.integers(1, 999),
        "guidance": numbers,
        "size": st.tuples(*[st.integers(1, 500).map(lambda n: 8 * n)] * 2).map(list),
        "negative": st.none() | st.just("") | texts,
        "keep": st.lists(st.sampled_from(["head", "layer", "step"]), unique=True).map(sorted),
        "model": st.just("heedmap-tiny") | texts,
        "device": st.sampled_from(["cpu", "cuda", "mps"]),
        "dtype": st.sampled_from(["float32", "float16", "bfloat16"]),
    }
)
boxes = st.lists(st.floats(-1e4, 1e4) | st.integers(0, 999), min_size=4, max_size=4)


def split(command: str) -> list[str]:
    """The words of a command, as bash reads them."""
    if "$'" not in command:
        return shlex.split(command)
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.stdout.decode().split("\0")[:-1]


def parsed(command: str) -> dict[str, Any]:
    """What the command line makes of a command."""
    _, verb, *arguments = split(command)
    found: Any = typer.main.get_command(cli.app)
    return found.commands[verb].make_context(verb, arguments).params


def assert_drawn_alike(params: dict[str, Any], settings: dict[str, Any]) -> None:
    own = {"steps": 25, "guidance": 4.0, "size": [128, 128]}
    own = own if settings["model"] == "heedmap-tiny" else {}
    for name in ("seed", "negative"):
        assert params[name] == settings[name]
    for name in ("steps", "guidance"):
        assert (own[name] if params[name] is None else params[name]) == settings[name]
    assert list(own["size"] if params["size"] is None else params["size"]) == settings["size"]
    assert sorted(params["keep"]) == settings["keep"]
    assert (params["model"] or "heedmap-tiny") == settings["model"]
    assert params["device"] == settings["device"]
    usual = "float32" if settings["device"] == "cpu" else "float16"
    assert (usual if params["dtype"] == "auto" else params["dtype"]) == settings["dtype"]


ODD = {
    "guidance": 7.123456789012345, "negative": "--seed", "keep": [], "device": "cpu",
    "dtype": "float16",
}  # fmt: skip


@given(texts, drawn, st.lists(st.tuples(words, boxes), max_size=3))
@example("-x", {**EMBEDDED, **ODD}, [("a=b", [0, 0, 1, 2])])
@settings(max_examples=150)
def test_the_command_of_a_run_reads_back_as_its_settings(prompt, about, confined):
    edits = [
        {"kind": "confine", "word": word, "where": box, "strength": 3.0, "start": 0.0, "end": 0.6,
         "along": None, "tail": True}
        for word, box in confined
    ]  # fmt: skip
    ways = repeat_run(settings_of(prompt=prompt, **about, edits=edits))
    params = parsed(ways[0][1])
    assert params["prompt"] == prompt
    assert_drawn_alike(params, about)
    assert [(word, list(box)) for word, box in params["confine"] or ()] == confined
    assert (params["count"], params["out"]) == (1, None)
    assert ways[0][2] == ""
    compile(ways[1][1], "repeat", "exec")
    assert shlex.split(ways[2][1]) == ["heedmap", "repeat", "RUN"]


asked_of_an_edit = st.fixed_dictionaries(
    {
        "source": texts,
        "kind": st.sampled_from(["replace", "refine"]),
        "kind_asked": st.sampled_from([None, "replace", "refine"]),
        "cross": windows,
        "self": windows,
        "windows": st.dictionaries(words, windows, max_size=3),
        "renormalize": st.booleans(),
        "only": st.none() | texts,
        "protect": st.lists(texts, max_size=3),
        "threshold": fractions,
        "blend_from": fractions,
        "self_cells": st.just(1024),
    }
)


@given(texts, drawn, asked_of_an_edit)
@settings(max_examples=150)
def test_the_command_of_an_edit_reads_back_as_its_settings(prompt, about, edit):
    settings = settings_of(prompt=prompt, **about, edit=edit, batch_place=[1, 2])
    ways = repeat_edit(settings)
    params = parsed(ways[0][1])
    assert (params["source"], params["targets"]) == (edit["source"], [prompt])
    assert_drawn_alike(params, about)
    assert list(params["cross"]) == edit["cross"] and list(params["self_attention"]) == edit["self"]
    assert {word: list(window) for word, window in params["words"] or ()} == edit["windows"]
    assert params["renormalize"] == edit["renormalize"]
    assert {"auto": None}.get(params["kind"], params["kind"]) == edit["kind_asked"]
    assert params["only"] == edit["only"]
    assert list(params["protect"] or ()) == edit["protect"]
    for name, usual in (("threshold", 0.25), ("blend_from", 0.2)):
        expected = edit[name] if edit["only"] else usual
        assert (usual if params[name] is None else params[name]) == expected
    assert ways[0][2] == ""
    compile(ways[1][1], "repeat", "exec")


def test_the_python_of_a_run_is_the_run_again(tmp_path):
    """Run as it stands, with all that Python can say."""
    pipe = heedmap.load(device="cpu")
    pipe.set_progress_bar_config(disable=True)
    edits = [heedmap.Reweight("red", 2), heedmap.Confine("house", (0, 0, 64, 128), tail=False)]
    run = heedmap.generate(
        pipe, "a red house", seed=5, steps=2, edits=edits, keep=["step"], negative="",
        guidance_rescale=0.3, callback_on_step_end_tensor_inputs=["latents"],
    )  # fmt: skip
    _, (_, code, left), _ = repeat_run(run.settings)
    assert left == ""
    names: dict[str, Any] = {}
    exec(code, names)
    assert np.array_equal(np.asarray(names["run"].image), np.asarray(run.image))
    assert names["run"].settings == run.settings


def test_a_model_without_a_name_is_told_to_be_saved(random_model):
    run = heedmap.generate(random_model, "a red house", seed=5, steps=2)
    kind = type(random_model).__name__
    assert run.settings.model == kind
    (_, command, said), (_, code, left), (_, again, beside) = repeat_run(run.settings)
    assert parsed(command)["model"] == "MODEL" and again == "heedmap repeat RUN --model MODEL"
    for sentence in (said, beside):
        assert sentence.endswith("MODEL is a folder to which pipe.save_pretrained wrote the model: "
                                 "it had no name.")  # fmt: skip
    assert kind not in command + code + again and left == ""
    names: dict[str, Any] = {"pipe": random_model}
    exec(code, names)
    assert names["run"].image.tobytes() == run.image.tobytes()


def test_what_no_option_says_is_named_with_the_verb_that_does():
    pipe = heedmap.load(device="cpu")
    own = {"prompt": "a", **to_json(describe(pipe)), **EMBEDDED}
    assert repeat_run(settings_of(**own))[0][2] == repeat_run(settings_of(**own))[1][2] == ""
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)
    other = own | to_json(describe(pipe))
    for way in repeat_run(settings_of(**other))[:2]:
        assert "the scheduler (DPMSolverMultistepScheduler)" in way[2]
    changed = own | {"loras": [{"name": "x"}], "batch_place": [0, 3], "attention": ["Sliced"]}
    for way in repeat_run(settings_of(**changed))[:2]:
        for part in ("the LoRAs", "the batch of 3 pictures", "the attention processors"):
            assert part in way[2]
    mask = {"kind": "confine", "word": "a", "where": {"mask": [8, 8], "packed": "x" * 500}}
    assert "edits" in repeat_run(settings_of(**own, edits=[mask]))[1][2]


def test_the_embedded_models_own_scheduler_set_otherwise_is_named_too():
    pipe = heedmap.load(device="cpu")
    pipe.scheduler = type(pipe.scheduler).from_config(
        pipe.scheduler.config, prediction_type="sample"
    )
    other = {"prompt": "a", **to_json(describe(pipe)), **EMBEDDED}
    for way in repeat_run(settings_of(**other))[:2]:
        assert f"the scheduler ({type(pipe.scheduler).__name__})" in way[2]


def test_adapters_are_named_and_a_size_that_nobody_chose_is_not():
    about = {"model": "org/model", "size": [512, 384]}
    for more, said in (({}, True), ({"defaults": {"size": "the model"}}, False)):
        command, python, _ = repeat_run(settings_of(**about, **more))
        assert ("--size 512x384" in command[1]) is ("size=(512, 384)" in python[1]) is said
        assert command[2] == python[2] == ""
    for way in repeat_run(settings_of(**about, adapters={"ip": "x"}))[:2]:
        assert "the adapters" in way[2]


def test_where_run_is_named_it_is_said_what_it_is():
    """Beside whatever else is said of a picture that is looked at again."""
    looked = {**EMBEDDED, "guidance": 1.0, "located": {"size": [300, 200], "sha256": "0" * 64}}
    for more in ({}, {"arguments": {"eta": 0.5}}, {"loras": [{"name": "x"}]}):
        for _, text, said in repeat_run(settings_of(**looked, **more)):
            assert "RUN" in text and said.count("RUN is the folder that this page is in.") == 1


def test_the_bits_of_a_mask_are_not_shown():
    where = {"mask": [8, 8], "packed": "Zm9v" * 99}
    run = noting(small(), edits=[{"kind": "confine", "word": "a", "where": where}])
    assert "Zm9v" not in explorer.page(run)


EVIL = [
    "a house\x15touch PASTED #", "a\x1b[201~touch PASTED\n", "a\rtouch PASTED", "a\x03\x04\x7fb",
    "a\x85\x9bb", "it's \\ a\ttab", "\u202ebidi\u2066", "$(touch PASTED)", "'; touch PASTED; '",
]  # fmt: skip


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("field", ["prompt", "negative", "model"])
def test_what_is_pasted_holds_no_sign_that_a_terminal_acts_upon(tmp_path, monkeypatch, text, field):
    """Of a stranger's run; and bash reads back what the settings say."""
    settings = settings_of(**{"prompt": "a house", field: text})
    for command in (repeat_run(settings)[0][1], repeat_run(settings)[1][1].replace("\n", "")):
        assert command.isprintable()
    monkeypatch.chdir(tmp_path)
    assert text in split(repeat_run(settings)[0][1])
    assert not list(tmp_path.iterdir())
    namespace: dict = {}
    (call,) = [line for line in repeat_run(settings)[1][1].splitlines() if line.startswith("run")]
    exec(call.replace("hm.generate", "dict").replace("pipe, ", "prompt=", 1), namespace)
    if field != "model":
        assert namespace["run"][field] == text


# --- Python that is Python, whatever the settings say -----------------------------------------

ODD_NAMES = (
    *("seed", "pipe", "prompt", "source", "target", "steps", "edits", "words", "generator"),
    *("num_inference_steps", "limit", "progress", "__debug__", "None", "class", "a b", "a-b", ""),
    *("1a", "\uff53eed", "\ufb01", "é", "x=1, y", "*", "\n", "a" * 3000),
)
ODD_EDITS: tuple[Any, ...] = (
    *({"kind": "confine", "word": word, "where": [0, 0, 8, 8]} for word in (None, 3, [], {"a": 1})),
    *(
        {"kind": "confine", "word": "a", "where": where}
        for where in (None, [], [0, 0, 8], [0] * 5, ["0"] * 4, [None] * 4, [True] * 4, "box", {})
    ),
    *(
        {"kind": "confine", "word": "a", "where": [0, 0, 8, 8], **more}
        for more in (
            {"strength": None}, {"strength": "3"}, {"start": []}, {"end": float("nan")},
            {"along": "red"}, {"along": [3]}, {"along": {}}, {"tail": None}, {"tail": 0},
        )
    ),
    *({"kind": "reweight", "word": "a", "weight": w} for w in (None, "2", [], float("inf"), True)),
    {"kind": "reweight", "word": "a"}, {"kind": "reweight", "word": None, "weight": 2},
    {"kind": "x"}, {"kind": None}, {}, [], None, 3, "Confine",
)  # fmt: skip


def run_python(code: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Run what a page shows: what it called, with what, in place of a model's minutes."""
    called: list[Any] = []

    class Module:
        Confine, Reweight = heedmap.Confine, heedmap.Reweight

        def load(self, *given, **named):
            return "the pipe"

        def generate(self, *given, **named):
            called.append(("generate", given, named))

        def edit(self, *given, **named):
            called.append(("edit", given, named))

    body = code.removeprefix("import heedmap as hm\n")
    assert body != code
    exec(body, {"hm": Module()})
    return called[0]


@pytest.mark.parametrize("name", ODD_NAMES, ids=repr)
@pytest.mark.parametrize("edit", [None, {"source": "a cat", "cross": [0, 0.5], "self": [0, 0.4]}])
def test_arguments_of_odd_names_are_left_out_and_told(name, edit):
    more = {"edit": edit} if edit else {}
    noted = settings_of(negative=None, seed=3, arguments={"eta": 0.5, name: 7}, **more)
    _, (_, code, left), _ = repeat_run(noted)
    verb, given, named = run_python(code)
    assert (verb, given[0]) == ("edit" if edit else "generate", "the pipe")
    if name == "a" * 3000:
        assert named.pop(name) == 7
    else:
        assert "what was passed as an object" in left
    assert (named["seed"], named["eta"]) == (3, 0.5)
    assert named.keys() <= {"seed", "steps", "eta", "cross", "self_attention"}


def test_names_that_are_taken_are_those_of_the_verbs():
    taken = set(inspect.signature(heedmap.generate).parameters)
    taken |= set(inspect.signature(heedmap.edit).parameters) | set(options.OWN_NAMES)
    assert taken | {"__debug__"} == spelling.TAKEN


VALUES = [
    {"object": "float"}, {"object": "float", "value": "x"}, {"object": "float", "value": [1]},
    {"object": "float", "value": "1e999"}, {"object": "tuple"}, {"object": "tuple", "items": 3},
    {"object": None}, {"object": "tuple", "items": [{"object": "picture"}]}, "<Tensor>",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_that_python_cannot_say_are_told(value):
    _, (_, code, left), _ = repeat_run(settings_of(arguments={"eta": value}))
    assert "eta" not in run_python(code)[2] and "what was passed as an object" in left


MASKED = {"kind": "confine", "word": "a", "where": {"mask": [8, 8], "packed": "eJz7DwABAQD/"}}


@pytest.mark.parametrize("odd", [{"kind": "rule", "name": "f"}, {"kind": "rule"}, MASKED], ids=repr)
def test_edits_that_cannot_be_written_are_not_offered(odd):
    fine = {"kind": "reweight", "word": "a", "weight": 2.0}
    (_, command, more), (_, code, left), _ = repeat_run(settings_of(edits=[fine, odd]))
    assert "edits" not in run_python(code)[2] and "the edits of the attention" in left
    assert "--confine" not in command and "edits of the attention" in more


def test_edits_are_those_that_were_asked_for():
    asked = [
        heedmap.Reweight('r"ed', -2, renormalize=True), heedmap.Confine("a", (0.5, 0, 8, 8)),
        heedmap.Confine("b\n", (0, 0, 8, 8), strength=1e-5, start=0.1, end=1, along=["r"]),
        heedmap.Confine("c", (0, 0, 8, 8), along=[], tail=False),
    ]  # fmt: skip
    about = [edit.about() for edit in asked]
    _, (_, code, left), _ = repeat_run(settings_of(edits=about))
    found = run_python(code)[2]["edits"]
    assert [edit.about() for edit in found] == about and left == ""


WRITABLE = [odd for odd in ODD_EDITS if not re.search("NaN|Infinity", json.dumps(odd))]


@pytest.mark.parametrize("odd", WRITABLE, ids=repr)
def test_such_edits_are_one_sentence_where_a_folder_has_them(tmp_path, odd):
    folder = made_run().save(tmp_path / "x", overlays=False)
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    about["settings"]["edits"] = [odd]
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(RunError, match=r"run\.json"):
        Run.load(folder)


asked_of_a_grid = st.fixed_dictionaries(
    {
        "source": texts,
        "targets": st.none() | st.lists(texts, min_size=1, max_size=3),
        "weights": st.dictionaries(
            words.filter(lambda word: "=" not in word),
            st.lists(st.floats(-9, 9), min_size=1, max_size=4),
            max_size=2,
        ),
        "cross": st.lists(windows, min_size=1, max_size=3),
        "self_attention": st.lists(windows, min_size=1, max_size=3),
        "kind": st.sampled_from([None, "replace", "refine"]),
        "words": st.dictionaries(words, windows, max_size=2),
        "only": st.none() | texts,
        "renormalize": st.booleans(),
    }
)


@given(drawn, asked_of_a_grid, st.integers(0, 2**40), st.integers(1, 5))
@settings(max_examples=100)
def test_the_command_of_a_grid_reads_back_as_what_was_asked(about, grid, seed, count):
    told = msgspec.convert({**grid, "seeds": [*range(seed, seed + count)]}, GridReport)
    ways = repeat_grid(told, settings_of(prompt="a", **{**about, "seed": 5}))
    params = parsed(ways[0][1])
    assert (params["source"], params["targets"] or None) == (grid["source"], grid["targets"])
    assert dict(params["weight"] or ()) == grid["weights"]
    assert [list(window) for window in params["cross"]] == grid["cross"]
    assert [list(window) for window in params["self_attention"]] == grid["self_attention"]
    assert (params["seed"], params["count"]) == (seed, count)
    assert {word: list(window) for word, window in params["words"] or ()} == grid["words"]
    assert (params["only"], params["renormalize"]) == (grid["only"], grid["renormalize"])
    assert {"auto": None}.get(params["kind"], params["kind"]) == grid["kind"]
    assert_drawn_alike(params | {"seed": 5}, {**about, "seed": 5})
    assert ways[0][2] == ""
    compile(ways[1][1], "repeat", "exec")


def test_seeds_that_do_not_follow_one_another_are_named():
    told = msgspec.convert({"source": "a", "seeds": [7, 3]}, GridReport)
    command, python, _ = repeat_grid(told, settings_of(prompt="a"))
    assert "the seeds (7, 3)" in command[2] and "--seed" not in command[1]
    assert "seeds=[7, 3]" in python[1] and python[2] == ""


def test_a_grid_of_an_older_version_has_no_seeds():
    ways = repeat_grid(GridReport(source="a cat", weights={"cat": (1.0, 2.0)}), settings_of(seed=3))
    assert "--seed" not in ways[0][1] and "seeds=" not in ways[1][1]
    assert "--weight" in ways[0][1]


def test_the_python_of_a_grid_is_the_grid_again(random_model):
    made = editing.grid(
        random_model, "a red house", weights={"red": [0, 2.5]}, cross=[0.5, (0.1, 0.8)],
        seeds=[3, 9], steps=2,
    )  # fmt: skip
    settings = made.cells[0].pair.edited.settings
    code = repeat_grid(made.about, settings)[1][1].splitlines()[-1]
    names: dict[str, Any] = {"hm": heedmap, "pipe": random_model}
    exec(code, names)
    for one, other in zip(names["grid"].cells, made.cells, strict=True):
        assert one.pair.edited.image.tobytes() == other.pair.edited.image.tobytes()
        assert one.place() == other.place()


def test_a_grid_of_self_attention_of_ones_own_has_no_option():
    """Of an edit and of a grid; the usual one need not be said."""
    for cells in (256, options.EditOptions.self_cells):
        own = cells != options.EditOptions.self_cells
        edit = {"source": "a", "cross": [0, 0.8], "self": [0, 0.4], "self_cells": cells}
        about = settings_of(**EMBEDDED, edit=edit, batch_place=[1, 2])
        grid = GridReport(source="a", targets=("b",), self_cells=cells)
        for command, python, _ in (repeat_edit(about), repeat_grid(grid, about)):
            assert ("the largest grid of self-attention" in command[2]) is own
            assert ("self_cells=256" in python[1]) is own and "cells" not in command[1]


def test_a_picture_is_looked_at_again():
    looked = {**EMBEDDED, "guidance": 1.0}  # as locate looks
    about = settings_of(**looked, located={"size": [300, 200], "sha256": "0" * 64})
    (_, command, left), (_, code, beside), (_, again, _) = repeat_run(about)
    assert again == "heedmap repeat RUN"
    assert split(command)[:4] == ["heedmap", "locate", "RUN/image.png", about.prompt]
    assert "--guidance" not in command and f"--seed {about.seed}" in command
    assert f'hm.locate(pipe, "RUN/image.png", "{about.prompt}", ' in code
    assert "guidance" not in code
    folder = "RUN is the folder that this page is in."
    assert left == beside == folder
    sought = msgspec.structs.replace(about, concepts=("sky", "blue tree"))
    command, code = (repeat_run(sought)[i][1] for i in (0, 1))
    assert split(command)[-4:] == ["--concept", "sky", "--concept", "blue tree"]
    assert "concepts=['sky', 'blue tree']" in code.replace('"', "'")
    usual = msgspec.structs.replace(
        about, steps=options.LocateOptions.steps, keep=("layer", "step")
    )
    command, code = (repeat_run(usual)[i][1] for i in (0, 1))
    assert "--steps" not in command and "steps=" not in code
    assert "--keep layer,step" in command and "keep=['layer', 'step']" in code.replace('"', "'")
    other = msgspec.structs.replace(
        usual, steps=25, tokens="all"
    )  # as many as the model draws with
    assert "--steps 25" in repeat_run(other)[0][1]
    assert "steps=25" in repeat_run(other)[1][1] and 'tokens="all"' in repeat_run(other)[1][1]


def test_a_picture_that_was_edited_is_named_as_it_lies_there():
    noted = {"size": [300, 200], "sha256": "x"}
    edit = {"source": "a house", "cross": [0, 0.8], "self": [0, 0.4]}
    about = settings_of(given=noted, batch_place=[1, 2], edit=edit)
    command, python, whole = repeat_edit(about)
    assert "--image given.png" in command[1] and "--size" not in whole[1]
    assert "image='given.png'" in python[1] or 'image="given.png"' in python[1]
    for way in (command, python):
        assert "given.png is your picture: it lies in the folder of the source" in way[2]
    (only,) = repeat_run(settings_of(given=noted, batch_place=[0, 2]))
    assert only[1] == "heedmap repeat RUN"
    grid = repeat_grid(GridReport(source="a house", targets=("a sea",)), about)
    assert "--image given.png" in grid[0][1]
