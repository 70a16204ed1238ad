"""The branches of a call: told apart by their text states, and whole, or refused in time."""

import numpy as np
import pytest
import torch
from diffusers.hooks import HookRegistry, ModelHook

import heedmap as hm
from families.checking import WHOLE, denoiser, paint
from heedmap.errors import NothingRecordedError, TraceError
from heedmap.recording.tracing import trace

pytestmark = pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning")
PROMPT, NEGATIVE = "a red house", "at night"
BOTH = ("conditional", "negative")
SMALL = {"width": 64, "height": 64}
# By family the arguments of a guided call, and of its method that encodes the prompt.
CALLS = {
    "sd1": ({"guidance_scale": 5.0}, ("cpu", 1, True)),
    "sigma": ({"guidance_scale": 5.0, "use_resolution_binning": False}, ()),
    "flux": ({"true_cfg_scale": 3.0, "max_sequence_length": 12}, ()),
    "qwen": ({"true_cfg_scale": 3.0, "max_sequence_length": 12}, ()),
    "chroma": ({"guidance_scale": 3.0, "max_sequence_length": 12}, ()),
    "cogview4": ({"guidance_scale": 3.0, "max_sequence_length": 48}, ()),
}
EACH = pytest.mark.parametrize("family", CALLS)
APART = [family for family in CALLS if family not in ("sd1", "sigma")]


def call(pipe, family, **more):
    given = {"prompt": PROMPT, "negative_prompt": NEGATIVE, **SMALL, **CALLS[family][0], **more}
    return paint(pipe, **{name: value for name, value in given.items() if value is not None})


def encode(pipe, family, prompt=PROMPT, **more):
    limit = {n: value for n, value in CALLS[family][0].items() if n == "max_sequence_length"}
    return pipe.encode_prompt(prompt, *CALLS[family][1], **limit, **more)


def at_step(pipe, step, act):
    """The arguments with which a pipeline calls `act` after this step."""
    handle = []

    def stepped(*args, **kwargs):
        handle.append(1)
        result = original(*args, **kwargs)
        if len(handle) == step:
            act()
        return result

    original, pipe.scheduler.step = pipe.scheduler.step, stepped


# --- a text that is encoded while the call runs ---


@EACH
def test_a_prompt_that_is_encoded_again_during_its_call_changes_nothing(load, family):
    edits = [hm.Confine("red", (0, 0, 32, 32), start=0.25, end=0.75)]
    found = []
    for text in (None, PROMPT, "the cat"):  # another text that the model is not given, too
        pipe = load(family)
        if text is not None:
            at_step(pipe, 2, lambda: encode(pipe, family, text))  # noqa: B023
        with trace(pipe, WHOLE, branches=BOTH, edits=edits) as recorder:
            image = call(pipe, family, steps=4)
        found.append((image, recorder))
    bare, alone = found[0]
    for image, recorder in found[1:]:
        assert np.array_equal(bare, image) and recorder.steps == 4
        assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT]
        for name in ("recordings", "negative_recordings"):
            (expected,), (recording,) = getattr(alone, name), getattr(recorder, name)
            assert recording.timesteps == expected.timesteps
            assert all(map(np.array_equal, recording.arrays, expected.arrays))
        assert recorder.controller.acted == alone.controller.acted


def test_a_callback_that_encodes_the_prompt_again_keeps_all_steps_of_a_run(load):
    pipe = load("sd1")

    def again(pipe, step, timestep, given):
        states, negative = pipe.encode_prompt(PROMPT, "cpu", 1, True)
        return {"prompt_embeds": torch.cat([negative, states])}

    more = {"seed": 1, "steps": 4, "size": (64, 64), "keep": ["step"]}
    run = hm.generate(pipe, PROMPT, callback_on_step_end=again, **more)
    plain = hm.generate(pipe, PROMPT, **more)
    assert np.array_equal(run.image, plain.image) and run.settings.prompt == PROMPT
    assert run.maps.recording.timesteps == plain.maps.recording.timesteps


@EACH
@pytest.mark.parametrize("which", BOTH)
def test_text_that_changes_during_a_call_is_refused(load, family, which):
    """A prompt schedule; also of a negative prompt, where its branch is recorded."""
    pipe = load(family)

    def change():
        other.append(1)

    other: list[int] = []
    at_step(pipe, 2, change)
    model = denoiser(pipe)
    calls: list[int] = []

    def given(_, args, kwargs):
        states = kwargs["encoder_hidden_states"]
        calls.append(1)
        negative_pass = family in APART and len(calls) % 2 == 0
        row = slice(0, 1) if which == "negative" else slice(-1, None)
        if other and (family not in APART or negative_pass == (which == "negative")):
            states = states.clone()
            states[row] += 1
        return args, {**kwargs, "encoder_hidden_states": states}

    model.register_forward_pre_hook(given, with_kwargs=True)
    with pytest.raises(TraceError), trace(pipe, branches=BOTH):
        call(pipe, family, steps=4)
    assert len(other) == 1


# --- what was recorded at the end ---


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("keep", [(), ("layer",)])
def test_a_branch_whose_layers_are_all_skipped_has_no_maps(load, keep):
    """A cache that returns its last output for the negative prompt."""
    pipe, outputs = load("flux"), []

    class Cache(ModelHook):
        def new_forward(self, module, *args, **kwargs):
            is_negative = len(outputs) % 2
            original = self.fn_ref.original_forward
            outputs.append(outputs[-1] if is_negative else original(*args, **kwargs))
            return outputs[-1]

    registry = HookRegistry.check_if_exists_or_initialize(pipe.transformer)
    registry.register_hook(Cache(), "cache_of_mine")
    with trace(pipe, keep, branches=BOTH) as recorder:
        call(pipe, "flux")
    assert recorder.maps[0]["house"].values.max() > 0
    with pytest.raises(NothingRecordedError):
        _ = recorder.negative_maps


@pytest.mark.parametrize("family", ["sd1", "chroma"])
def test_a_branch_that_ran_at_a_part_of_the_steps_is_reported(load, family):
    """Guidance that a callback switches off; the maps are exact means over the steps before."""
    pipe = load(family)

    def cut(pipe, step, timestep, given):
        if step == 1:
            pipe._guidance_scale = 0.0
            given["prompt_embeds"] = given["prompt_embeds"][-1:]
        return given

    more = {"callback_on_step_end": cut, "callback_on_step_end_tensor_inputs": ["prompt_embeds"]}
    with (
        pytest.warns(hm.HeedmapWarning, match="negative branch .* 2 of 4"),
        trace(pipe, {"step"}, branches=BOTH) as recorder,
    ):
        call(pipe, family, steps=4, **more)
    assert len(recorder.recordings[0].timesteps) == 4
    assert len(recorder.negative_recordings[0].timesteps) == 2


def test_edits_of_a_trace_that_records_the_negative_branch_alone(load):
    pipe = load("sd1")
    with trace(pipe, branches=["negative"], edits=[hm.Reweight("red", 2)]) as recorder:
        call(pipe, "sd1")
    assert recorder.negative_maps[0]["night"].values.max() > 0
    assert recorder.controller.acted
