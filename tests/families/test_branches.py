"""The branches and the passes of a call: the picture's own, told apart, or refused in time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from diffusers import (
    CycleDiffusionPipeline,
    DDIMScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionSAGPipeline,
    StableDiffusionXLInpaintPipeline,
)
from diffusers.hooks import HookRegistry, ModelHook
from oracle import denoiser, reference

import heedmap as hm
from families.checking import (
    BOTH,
    WHOLE,
    after_steps,
    check,
    check_family,
    compare,
    count_passes,
    expect,
    paint,
)
from families.models import ALONE, APART, GUIDED, TABLE, mask, picture
from heedmap.errors import NothingRecordedError, TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
SMALL = {"width": 64, "height": 96}
SPLIT = [name for name, row in TABLE.items() if row.layout == APART]
NEGATED = [name for name in SPLIT if name != "klein"]


def at_step(pipe, step, act):
    """Call `act` after this step of the scheduler."""
    calls, original = [], pipe.scheduler.step

    def stepped(*args, **kwargs):
        calls.append(1)
        result = original(*args, **kwargs)
        if len(calls) == step:
            act()
        return result

    pipe.scheduler.step = stepped


# --- a text that is encoded while the call runs ---


@torch.no_grad()
def draw_by_hand(pipe, prompts, steps=4):
    """Draw an image in a loop that encodes one of the prompts before each step, if it is a text."""
    latents = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(0))
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
    assert all(map(np.array_equal, recording.arrays, expected.arrays))
    pipe = load("sd1")  # a loop that begins again is another image
    with trace(pipe, WHOLE) as recorder:
        draw_by_hand(pipe, [PROMPT] * 4)
        draw_by_hand(pipe, ["the cat", None, None, None])
    assert [len(one.timesteps) for one in recorder.recordings] == [4, 4]
    assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT, "the cat"]


@pytest.mark.parametrize("family", ["sd1", "sigma", *NEGATED])
def test_a_prompt_that_is_encoded_again_during_its_call_changes_nothing(load, family):
    edits = [hm.Confine("red", (0, 0, 32, 32), start=0.25, end=0.75)]
    arguments, found = TABLE[family].arguments(), []
    options = {"device": "cpu", "num_images_per_prompt": 1}
    if family in ("sd1", "sigma", "cogview4"):
        options["do_classifier_free_guidance"] = True
    for text in (None, PROMPT, "the cat"):  # another text that the model is not given, too
        pipe = load(family)
        if text is not None:
            act = lambda: torch.no_grad()(pipe.encode_prompt)(text, **options)  # noqa: B023, E731
            at_step(pipe, 2, act)
        with trace(pipe, WHOLE, branches=BOTH, edits=edits) as recorder:
            image = paint(pipe, prompt=PROMPT, steps=4, **arguments)
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


@pytest.mark.parametrize("family", ["sd1", "sigma", *NEGATED])
@pytest.mark.parametrize("branch", BOTH)
def test_text_that_changes_during_a_call_is_refused(load, family, branch):
    """A prompt schedule; also of a negative prompt, where its branch is recorded."""
    pipe, changes, passes = load(family), [], []
    at_step(pipe, 2, lambda: changes.append(1))

    def change(_, args, kwargs):
        states = kwargs["encoder_hidden_states"]
        passes.append(1)
        is_negative = family in SPLIT and len(passes) % 2 == 0
        row = slice(0, 1) if branch == "negative" else slice(-1, None)
        if changes and (family not in SPLIT or is_negative == (branch == "negative")):
            states = states.clone()
            states[row] += 1
        return args, {**kwargs, "encoder_hidden_states": states}

    denoiser(pipe).register_forward_pre_hook(change, with_kwargs=True)
    with pytest.raises(TraceError), trace(pipe, branches=BOTH):
        paint(pipe, prompt=PROMPT, steps=4, **TABLE[family].arguments())
    assert len(changes) == 1


def test_text_states_that_a_callback_changes_in_place_are_refused(load):
    pipe = load("sd1")

    def change(pipe, step, timestep, given):
        given["prompt_embeds"].copy_(torch.randn_like(given["prompt_embeds"]))
        return given

    inputs = {"callback_on_step_end_tensor_inputs": ["prompt_embeds"]}
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, PROMPT, steps=3, callback_on_step_end=change, **inputs, **SMALL)


# --- which branch a pass is of ---

LENGTHS = [(count, other) for count in (9, 10, 11) for other in (1, 17)]  # 15 to 17 tokens


def words(count, letters="bcdefghij"):
    return " ".join(letters[n % len(letters)] for n in range(count))


@pytest.mark.parametrize(
    ("family", "count", "other"),
    [*[("cogview4", *pair) for pair in LENGTHS], ("flux", 17, 1), ("qwen", 17, 1)],
)
def test_branches_of_unlike_length_are_told_apart(load, family, count, other):
    """On both sides of the multiples of 16 tokens to which CogView 4 pads each by itself."""
    more = {"negative_prompt": words(other, "klm"), "max_sequence_length": 48}
    recorder = check_family(load(family), family, words(count), **more)
    assert [len(maps.words) for maps in recorder.maps] == [count]
    assert [len(maps.words) for maps in recorder.negative_maps] == [other]


ALIKE = {  # texts that differ past the limit alone, and none
    "equal": (PROMPT, PROMPT),
    "empty": ("", ""),
    "past the limit": (f"{words(60)} cat", f"{words(60)} dog"),
}


@pytest.mark.filterwarnings("ignore:.*does not read|.*reads only|.*past")
@pytest.mark.parametrize(
    ("family", "texts"),
    [*[(family, texts) for family in NEGATED for texts in ALIKE], ("klein", "empty")],
)
def test_branches_that_read_the_same_are_refused_before_the_first_pass(load, family, texts):
    """The two passes of a step are then in no order that is known."""
    pipe, (prompt, negative) = load(family), ALIKE[texts]
    passes = count_passes(pipe)
    more = TABLE[family].arguments()
    if family != "klein":
        more["negative_prompt"] = negative
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, prompt=prompt, **more)
    assert not passes
    more |= {name: 1.0 for name in more if name.endswith("scale")}
    with trace(pipe) as recorder:  # as the error advises
        paint(pipe, prompt=prompt, **more)
    assert len(recorder.maps) == 1


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
        paint(pipe, prompt=PROMPT, **TABLE["flux"].arguments())
    assert recorder.maps[0]["house"].values.max() > 0
    with pytest.raises(NothingRecordedError):
        _ = recorder.negative_maps


@torch.no_grad()
def test_steps_at_which_the_model_does_not_run_give_a_warning(load):
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


# --- passes that are not the picture's ---


@pytest.mark.parametrize(("guidance", "layout"), [(5.0, GUIDED), (1.0, ALONE)])
def test_self_attention_guidance_is_recorded_without_its_blurred_passes(load, guidance, layout):
    pipe = load("sd1", StableDiffusionSAGPipeline)
    more = {"sag_scale": 0.75, "guidance_scale": guidance, "height": 128, "width": 128}
    with reference(pipe) as shares:
        bare = paint(pipe, PROMPT, **more)
    # Every second pass is of the blurred latents.
    assert all(len(passes) == 4 for passes in shares.values())
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(bare, paint(pipe, PROMPT, **more))
    compare(recorder.recordings, expect(shares, [layout] * 4, [[0], [2]]), shares.near)
    call = {"seed": 1, "steps": 2, "sag_scale": 0.75, "size": (128, 128)}
    pair = hm.edit(pipe, PROMPT, "a red tree", **call)
    assert pair.report.sites == 2 * len(pair.source.maps.layers)


def test_skip_layer_guidance_records_the_usual_pass_alone(load):
    """It runs the model again in some steps, without some layers, on the prompt alone."""
    pipe = load("sd3")
    more = {"skip_guidance_layers": [1], "skip_layer_guidance_stop": 0.9, "steps": 3}
    more |= TABLE["sd3"].arguments()
    with reference(pipe) as shares:
        bare = paint(pipe, PROMPT, **more)
    with trace(pipe, WHOLE, tokens="all") as recorder:
        assert np.array_equal(paint(pipe, PROMPT, **more), bare)
    passes = [len(p) for p in shares["transformer_blocks.0.attn"]]
    assert passes == [2, 2, 1, 2, 1]
    whole = {name: [p for p in shares[name] if len(p) == 2] for name in shares}
    expected = expect(whole, [GUIDED] * 3, [[0], [1], [2]])
    compare(recorder.recordings, expected, shares.near)


@pytest.mark.parametrize("source", ["a big tree", PROMPT])
def test_the_prompt_of_cycle_diffusion_is_the_one_that_is_drawn(load, source):
    pipe = load("sd1", CycleDiffusionPipeline)
    pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    more = {"strength": 0.99, "eta": 0.1, "guidance_scale": 3.0, "image": picture(64, 64)}

    def call(prompt=PROMPT):
        generator = torch.Generator().manual_seed(1)
        return pipe(
            prompt, source_prompt=source, num_inference_steps=4, generator=generator,
            output_type="np", **more,
        ).images  # fmt: skip

    check(pipe, call, [PROMPT], ("negative source", "negative", "source", "conditional"))
    # Of a batch it reads the first two rows alone, which are not those of any one picture.
    with trace(pipe), pytest.raises(TraceError, match="2 prompts"):
        call([PROMPT, "a cat"])


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_another_call_inside_of_a_call_is_refused(load, family, same):
    """Of another pipeline on the same model, or of the pipeline itself."""
    pipe = load(family)
    other = pipe if same else type(pipe)(**pipe.components)
    other.set_progress_bar_config(disable=True)

    def again(step):
        if step == 0:
            paint(other, PROMPT)

    with pytest.raises(TraceError, match=r"pipeline|within"), trace(pipe):
        paint(pipe, PROMPT, **after_steps(pipe, again))
    with trace(pipe) as recorder:
        paint(pipe, PROMPT)
    assert len(recorder.maps) == 1


def test_a_second_thread_on_one_pipeline_is_refused_and_the_first_goes_on(load):
    pipe, errors = load("sd1"), []
    plain = hm.generate(pipe, PROMPT, seed=1, steps=3)

    def meet(step, steps):
        if step == 1:
            with ThreadPoolExecutor(1) as threads:
                other = threads.submit(hm.generate, pipe, "a cat", seed=2, steps=1)
                errors.append(other.exception())

    run = hm.generate(pipe, PROMPT, seed=1, steps=3, progress=meet)
    assert isinstance(errors[0], TraceError)
    assert np.array_equal(run.image, plain.image)
    assert np.array_equal(run.maps["red"].values, plain.maps["red"].values)


# --- calls that end early ---


def test_latents_as_output_have_maps_also_of_an_interrupted_call(load):
    """Some pipelines return before their usual end then."""
    pipe = load("sdxl", StableDiffusionXLInpaintPipeline)
    given = {"image": picture(64, 64), "mask_image": mask(64, 64), "strength": 1.0, "steps": 4}
    given |= {"height": 64, "width": 64}

    def interrupt(step):
        pipe._interrupt = step == 1

    with trace(pipe, {"step"}) as recorder:
        paint(pipe, PROMPT, **given, output_type="latent", **after_steps(pipe, interrupt))
        paint(pipe, "the cat", **given)
        paint(pipe, "a cat", **given, output_type="latent", denoising_end=0.7)
    assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT, "the cat", "a cat"]
    assert [len(one.timesteps) for one in recorder.recordings[:2]] == [2, 4]


# --- pipelines without callbacks ---


def test_progress_and_blends_need_no_callbacks_of_the_pipeline(load):
    pipe, steps, latents = load("upscaler"), [], []
    call = {"seed": 1, "steps": 3, "image": picture(32, 32)}
    run = hm.generate(
        pipe, PROMPT, progress=lambda *step: steps.append(step), preview=latents.append, **call
    )
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert [tuple(one.shape) for one in latents] == [(1, 4, 32, 32)] * 3
    assert np.array_equal(run.image, hm.generate(pipe, PROMPT, **call).image)
    pair = hm.edit(pipe, PROMPT, "a red tree", only="house->tree", **call)
    assert pair.blend is not None and pair.blend.any() and not pair.blend.all()


# --- edits count the steps and the layers of their own run ---


@pytest.mark.parametrize(
    ("family", "kind", "more", "steps"),
    [
        ("sdxl", StableDiffusionXLInpaintPipeline, {"denoising_end": 0.5}, 5),
        ("sd1", StableDiffusionImg2ImgPipeline, {"strength": 0.5}, 5),
    ],
)
def test_windows_are_of_the_steps_that_run(load, family, kind, more, steps):
    pipe, more = load(family, kind), {**more, "image": [picture(64, 64)] * 2}
    if family == "sdxl":
        more |= {"mask_image": mask(64, 64), "strength": 1.0, "size": (64, 64)}
    pair = hm.edit(
        pipe, PROMPT, "a red tree", cross_replace=0.4, self_replace=0, seed=1, steps=10, **more
    )
    ran = len(pair.source.maps.recording.timesteps)
    assert ran in (steps, steps + 1)
    assert pair.report.sites == -(-2 * ran // 5) * len(pair.source.maps.layers)
