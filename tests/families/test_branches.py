"""The branches of a call: told apart by their text states, and whole, or refused in time."""

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from diffusers.hooks import HookRegistry, ModelHook

import heedmap as hm
from families.checking import TOLERANCE, WHOLE, denoiser, paint, reference
from heedmap.errors import NothingRecordedError, TraceError
from heedmap.recording.tracing import trace

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
UNGUIDED = {
    family: {name: 1.0 for name in arguments if name.endswith("scale")}
    for family, (arguments, _) in CALLS.items()
}
EMBEDS = {  # where the states and what goes with them are in what is encoded
    "flux": {"prompt_embeds": 0, "pooled_prompt_embeds": 1},
    "qwen": {"prompt_embeds": 0, "prompt_embeds_mask": 1},
    "chroma": {"prompt_embeds": 0, "prompt_attention_mask": 2},
    "cogview4": {"prompt_embeds": 0},
}


def call(pipe, family, **more):
    given = {"prompt": PROMPT, "negative_prompt": NEGATIVE, **SMALL, **CALLS[family][0], **more}
    return paint(pipe, **{name: value for name, value in given.items() if value is not None})


@torch.no_grad()
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


@torch.no_grad()
def draw_by_hand(pipe, prompts, steps=4):
    """Draw an image in a loop that encodes one of the prompts before each step, if it is a text."""
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(1, 4, 16, 16, generator=generator)
    pipe.scheduler.set_timesteps(steps)
    for timestep, prompt in zip(pipe.scheduler.timesteps, prompts, strict=True):
        if prompt is not None:
            states = pipe.encode_prompt(prompt, "cpu", 1, False)[0]
        noise = pipe.unet(latents, timestep, encoder_hidden_states=states).sample
        latents = pipe.scheduler.step(noise, timestep, latents).prev_sample
    return latents


def test_a_loop_that_encodes_its_prompt_before_each_step_is_one_run(load):
    edits = [hm.Confine("red", (0, 0, 64, 128), end=0.5)]
    found = []
    for prompts in ([PROMPT, None, None, None], [PROMPT] * 4):
        pipe = load("sd1")
        with trace(pipe, WHOLE, edits=edits) as recorder:
            latents = draw_by_hand(pipe, prompts)
        found.append((latents, recorder.recordings))
    (once, (expected,)), (again, (recording,)) = found
    assert torch.equal(once, again) and recording.timesteps == expected.timesteps
    for array, other in zip(recording.arrays, expected.arrays, strict=True):
        assert np.array_equal(array, other)
    pipe = load("sd1")  # a loop that begins again is another image
    with trace(pipe, WHOLE) as recorder:
        draw_by_hand(pipe, [PROMPT] * 4)
        draw_by_hand(pipe, [PROMPT] * 4)
    assert [len(one.timesteps) for one in recorder.recordings] == [4, 4]


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

    def again(pipe, step, timestep, given):  # after the last step, too
        states, negative = pipe.encode_prompt(PROMPT, "cpu", 1, True)
        return {"prompt_embeds": torch.cat([negative, states])}

    more = {"seed": 1, "steps": 4, "size": (64, 64), "keep": ["step"]}
    run = hm.generate(pipe, PROMPT, callback_on_step_end=again, **more)
    plain = hm.generate(pipe, PROMPT, **more)
    assert np.array_equal(run.image, plain.image) and run.settings.prompt == PROMPT
    assert run.maps.recording.timesteps == plain.maps.recording.timesteps


class Stages(StableDiffusionPipeline):
    """One call that draws two images, one after the other."""

    @torch.no_grad()
    def __call__(self, prompts):
        for prompt in prompts:
            states, _ = self.encode_prompt(prompt, "cpu", 1, False)
            self.scheduler.set_timesteps(3)
            latents = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
            for t in self.scheduler.timesteps:
                output = self.unet(latents, t, states).sample
                latents = self.scheduler.step(output, t, latents).prev_sample
        self.maybe_free_model_hooks()


def test_a_call_may_encode_and_draw_one_prompt_after_another(load):
    pipe, found = load("sd1", Stages), []
    for prompts in ([PROMPT, "the cat"], [PROMPT], ["the cat"]):
        with trace(pipe, WHOLE) as recorder:
            pipe(prompts)
        found.append(recorder.recordings)
    assert [recording.table.prompt for recording in found[0]] == [PROMPT, "the cat"]
    for recording, (alone,) in zip(found[0], found[1:], strict=True):
        assert all(map(np.array_equal, recording.arrays, alone.arrays))


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


@torch.no_grad()
def test_steps_at_which_the_model_does_not_run_are_reported(load):
    """A loop of the user's own that takes the model's last output again."""
    pipe = load("sd1")
    with trace(pipe, {"step"}) as recorder:
        states, _ = pipe.encode_prompt(PROMPT, "cpu", 1, False)
        pipe.scheduler.set_timesteps(4)
        latents, output = torch.randn(1, 4, 8, 8), torch.zeros(())
        for number, t in enumerate(pipe.scheduler.timesteps):
            if number % 2 == 0:
                output = pipe.unet(latents, t, states).sample
            latents = pipe.scheduler.step(output, t, latents).prev_sample
        with pytest.warns(hm.HeedmapWarning, match="2 of 4 steps"):
            pipe.maybe_free_model_hooks()
    assert len(recorder.recordings[0].timesteps) == 2


def test_edits_of_a_trace_that_records_the_negative_branch_alone(load):
    pipe = load("sd1")
    with trace(pipe, branches=["negative"], edits=[hm.Reweight("red", 2)]) as recorder:
        call(pipe, "sd1")
    assert recorder.negative_maps[0]["night"].values.max() > 0
    assert recorder.controller.acted


# --- which branch a pass is of ---


def words(count, letters="bcdefghij"):
    return " ".join(letters[n % len(letters)] for n in range(count))


LENGTHS = [(count, other) for count in (15, 16, 17) for other in (1, 17)]


@pytest.mark.parametrize(
    ("family", "count", "other"),
    [*(("cogview4", *pair) for pair in LENGTHS), *((family, 17, 1) for family in APART[:-1])],
)
def test_branches_of_unlike_length_are_told_apart(load, family, count, other):
    """On both sides of the multiples of 16 tokens to which CogView 4 pads each by itself."""
    pipe, negative = load(family), words(other, "klm")
    more = {"prompt": words(count), "negative_prompt": negative, "max_sequence_length": 48}
    with reference(pipe) as scores:
        bare = call(pipe, family, **more)
    for branches in (BOTH, ("conditional",)):  # labelled negatives, and those by position
        with trace(pipe, WHOLE, tokens="all", branches=branches) as recorder:
            assert np.array_equal(call(pipe, family, **more), bare)
        assert [len(maps.words) for maps in recorder.maps] == [count]
        for branch in branches:
            recordings = recorder.recordings
            if branch == "negative":
                recordings = recorder.negative_recordings
                assert [len(maps.words) for maps in recorder.negative_maps] == [other]
            for layer, array in zip(recordings[0].layers, recordings[0].arrays, strict=True):
                every = scores[layer.name][branch == "negative" :: 2]
                expected = np.stack([p[0] for p in every])
                np.testing.assert_allclose(array, expected, atol=TOLERANCE)


@pytest.mark.parametrize("family", APART)
def test_embeds_of_both_prompts_are_told_apart_by_their_states(load, family):
    """Of as many tokens each, so that those without labels look alike."""
    pipe = load(family)
    given = {}
    for side, text in (("", "a red house"), ("negative_", "a big house")):
        result = encode(pipe, family, text)
        given |= {f"{side}{name}": result[place] for name, place in EMBEDS[family].items()}
    embeds = {"prompt": None, "negative_prompt": None, **given}
    found = []
    for arguments in ({"negative_prompt": "a big house"}, embeds):
        with trace(pipe, WHOLE, tokens="all", branches=BOTH) as recorder:
            image = call(pipe, family, **arguments)
        both = (recorder.recordings[0], recorder.negative_recordings[0])
        found.append([image, *(array for one in both for array in one.arrays)])
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


ALIKE = {  # texts that differ past the limit alone, and none
    "equal": (PROMPT, PROMPT),
    "empty": ("", ""),
    "past the limit": (f"{words(60)} cat", f"{words(60)} dog"),
}


@pytest.mark.filterwarnings("ignore:.*does not read|.*reads only|.*past")
@pytest.mark.parametrize("family", APART)
@pytest.mark.parametrize("texts", ALIKE.values(), ids=ALIKE)
def test_branches_that_read_the_same_are_refused_before_the_first_pass(load, family, texts):
    pipe, ran = load(family), []
    next(denoiser(pipe).children()).register_forward_hook(lambda *_: ran.append(1))
    prompt, negative = texts
    with pytest.raises(TraceError), trace(pipe):
        call(pipe, family, prompt=prompt, negative_prompt=negative)
    assert not ran
    with trace(pipe) as recorder:  # as the error advises
        call(pipe, family, prompt=prompt, negative_prompt=negative, **UNGUIDED[family])
    assert len(recorder.maps) == 1
