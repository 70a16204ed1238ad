"""What else runs a UNet: a map is of the picture's own passes, or is refused beforehand."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from diffusers import (
    ControlNetModel,
    CycleDiffusionPipeline,
    DDIMInverseScheduler,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    HunyuanDiTPAGPipeline,
    PixArtSigmaPAGPipeline,
    StableDiffusionAttendAndExcitePipeline,
    StableDiffusionDiffEditPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPAGPipeline,
    StableDiffusionPanoramaPipeline,
    StableDiffusionPipeline,
    StableDiffusionSAGPipeline,
    StableDiffusionXLControlNetPipeline,
    StableDiffusionXLInpaintPipeline,
    TextToVideoZeroPipeline,
)
from diffusers.callbacks import SDCFGCutoffCallback
from diffusers.models.attention_processor import AttnProcessor2_0

import heedmap
from families import models
from families.checking import (
    ALONE,
    GUIDED,
    WHOLE,
    after_steps,
    assert_restored,
    check,
    compare,
    expect,
    paint,
    reference,
    state_of,
)
from families.models import mask, picture
from heedmap.backends.registry import self_attention_layers
from heedmap.errors import ArgumentError, ModelError, NothingRecordedError, TraceError
from heedmap.mathematics.rules import Inject
from heedmap.recording.controller import Steering
from heedmap.recording.tracing import Trace, trace

PROMPT = "a red house"


# --- passes that are not the picture's ---


@pytest.mark.parametrize(
    ("guidance", "layout"), [(5.0, GUIDED), (1.0, ALONE)], ids=["guided", "alone"]
)
def test_self_attention_guidance_is_recorded_without_its_blurred_passes(load, guidance, layout):
    pipe = load("sd1", StableDiffusionSAGPipeline)

    def call():
        return paint(pipe, PROMPT, sag_scale=0.75, guidance_scale=guidance, height=128, width=128)

    bare = call()
    with reference(pipe) as scores:
        call()
    # Every second pass is of the blurred latents.
    own = {name: passes[::2] for name, passes in scores.items()}
    assert all(len(passes) == 4 for passes in scores.values())
    with trace(pipe, WHOLE, tokens="all") as recorder:
        traced = call()
    assert np.array_equal(bare, traced)
    compare(recorder.recordings, expect(own, [layout] * 2, [[0], [1]]), scores.near)


def test_the_prompt_of_cycle_diffusion_is_the_one_that_is_drawn(load):
    pipe = load("sd1", CycleDiffusionPipeline)
    pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    four = ("negative source", "negative", "source", "conditional")

    for source in ("a big tree", PROMPT):

        def call(source=source):
            generator = torch.Generator().manual_seed(1)
            return pipe(
                PROMPT, source_prompt=source, image=picture(128, 128), strength=0.99, eta=0.1,
                num_inference_steps=4, generator=generator, output_type="np", guidance_scale=3.0,
            ).images  # fmt: skip

        recorder = check(pipe, call, [PROMPT], layout=four)
        assert len(recorder.maps) == 1


@pytest.mark.parametrize("several", [{"prompt": [PROMPT, "a cat"]}, {"num_images_per_prompt": 2}])
def test_cycle_diffusion_draws_one_picture_a_call(load, several):
    """Of a batch it reads the first two rows alone, which are not those of any one picture."""
    pipe = load("sd1", CycleDiffusionPipeline)
    pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    with trace(pipe), pytest.raises(TraceError, match="2 prompts"):
        pipe(
            **{"prompt": PROMPT, "source_prompt": "a big tree", "strength": 0.99, **several},
            image=picture(128, 128),
            num_inference_steps=4,
        )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (StableDiffusionPanoramaPipeline, "draws views that overlap"),
        (StableDiffusionAttendAndExcitePipeline, "attention processors of its own"),
        (TextToVideoZeroPipeline, "attention processors of its own"),
    ],
)
def test_pipelines_with_other_passes_are_refused_with_their_reason(load, kind, reason):
    parts = {**load("sd1").components, **models.UNCHECKED}
    parts.pop("image_encoder", None)
    pipe = kind(**parts)
    with pytest.raises(ModelError, match=f"^{kind.__name__} .*{reason}"):
        trace(pipe)
    with pytest.raises(ModelError, match=reason):
        heedmap.generate(pipe, PROMPT, seed=1)


def test_a_subclass_of_a_panorama_pipeline_is_refused(load):
    """What a subclass of somebody's does in its own loop is noticed at its second view."""

    class Views(StableDiffusionPanoramaPipeline):
        pass

    pipe = load("sd1", StableDiffusionPanoramaPipeline)
    with pytest.raises(ModelError, match="draws views that overlap"):
        trace(Views(**pipe.components))


@pytest.mark.parametrize(
    ("family", "own_scheduler", "same"),
    [("sd1", True, True), ("sd1", False, False), ("sigma", True, False), ("sigma", False, True)],
)
def test_another_pipeline_on_the_same_model_is_refused(load, family, own_scheduler, same):
    pipe = load(family)
    other = type(pipe)(**pipe.components)
    if own_scheduler:
        other.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    other.set_progress_bar_config(disable=True)
    drawn = []

    def paint_beside(step):
        if step == 0:
            paint(other, PROMPT if same else "a big tree")
            drawn.append(step)

    with pytest.raises(TraceError, match="another pipeline on the same model"), trace(pipe):
        paint(pipe, PROMPT, **after_steps(pipe, paint_beside))
    assert not drawn


@pytest.mark.parametrize("ask", ["trace", "generate", "edit"])
def test_a_crop_that_is_drawn_larger_is_refused(load, ask):
    pipe = load("sd1", StableDiffusionInpaintPipeline)
    one, given = picture(128, 128), {"mask_image": mask(128, 128), "strength": 1.0}
    heedmap.generate(pipe, PROMPT, seed=1, steps=1, image=one, **given)
    before, given = state_of(pipe), {**given, "padding_mask_crop": 8}
    with pytest.raises(ArgumentError, match="padding_mask_crop draws a part"):
        if ask == "trace":
            with trace(pipe):
                pipe(PROMPT, image=one, **given)
        elif ask == "generate":
            heedmap.generate(pipe, PROMPT, seed=1, steps=2, image=one, **given)
        else:
            heedmap.edit(pipe, PROMPT, "a red tree", seed=1, steps=2, image=one, **given)
    assert_restored(pipe, before)
    assert "get_crop_region" not in vars(pipe.mask_processor)


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_merged_tokens_are_refused(load, family):
    """Three in four merged are as many as the next coarser grid has places."""
    pipe = load(family)
    if family == "sd1":
        block, size = pipe.unet.down_blocks[0].attentions[0].transformer_blocks[0], (128, 128)
    else:
        block, size = pipe.transformer.transformer_blocks[0], (256, 256)

    def merge(_, args):
        return (args[0][:, : args[0].shape[1] // 4],)

    block.attn2.register_forward_pre_hook(merge)
    block.attn2.register_forward_hook(lambda _, args, output: output.repeat(1, 4, 1))
    with pytest.raises(TraceError, match=r"64 .* 16×16"), trace(pipe):
        paint(pipe, PROMPT, height=size[1], width=size[0])


# --- calls that fail ---


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_a_call_that_failed_leaves_no_map(load, family):
    pipe = load(family)

    def fail(step):
        if step == when:
            raise KeyboardInterrupt

    told = after_steps(pipe, fail)

    for when in (0, 1):  # noqa: B007 - after the first step, and after the last
        with trace(pipe) as recorder:
            with pytest.raises(KeyboardInterrupt):
                paint(pipe, "a big tree", **told)
            paint(pipe, PROMPT)
        assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT]
    with trace(pipe) as recorder, pytest.raises(KeyboardInterrupt):
        paint(pipe, PROMPT, **told)
    with pytest.raises(NothingRecordedError, match="nothing was recorded"):
        _ = recorder.maps


def test_a_call_that_failed_before_its_first_step_leaves_no_map(load):
    pipe = load("sd1")
    encode = {"do_classifier_free_guidance": True}
    with trace(pipe) as recorder:
        with pytest.raises(ValueError, match="generators"):
            paint(pipe, "a big tree", seeds=(1, 2))
        paint(pipe, PROMPT)
        pipe.encode_prompt("a cat", device="cpu", num_images_per_prompt=2, **encode)
        paint(pipe, PROMPT, seeds=(1, 2), num_images_per_prompt=2)
    assert [maps.tokens.prompt for maps in recorder.maps] == [PROMPT] * 3


def test_latents_as_output_have_maps(load):
    """Some pipelines return before their usual end then."""
    pipe = load("sdxl", StableDiffusionXLInpaintPipeline)
    given = {"image": picture(128, 128), "mask_image": mask(128, 128), "strength": 0.75}

    def call(prompt, **how):
        return paint(pipe, prompt, steps=4, width=128, height=128, **given, **how)

    with trace(pipe) as recorder:
        call(PROMPT, output_type="latent")
        call("a big tree")
        call("a cat", output_type="latent", denoising_end=0.7)
    assert [m.tokens.prompt for m in recorder.maps] == [PROMPT, "a big tree", "a cat"]


def test_a_call_that_was_refused_is_no_part_of_the_next(load):
    pipe = load("sd1")
    with trace(pipe, branches=("conditional", "negative")) as recorder:
        with pytest.raises(TraceError, match="this call has none"):
            paint(pipe, PROMPT, guidance_scale=1.0)
        paint(pipe, PROMPT, guidance_scale=5.0)
    assert len(recorder.maps) == len(recorder.negative_maps) == 1


def test_a_scheduler_replaced_in_a_trace_is_followed(load):
    pipe = load("sd1")
    first, second = pipe.scheduler, EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    with trace(pipe, {"step"}) as recorder:
        for scheduler in (first, second, first):
            pipe.scheduler = scheduler
            paint(pipe, PROMPT, steps=3)
    assert [len(r.timesteps) for r in recorder.recordings] == [3, 3, 3]
    assert "step" not in vars(first) | vars(second)


def test_a_prompt_replaced_during_sampling_is_refused(load):
    """The negative branch beside it is still the one that was read."""
    pipe = load("sd1")
    other = pipe.encode_prompt("a big tree", "cpu", 1, False)[0]

    def replaced(pipe, step, timestep, given):
        return {"prompt_embeds": torch.cat([given["prompt_embeds"][:1], other])}

    with pytest.raises(TraceError, match="not those of the prompt"), trace(pipe):
        paint(
            pipe, PROMPT, steps=4, callback_on_step_end=replaced,
            callback_on_step_end_tensor_inputs=["prompt_embeds"],
        )  # fmt: skip


def test_denoising_that_ends_early_with_a_controlnet_is_recorded(load):
    """This pipeline says how many steps it makes before it leaves the last ones out."""
    base = load("sdxl")
    control = ControlNetModel.from_unet(
        base.unet, conditioning_embedding_out_channels=(4, 8, 8, 16)
    )
    parts = {**base.components, "controlnet": control.eval()}
    pipe = StableDiffusionXLControlNetPipeline(**parts, add_watermarker=False)
    pipe.set_progress_bar_config(disable=True)
    with trace(pipe, {"step"}) as recorder:
        paint(pipe, PROMPT, steps=6, denoising_end=0.5, image=picture(128, 128))
    assert recorder.steps == len(recorder.recordings[0].timesteps) < 6


class Passing(StableDiffusionPipeline):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


def test_a_call_that_passes_on_its_arguments_takes_those_of_its_base(load):
    options = {"seed": 1, "steps": 3, "guidance": 4.0, "negative": "at night", "eta": 0.5}
    plain = heedmap.generate(load("sd1"), PROMPT, **options)
    run = heedmap.generate(load("sd1", Passing), PROMPT, **options)
    assert np.array_equal(run.image, plain.image) and run.settings.steps == 3
    assert np.array_equal(run.maps["red"].values, plain.maps["red"].values)
    with pytest.raises(ArgumentError, match="etas"):
        heedmap.generate(load("sd1", Passing), PROMPT, etas=1)


def test_an_argument_that_a_pipeline_does_not_take_is_refused(load):
    with pytest.raises(ArgumentError, match=r"takes no argument strenght: .* strength\?"):
        heedmap.generate(load("sd1", StableDiffusionImg2ImgPipeline), PROMPT, strenght=0.3)
    with pytest.raises(ArgumentError, match=r"takes no argument xyzzy$"):
        heedmap.generate(load("sd1"), PROMPT, xyzzy=1)
    with pytest.raises(ArgumentError, match="a blend does not reach"):
        heedmap.edit(load("lcm"), PROMPT, "a red tree", only="house->tree")


def test_arguments_that_a_pipeline_would_ignore_are_refused(load):
    """Both take whatever they are given by name, and look at none of it."""
    drawn = load("sd1", StableDiffusionImg2ImgPipeline)
    with pytest.raises(
        ArgumentError, match=r"size is \(64, 64\), and .* takes no width: leave size"
    ):
        heedmap.generate(drawn, PROMPT, size=(64, 64), image=picture(64, 64))
    with pytest.raises(
        ArgumentError, match=r"negative is 'blurry', and .* takes no negative_prompt"
    ):
        heedmap.generate(load("lcm"), PROMPT, negative="blurry")


@pytest.mark.parametrize("family", ["sd1", "sigma"])
def test_a_call_of_a_pipeline_inside_its_own_call_is_refused(load, family):
    pipe = load(family)

    def again(step):
        if step == 1:
            paint(pipe, "a big tree")

    with pytest.raises(TraceError, match="called from within its own call"), trace(pipe):
        paint(pipe, PROMPT, **after_steps(pipe, again))
    with trace(pipe) as recorder:
        paint(pipe, PROMPT)
    assert len(recorder.maps) == 1


def test_a_pipeline_that_replaces_processors_in_its_own_call_is_refused(load):
    """HD-Painter does, so that no advice of what to do before would help."""

    class Painter(StableDiffusionPipeline):
        def prepare_latents(self, *args, **kwargs):
            self.unet.set_attn_processor(AttnProcessor2_0())
            return super().prepare_latents(*args, **kwargs)

    pipe = load("sd1", Painter)
    with pytest.raises(TraceError, match="its own call"), trace(pipe):
        paint(pipe, PROMPT)


def test_a_second_thread_on_one_pipeline_is_refused_and_the_first_goes_on(load):
    pipe = load("sd1")
    plain = heedmap.generate(pipe, PROMPT, seed=1, steps=3)

    def meet(step, steps):
        if step == 1:
            with ThreadPoolExecutor(1) as threads:
                other = threads.submit(heedmap.generate, pipe, "a cat", seed=2, steps=1)
                errors.append(other.exception())

    errors: list = []
    run = heedmap.generate(pipe, PROMPT, seed=1, steps=3, progress=meet)
    assert isinstance(errors[0], TraceError)
    assert np.array_equal(run.image, plain.image)
    for word in ("red", "house"):
        assert np.array_equal(run.maps[word].values, plain.maps[word].values)


def test_passes_that_make_a_mask_are_not_recorded(load):
    base = load("sd1")
    parts = {**base.components, **models.UNCHECKED}
    parts.pop("image_encoder", None)
    inverse = DDIMInverseScheduler.from_config(base.scheduler.config)
    pipe = StableDiffusionDiffEditPipeline(**parts, inverse_scheduler=inverse)
    pipe.set_progress_bar_config(disable=True)
    with trace(pipe) as recorder:
        pipe.generate_mask(
            image=picture(64, 64), source_prompt=PROMPT, target_prompt="a big tree",
            num_inference_steps=2, num_maps_per_mask=1,
        )  # fmt: skip
    with pytest.raises(NothingRecordedError, match="nothing was recorded"):
        _ = recorder.maps


def test_a_trace_counts_the_steps_of_a_call(load):
    pipe = load("sd1")
    with trace(pipe) as recorder:
        with pytest.raises(NothingRecordedError, match="call the pipeline"):
            _ = recorder.steps
        paint(pipe, PROMPT, steps=3)
    assert recorder.steps == 3


def test_the_memory_limit_holds_for_the_whole_trace(load):
    pipe = load("sd1")
    with trace(pipe) as recorder:
        paint(pipe, PROMPT)
    each = recorder.recordings[0].nbytes
    with trace(pipe, limit=2 * each) as recorder:
        for _ in range(2):
            paint(pipe, PROMPT)
        with pytest.raises(ArgumentError, match="the limit is"):
            paint(pipe, PROMPT)
    assert len(recorder.maps) == 2


def test_two_threads_with_one_text_encoder_keep_their_own_maps(load):
    one = load("sd1")
    # Not the tokenizer: transformers' own is no matter for two threads (a call sets how it pads).
    two = load("sd1", text_encoder=one.text_encoder)
    assert one.text_encoder is two.text_encoder and one.tokenizer is not two.tokenizer
    together = Barrier(2, timeout=60)
    encode = one.text_encoder.forward

    def meet(*args, **kwargs):  # so that both are read at the same time
        together.wait()
        return encode(*args, **kwargs)

    one.text_encoder.forward = meet

    def work(pipe, prompt):
        for _ in range(3):
            with trace(pipe) as recorder:
                paint(pipe, prompt)
            assert recorder.maps[0].tokens.prompt == prompt
        return recorder

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, (one, two), (PROMPT, "the cat sat at a big tree")))


# --- the second prompt of SDXL ---


@pytest.mark.parametrize("second", ["", PROMPT, [PROMPT]])
def test_an_equal_second_prompt_is_recorded(load, second):
    pipe = load("sdxl")
    check(pipe, lambda: paint(pipe, PROMPT, prompt_2=second), [PROMPT])


def test_another_second_negative_prompt_is_refused_only_if_recorded(load):
    pipe = load("sdxl")
    with pytest.raises(TraceError, match="prompt_2 differs from prompt"):
        heedmap.edit(pipe, "a house", "a sea", steps=1, prompt_2="a cat")
    given = {"negative_prompt": "a cat", "negative_prompt_2": "a big tree"}
    check(pipe, lambda: paint(pipe, PROMPT, **given), [PROMPT])
    with (
        pytest.raises(TraceError, match="negative_prompt_2 differs from negative_prompt"),
        trace(pipe, branches=["negative"]),
    ):
        paint(pipe, PROMPT, **given)


def test_a_second_prompt_that_differs_is_recorded_by_position(load):
    pipe = load("sdxl")
    second = {"prompt_2": "the cat sat at a big tree"}
    with (
        pytest.raises(TraceError, match=r"prompt_2 differs from prompt: .* by position"),
        trace(pipe),
    ):
        paint(pipe, PROMPT, **second)
    states, _, pooled, _ = pipe.encode_prompt(PROMPT, do_classifier_free_guidance=False, **second)
    embeds = {"prompt_embeds": states, "pooled_prompt_embeds": pooled, "guidance_scale": 1.0}
    plain = paint(pipe, PROMPT, **second, guidance_scale=1.0)
    with trace(pipe) as recorder:
        assert np.array_equal(plain, paint(pipe, None, **embeds))
    assert recorder.maps[0]["3"].values.max() > 0


# --- following the steps of any pipeline ---


def followed(pipe, **arguments):
    """Steps that progress told, and the latents that preview was shown."""
    told, shown = [], []
    run = heedmap.generate(
        pipe, PROMPT, seed=1, steps=3, progress=lambda *step: told.append(step),
        preview=shown.append, **arguments,
    )  # fmt: skip
    return run, told, shown


@pytest.mark.parametrize("scheduler", [None, HeunDiscreteScheduler])
def test_progress_is_reported_by_pipelines_without_callbacks(load, scheduler):
    pipe = load("upscaler")
    if scheduler is not None:
        pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    run, told, shown = followed(pipe, image=picture(32, 32))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert [tuple(latents.shape) for latents in shown] == [(1, 4, 32, 32)] * 3
    plain = heedmap.generate(pipe, PROMPT, seed=1, steps=3, image=picture(32, 32))
    assert np.array_equal(run.image, plain.image)


def test_a_blend_works_on_a_pipeline_without_callbacks(load):
    pipe = load("upscaler")
    given = {"image": [picture(32, 32)] * 2, "seed": 1, "steps": 3}
    pair = heedmap.edit(pipe, PROMPT, "a red tree", only="house->tree", **given)
    plain = heedmap.edit(pipe, PROMPT, "a red tree", **given)
    assert pair.blend is not None and pair.blend.any() and not pair.blend.all()
    assert not np.array_equal(pair.edited.image, plain.edited.image)


def test_a_users_callback_keeps_its_inputs(load):
    """Our listening takes nothing from a user's callback, nor from what it asked to be given."""
    pipe = load("sd1")
    seen = []

    def users(pipe, step, timestep, given):
        seen.append(sorted(given))
        return {}

    run, told, shown = followed(
        pipe, callback_on_step_end=users, callback_on_step_end_tensor_inputs=["prompt_embeds"]
    )
    assert seen == [["prompt_embeds"]] * 3 and len(told) == len(shown) == 3
    cut = SDCFGCutoffCallback(cutoff_step_ratio=None, cutoff_step_index=1)
    run, told, shown = followed(pipe, callback_on_step_end=cut)
    assert told == [(1, 3), (2, 3), (3, 3)]
    plain = heedmap.generate(pipe, PROMPT, seed=1, steps=3, callback_on_step_end=cut)
    whole = heedmap.generate(pipe, PROMPT, seed=1, steps=3)
    assert np.array_equal(run.image, plain.image)
    assert not np.array_equal(run.image, whole.image)


# --- edits where a pipeline has attention of its own ---


@pytest.mark.parametrize(
    ("family", "kind", "layers"),
    [
        ("sd1", StableDiffusionPAGPipeline, ["mid", "up"]),
        ("sigma", PixArtSigmaPAGPipeline, ["blocks.1"]),
        ("hunyuan", HunyuanDiTPAGPipeline, ["1"]),
    ],
)
def test_an_edit_with_perturbed_attention_equals_the_definition(load, family, kind, layers):
    pipe = load(family, kind, pag_applied_layers=layers)
    before = state_of(pipe)
    given = {"seed": 1, "steps": 2, "pag_scale": 3.0}
    pair = heedmap.edit(pipe, PROMPT, "a red tree", cross_replace=1.0, self_replace=1.0, **given)
    assert pair.report.self_sites == 2 * len(self_attention_layers(pipe))
    assert pair.report.sites == 2 * len(pair.source.maps.layers)
    after = state_of(pipe)
    assert after["processors"] == before["processors"]
    # A prompt replaced by itself is the plain picture, perturbed rows included.
    twice = {"seeds": (1, 1), "pag_scale": 3.0}
    if family == "hunyuan":
        twice |= {"width": 128, "height": 128, "use_resolution_binning": False}
    plain = paint(pipe, [PROMPT] * 2, **twice)
    read = {"sd1": 77, "sigma": 300, "hunyuan": 77 + 256}[family]
    itself = Inject(torch.eye(read), torch.zeros(read), torch.ones(read))
    with Trace(pipe, steering=Steering({1: [itself]}, {1: 0}, {1: (0.0, 1.0)})) as recorder:
        edited = paint(pipe, [PROMPT] * 2, **twice)
    assert recorder.controller.acted[1] and recorder.controller.shared[1]
    np.testing.assert_allclose(edited, plain, atol=1e-4)


def test_an_edit_with_self_attention_guidance_equals_the_definition(load):
    pipe = load("sd1", StableDiffusionSAGPipeline)
    given = {"seed": 1, "steps": 2, "sag_scale": 0.75, "size": (128, 128)}
    pair = heedmap.edit(pipe, PROMPT, "a red tree", **given)
    assert pair.report.sites == 2 * len(pair.source.maps.layers)


def test_the_resampler_of_an_image_prompt_is_no_self_attention(load):
    pipe = load("sd1")
    pipe.unet.encoder_hid_proj = torch.nn.Sequential(pipe.unet.mid_block.attentions[0])
    assert all("encoder_hid_proj" not in name for name in self_attention_layers(pipe))


def test_denoising_that_ends_early_counts_its_own_steps(load):
    """A window is a part of what this run does, and one that holds none of its steps is told."""
    pipe = load("sdxl")
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)
    given = {"seed": 1, "steps": 10, "denoising_end": 0.5}
    pair = heedmap.edit(
        pipe, PROMPT, "a red tree", cross_replace=(0.8, 1.0), self_replace=0, **given
    )
    steps = len(pair.source.maps.recording.timesteps)
    assert 3 <= steps < 10
    assert pair.report.sites == (steps - -(-4 * steps // 5)) * len(pair.source.maps.layers)


def test_image_to_image_counts_its_own_steps(load):
    pipe = load("sd1", StableDiffusionImg2ImgPipeline)
    given = {"seed": 1, "steps": 10, "strength": 0.5, "image": [picture(64, 64)] * 2}
    pair = heedmap.edit(pipe, PROMPT, "a red tree", cross_replace=0.4, self_replace=0, **given)
    assert len(pair.source.maps.recording.timesteps) == 5
    assert pair.report.sites == 2 * len(pair.source.maps.layers)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"only": "house->tree", "blend_from": 0.99}, "did not restrict the edit: it starts"),
        ({"word_windows": {"tree": (0.3, 0.4)}}, "no attention for 'tree' was copied"),
        ({"cross_replace": (0.3, 0.4), "self_replace": 0}, "no cross-attention was copied"),
    ],
)
def test_windows_without_a_step_give_a_warning(load, given, said):
    pipe = load("short")
    with pytest.warns(UserWarning, match=said):
        pair = heedmap.edit(pipe, PROMPT, "a red tree", seed=1, steps=4, **given)
    assert pair.blend is None
