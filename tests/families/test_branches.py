"""The branches and the passes of a call: the picture's own, told apart, or refused in time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from diffusers import (
    StableDiffusionImg2ImgPipeline,
    StableDiffusionSAGPipeline,
)
from making import recordings_of
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
from families.models import ALONE, APART, GUIDED, TABLE, lengthened, picture
from heedmap.errors import TraceError
from heedmap.recording.tracing import trace

PROMPT = "a red house"
SMALL = {"width": 64, "height": 96}
SPLIT = [name for name, row in TABLE.items() if row.layout == APART]
NEGATED = [name for name in SPLIT if not name.startswith("klein")]
# CLIP, T5 with a mask and without, a language model with an image, padding in front and none.
ENCODERS = ["sd1", "sigma", "flux", "qwen_edit", "cogview4", "lumina2"]


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


@pytest.mark.parametrize("family", ENCODERS)
def test_a_prompt_that_is_encoded_again_during_its_call_changes_nothing(load, family):
    edits = [hm.Confine("red", (0, 0, 32, 32), start=0.25, end=0.75)]
    arguments, found = TABLE[family].arguments(), []
    options = {"num_images_per_prompt": 1}
    if family in ("sd1", "sigma", "cogview4"):
        options |= {"device": "cpu", "do_classifier_free_guidance": True}
    if family == "qwen_edit":
        options["image"] = arguments["image"]
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
        for name in ("maps", "negative_maps"):
            (expected,), (recording,) = (
                recordings_of(getattr(one, name)) for one in (alone, recorder)
            )
            assert recording.timesteps == expected.timesteps
            assert all(map(np.array_equal, recording.arrays, expected.arrays))
        assert recorder.controller.acted == alone.controller.acted


@pytest.mark.parametrize("family", ENCODERS)
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
SEQUENCES = [("lumina2", 17, 1), ("zimage", 12, 13), ("zimage", 13, 12)]  # of 31 and 33 tokens


def words(count, letters="bcdefghij"):
    return " ".join(letters[n % len(letters)] for n in range(count))


@pytest.mark.parametrize(
    ("family", "count", "other"),
    [
        *[("cogview4", *pair) for pair in LENGTHS],
        *[(family, *pair) for family in ("ernie", "fibo") for pair in ((17, 1), (1, 17))],
        *[(family, 17, 1) for family in ("flux", "krea")],
        ("qwen", 17, 1),
        *SEQUENCES,
    ],
)
def test_branches_of_unlike_length_are_told_apart(load, family, count, other):
    """On both sides of the multiples of 16 tokens to which CogView 4 pads each by itself."""
    more = lengthened(TABLE[family].call, 260) | {"negative_prompt": words(other, "klm")}
    recorder = check_family(load(family), family, words(count), **more)
    assert [len(maps.words) for maps in recorder.maps] == [count]
    assert [len(maps.words) for maps in recorder.negative_maps] == [other]


def test_texts_of_a_list_are_told_apart(load):
    """By their order where they are equal; past the truncation the prompt runs alone."""
    pipe, prompts = load("zimage"), [words(12), PROMPT]
    check_family(pipe, "zimage", prompts, negative_prompt=prompts, seeds=(1, 2))
    longer = {"negative_prompt": [words(40), "at"], "cfg_truncation": 0.1, "seeds": (1, 2)}
    more = TABLE["zimage"].arguments(2, prompt=prompts, **longer)
    check(pipe, lambda: paint(pipe, **more), prompts, [GUIDED[::-1], ALONE])


# Whose branches differ by an image, a system prompt, or any word.
OWN = ("qwen_edit", "qwen21", "qwen21_images", "lumina2")
ALIKE = {  # texts that differ past the limit alone, and none
    "equal": (PROMPT, PROMPT),
    "empty": ("", ""),
    "past the limit": (f"{words(60)} cat", f"{words(60)} dog"),
}


@pytest.mark.filterwarnings("ignore:.*does not read|.*reads only|.*past")
@pytest.mark.parametrize(
    ("family", "texts"),
    [
        *[(family, texts) for family in NEGATED for texts in ALIKE if family not in OWN],
        ("qwen_edit", "equal"),  # which reads all of a text
        ("qwen21", "equal"),
        ("qwen21", "empty"),
        ("klein", "empty"),
    ],
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
    off = float(family != "krea")
    more |= {name: off for name in more if name.endswith("scale")}
    with trace(pipe) as recorder:  # as the error advises
        paint(pipe, prompt=prompt, **more)
    assert len(recorder.maps) == 1


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


def test_windows_are_of_the_steps_that_run(load):
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    more = {"image": picture(64, 64), "strength": 0.5, "seed": 1, "steps": 10}
    pair = hm.edit(pipe, PROMPT, "a red tree", cross_replace=0.4, self_replace=0, **more)
    assert len(pair.source.maps.recording.timesteps) == 5
    assert pair.report.sites == 2 * len(pair.source.maps.layers)
