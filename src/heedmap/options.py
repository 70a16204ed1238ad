"""The options of each call: defaults, help, and the check of each value.

An option is a field of one of these classes. From it follow the argument of the Python functions,
the flag of the command line and the field of the app (`heedmap.parsing` reads its text, by its
type), and its place in `run.json`. A TypedDict tells type checkers the names (`TypedDict` cannot be
made of a dataclass).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from heedmap.checks import (
    as_list,
    check_bool,
    check_float,
    check_fraction,
    check_int,
    check_one_of,
    check_subset,
    check_text,
)
from heedmap.errors import ArgumentError, quoted

Axis = Literal["layer", "step", "head"]
"""An axis that a recording may keep."""
AXES: tuple[Axis, ...] = get_args(Axis)
Keep = Collection[Axis] | Literal["all"]
"""Axes that a recording keeps."""
Places = Sequence[Any]
"""Places of an image (`heedmap.io.places`)."""
BranchName = Literal["conditional", "negative"]
"""The prompt or the negative prompt, whose attention is recorded."""
Tokens = Literal["prompt", "all"]
"""The tokens that are recorded: the prompt's own, or the padding too."""
ShareOf = Literal["all", "text"]
"""Recorded probabilities are shares of this attention where text and image share one softmax."""
Share = Literal["all", "text", "outputs", "places", "reads"]
"""The shares that a map holds; those of "outputs" are no attention (`HeatMaps.outputs`). A map of
"places" or "reads" shows what is read: other maps show where a word is read."""
SHARES: Mapping[Share | None, str] = {
    None: "",
    "all": "share of all attention",
    "text": "share of the attention to the text",
    "outputs": "similarity of outputs, as a share among the concepts",
    "places": "what a place reads, as a share of all its attention",
    "reads": "what a word reads, as a share of all its attention",
}
"""The name of each in figures; None stands for models whose text has a softmax of its own."""
EditPurpose = Literal[
    "relation", "addition", "removal", "setting", "swap", "size", "colour"
]
"""The purpose of an edit (`heedmap.text.purposes`), the one that needs the most freedom first."""
Device = Literal["auto", "cpu", "cuda", "mps"]
"""Where a model runs; "auto" is the best that there is."""
Dtype = Literal["auto", "float32", "float16", "bfloat16"]
"""The precision of a model; "auto" is float32 on the CPU, else float16."""
Window = float | tuple[float, float]
"""A part of the run, in fractions: its end, or its start and end."""
if TYPE_CHECKING:
    Part = int | str | slice | Sequence[int | str]
else:
    Part = int | str | Sequence[int | str]
"""Some of the layers, heads or steps, as `HeatMaps.select` takes them, but for a function."""
DEFAULT_WINDOWS: Mapping[EditPurpose | None, tuple[float, float]] = {
    None: (0.8, 0.4),
    "swap": (0.8, 0.4),
    "colour": (0.8, 0.4),
    "size": (0.5, 0.4),
    "setting": (0.5, 0.4),
    "addition": (0.2, 0.0),
    "removal": (0.3, 0.4),
    "relation": (0.1, 0.4),
}
"""The default ends of the windows of cross-attention and self-attention, by the edit's purpose.

None: weights, signs or articles and the like alone. Measured on the embedded model
(`scripts/evaluate.py windows`): a thing that comes or goes, or moves, finds no place in a layout
that is kept for long.
"""
DEFAULT_JOINT_WINDOWS: Mapping[EditPurpose | None, tuple[float, float]] = {
    **DEFAULT_WINDOWS,
    "swap": (0.5, 0.2),
    "size": (0.3, 0.0),
    "removal": (0.2, 0.2),
    "relation": (0.08, 0.0),
}
"""The same where text and image share one softmax, measured on the embedded transformer."""
MAX_STEPS = 999
"""The most denoising steps: a model is trained with 1000 timesteps."""
MAX_WEIGHT = 1e6
"""The largest weight of a word, of either sign."""
LOCATE_STEPS = 10
"""The noise levels at which `locate` asks the model: 5, 10, 20 and 40 are equal on scenes with
known masks."""
MASK_THRESHOLD = 0.5
"""The least value of a soft mask inside of the mask: measured to be right on scenes with known
masks."""
RESERVED_ARGUMENTS = {
    "prompt": "the prompt",
    "generator": "seed",
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "width": "size",
    "height": "size",
    "negative_prompt": "negative",
    "num_images_per_prompt": "a call for each seed",
    "prompt_embeds": "the prompt as text, or trace() around a call of your own",
    "output_type": "run.image",
    "return_dict": "run.image",
}
"""Arguments of pipelines that heedmap passes itself, and what takes their place."""


# --- the options of each call -----------------------------------------------------------------


def option(
    default: Any,
    help: str | None = None,
    check: Callable[[str, Any], Any] | None = None,
    **flag: Any,
) -> Any:
    """Declare an option.

    Args:
        default: its default.
        help: a sentence or two for the command line and the app; the command line adds a default
            that is not None. An option without help is one of Python's functions alone.
        check: returns a value that is not None as a plain Python value, given the option's name.
        flag: the `names` and the `metavar` of its flag, and its `type`, if they do not follow from
            the field; `exists` of a file.
    """
    return field(default=default, metadata={"help": help, "check": check, **flag})


def check_options(options: Any) -> None:
    """Convert the values of a dataclass of options by their checks."""
    for one in fields(options):
        check = one.metadata.get("check")
        value = getattr(options, one.name)
        if check is not None and value is not None:
            vars(options)[one.name] = check(one.name, value)


def _check_words(name: str, words: Any) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def check_window(name: str, window: Any) -> tuple[float, float]:
    """Return a window as (start, end), fractions of the run; ArgumentError if it is none."""
    bounds = window if isinstance(window, tuple | list) else (0.0, window)
    if len(bounds) == 2:
        start, end = (check_fraction(name, bound) for bound in bounds)
        if start <= end:
            return start, end
    raise ArgumentError(
        f"{name} is {quoted(window)}: expected B, or A and B, parts of the run (0 ≤ A ≤ B ≤ 1)"
    )


def check_part(name: str, part: Any) -> Any:
    """Return names or numbers as they are saved: a tuple, or the text of a name or a slice."""
    if part == slice(None):
        return None
    if isinstance(part, slice) and part.step is None:
        part = f"{part.start}:{part.stop}".replace("None", "")
    if part is None or isinstance(part, str):
        return part
    items: Any = as_list(part)
    if items is None:
        items = [part]
    if not all(isinstance(item, str | Integral) for item in items):
        raise ArgumentError(
            f"{name} is {quoted(part)}: expected a name of layers such as 'up', a number, a range "
            "such as slice(0, 10), or a list of names or numbers"
        )
    return tuple(item if isinstance(item, str) else int(item) for item in items)


def format_part(part: Any) -> str:
    """Write some of the layers, heads or steps."""
    return part if isinstance(part, str) else " and ".join(map(str, part))


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The keyword arguments of `load`."""

    device: Device = option(
        "auto",
        "Where to run. For a saved run, auto is its own device, if present.",
    )
    dtype: Dtype = option("auto", "Precision. For a saved run, auto is its own.")


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """The keyword arguments of `generate`, described there.

    The constructor checks each value and converts it to Python's own types; ArgumentError for a
    value that is out of range. Whether the model can draw a size is checked with the pipeline.
    """

    steps: int | None = option(
        None,
        "Denoising steps. Default: the model's.",
        partial(check_int, least=1, most=MAX_STEPS),
    )
    guidance: float | None = option(
        None,
        "Classifier-free guidance scale. Default: the model's.",
        partial(check_float, least=0, most=100),
    )
    size: tuple[int, int] | None = option(
        None,
        "In pixels, as 512x768, or 512 for a square. Default: the model's; with an input "
        "image, in its proportions.",
    )
    negative: str | None = option(
        None,
        "Negative prompt.",
        partial(check_text, example="blurry", most=100_000),
    )
    keep: Keep = option(
        ("layer",),
        "Axes whose parts `inspect` can select: layer, step, head, with commas between; or all. "
        "The others are averaged.",
        partial(check_subset, known=AXES),
    )
    tokens: Tokens = option(
        "prompt", check=partial(check_one_of, known=get_args(Tokens))
    )
    branches: Iterable[BranchName] = option(
        ("conditional",), check=partial(check_subset, known=get_args(BranchName))
    )
    concepts: Sequence[str] = option(
        (),
        "Also map words or phrases that are not in PROMPT, with commas between. May be repeated.",
    )
    places: Places = option(
        (),
        "Also map what a place of the image reads of the image: a pixel X,Y, a box L,T,R,B in "
        "pixels, or a word of PROMPT, whose mask is meant. May be repeated.",
        names=["--place"],
    )
    reads: bool = option(
        False,
        "Of models whose text and image share one softmax: also map what each word reads of the "
        "image, and of the other words.",
        check_bool,
    )
    share_of: ShareOf = option(
        "all",
        "Of models whose text and image share one softmax: what the values of maps are shares of. "
        "text: of the attention to the text alone.",
        partial(check_one_of, known=get_args(ShareOf)),
    )
    budget: bool = option(
        False,
        "Also record where all attention goes: to words, special tokens, padding and the image. "
        "`inspect --budget` shows it.",
        check_bool,
    )
    limit: int = option(2**31, check=partial(check_int, least=1))
    arguments: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "An argument of the pipeline itself, as true_cfg_scale=4. The value is JSON, "
            "or else a text. May be repeated.",
            "names": ["--set"],
        },
    )

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class EditOptions:
    """The keyword arguments of an edit, described in `edit`.

    The constructor checks each value; ArgumentError for a value that is out of range, or that has
    no effect without `only`. Windows become (start, end). `max_self_cells` is 32 × 32 as published.
    With its threshold of 0.25, the embedded model's blend has nearly all of the thing and two
    fifths of the image.
    """

    cross_replace: Window | None = option(
        None,
        "Part of the run in which the source's cross-attention is used: A:B, from 0 to 1, or B. "
        "Default: depends on what changes (a colour, an object, the setting …).",
        check_window,
    )
    self_replace: Window | None = option(
        None,
        "The same part for the source's self-attention.",
        check_window,
    )
    max_self_cells: int = option(32 * 32, check=partial(check_int, least=0))
    renormalize: bool = option(
        False,
        "Divide attention by the sum of its magnitudes after weighting.",
        check_bool,
    )
    only: str | None = option(
        None,
        "Change only the region of these words, as 'cat->dog', and of their phrases ('red cat'). "
        'Quote the words (\'"cat"->"dog"\') to leave out their adjectives.',
        metavar="A->B",
    )
    protect: Sequence[str] = option(
        (),
        "Also protect the regions of these words, with commas between. Requires --only. May be "
        "repeated.",
        _check_words,
    )
    threshold: float = option(
        0.25,
        "How strong a word's map must be (0 to 1 between its minimum and maximum) to count as the "
        "region of --only.",
        check_fraction,
    )
    blend_from: float = option(
        0.2,
        "Where --only starts, as a fraction of the run.",
        partial(check_float, least=0, most=0.999),
    )
    image: Any = option(
        None,
        "Edit this image (PNG, JPEG, WebP, BMP), which SOURCE describes.",
        type=Path | None,
        exists=True,
    )
    batch: int | None = option(
        None,
        "Images per batch, the source included; at least 2. Default: as many as fit into memory.",
        partial(check_int, least=2),
    )
    layers: Part | None = option(
        None,
        "Layers in which the edit acts, with commas between: groups, names or patterns. Default: "
        "all.",
        check_part,
    )
    heads: Part | None = option(
        None,
        "Heads in which it acts, with commas between. Default: all.",
        check_part,
    )
    at_steps: Part | None = option(
        None,
        "Steps at which it acts, from 0: A:B (without B), A:, :B, or one. Default: all.",
        check_part,
    )

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("blend_from", "threshold", "protect"):
            is_default = getattr(self, name) == getattr(EditOptions, name)
            if self.only is None and not is_default:
                raise ArgumentError(
                    f"{name!r} needs 'only' (--only), such as only='cat->dog'"
                )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The keyword arguments of `explain`, described there."""

    layer: str | None = option(
        None,
        "A layer, as 'up 1.0', or a pattern with * for several. If several layers or heads "
        "fit: the one with the word's largest probability, of those that do not exceed 0.5.",
        names=["--layer", "-l"],
    )
    head: int | None = option(None, "The attention head, from 0.")
    step: int | None = option(None, "Step from 0. Default: the middle.")


# --- the names of the options, for type checkers ----------------------------------------------


class PipelineArguments(TypedDict, total=False):
    """Arguments of diffusers' pipelines, besides those that heedmap sets itself.

    Another one is passed as `**{"name": value}`.
    """

    num_inference_steps: int
    guidance_scale: float
    height: int
    width: int
    generator: Any
    negative_prompt: str
    negative_prompt_2: str
    negative_prompt_3: str
    prompt_2: str
    prompt_3: str
    latents: Any
    sigmas: Any
    timesteps: Any
    eta: float
    clip_skip: int
    guidance_rescale: float
    true_cfg_scale: float
    cfg_normalization: bool
    cfg_truncation: float
    max_sequence_length: int
    text_encoder_out_layers: Any
    clean_caption: bool
    complex_human_instruction: Any
    use_resolution_binning: bool
    cross_attention_kwargs: Any
    joint_attention_kwargs: Any
    attention_kwargs: Any
    callback_on_step_end: Any
    callback_on_step_end_tensor_inputs: Any
    strength: float
    mask_image: Any
    masked_image_latents: Any
    padding_mask_crop: int
    control_image: Any
    control_guidance_start: Any
    control_guidance_end: Any
    control_mode: Any
    controlnet_conditioning_scale: Any
    guess_mode: bool
    ip_adapter_image: Any
    ip_adapter_image_embeds: Any
    negative_ip_adapter_image: Any
    negative_ip_adapter_image_embeds: Any
    denoising_start: float
    denoising_end: float
    original_size: tuple[int, int]
    target_size: tuple[int, int]
    crops_coords_top_left: tuple[int, int]
    negative_original_size: tuple[int, int]
    negative_target_size: tuple[int, int]
    negative_crops_coords_top_left: tuple[int, int]
    aesthetic_score: float
    negative_aesthetic_score: float
    image: Any


class RecordingKeywords(PipelineArguments, total=False):
    """The options of every call that records."""

    steps: int | None
    size: tuple[int, int] | None
    keep: Keep
    share_of: ShareOf
    limit: int


class LocateKeywords(RecordingKeywords, total=False):
    """The options of `locate`."""

    tokens: Tokens
    concepts: Sequence[str]
    places: Places
    reads: bool
    budget: bool


class GuidedKeywords(RecordingKeywords, total=False):
    """The options of every call that generates."""

    guidance: float | None
    negative: str | None


class GenerateKeywords(GuidedKeywords, LocateKeywords, total=False):
    """The options of `generate`."""

    branches: Iterable[BranchName]


class GridKeywords(GuidedKeywords, total=False):
    """The options of `grid`, which hold for all cells."""

    max_self_cells: int
    renormalize: bool
    only: str | None
    protect: Sequence[str]
    blend_from: float
    threshold: float
    batch: int | None
    layers: Part | None
    heads: Part | None
    at_steps: Part | None


class EditKeywords(GridKeywords, total=False):
    """The options of `edit`."""

    cross_replace: Window | None
    self_replace: Window | None
