"""The schemas of saved JSON files: the types of their values, and the limits of each.

msgspec checks both when it decodes a file. A note cannot be changed:
`msgspec.structs.replace(note, mse=0.1)` makes another one, and `msgspec.structs.asdict(note)` lists
all fields. The options of a call are saved as the dataclasses that check them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from heedmap.errors import ArgumentError, RunError
from heedmap.io.guides import SavedGuide
from heedmap.io.places import Place
from heedmap.io.word_edits import SavedRule, WordEdit
from heedmap.options import BranchName, EditOptions, EditPurpose, GenerateOptions

Format = Literal[4]
"""The format of the files that this version writes and reads."""
FORMAT: Format = 4
MAX_LAYERS = 1024
MAX_LAYER_NAME = 512
"""Characters of a layer's name, or of a pattern for one."""
MAX_TOKENS = 4096
"""Tokens of an encoded text; encoders in use have at most 512."""
MAX_KEYS = 2**17
"""Keys of a softmax: tokens of a text and positions of images."""
MAX_PROMPT = 100_000
"""Characters of a prompt."""
MAX_CONCEPTS = 100
"""Words that are searched besides a prompt."""
MAX_EDITS = 256
"""Edits of the attention of words in one run."""
MAX_STEPS = 10_000
"""Denoising steps of a run."""
MAX_WHOLE = 2**63 - 1
"""The largest whole number, and so the largest seed."""

Text = Annotated[str, Meta(max_length=MAX_PROMPT)]
Name = Annotated[str, Meta(max_length=4096)]
Whole = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SideLength = Annotated[int, Meta(ge=1, le=2**20)]
Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Window = tuple[Fraction, Fraction]
"""The (start, end) of a part of a run."""
TOKENS_AT_MOST = Meta(max_length=MAX_KEYS)
WORDS_AT_MOST = Meta(max_length=MAX_PROMPT)
Words = tuple[Text, ...]
Numbers = tuple[Small, ...]
TokenKind = Literal["text", "start", "end", "pad", "image"]
StepSource = Literal["prediction", "latents"]
"""The content of a step's image: the prediction of the finished image, or the noisy latents."""


UNREADABLE = (msgspec.MsgspecError, ArgumentError, UnicodeError, RecursionError)
"""The errors of JSON that does not fit a schema."""


class Note(Struct, frozen=True):
    """A part of a JSON file."""


class ResultFile(Note, frozen=True, kw_only=True):
    """The JSON file of a result, which also lists the files of its folder.

    Attributes:
        format: the format of this and the other files.
        files: the names of the files in the folder, without those in inner folders.
    """

    format: Format = FORMAT
    files: tuple[Name, ...]


def to_json(value: object) -> Any:
    """Convert a note, or a container of notes, to plain JSON types."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_plain))


def encode(note: Struct, name: str) -> bytes:
    """Encode a note as the text of a JSON file.

    Raises:
        RunError: if a value does not fit the schema; it names the file.
    """
    try:
        data = msgspec.json.encode(note, enc_hook=_plain)
        msgspec.json.decode(data, type=type(note), dec_hook=decode_array)
    except (*UNREADABLE, TypeError) as error:
        raise RunError(f"{name} cannot be written: {error}") from error
    return msgspec.json.format(data, indent=2) + b"\n"


class _Array(Struct):
    """An array: little-endian numbers, the last axis first; msgspec writes bytes as base64."""

    shape: tuple[int, ...]
    float32: bytes


def _plain(value: object) -> object:
    import numpy as np

    if isinstance(value, np.ndarray):
        return _Array(value.shape, np.ascontiguousarray(value, dtype="<f4").tobytes())
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} has no JSON")


def decode_array(kind: type, value: object) -> Any:
    """Convert the JSON of an array to float64, for msgspec's `dec_hook`."""
    import numpy as np

    array = msgspec.convert(value, _Array)
    numbers = np.frombuffer(array.float32, dtype="<f4")
    return numbers.reshape(array.shape).astype(np.float64)


# --- settings ---------------------------------------------------------------------------------


class Scheduler(Note, frozen=True):
    """The class and the whole configuration of a scheduler (`pipelines.arguments`)."""

    kind: Name = field(name="class")
    config: Mapping[Name, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedEdit(EditOptions):
    """The options of an edit, with the windows that were used.

    Attributes:
        source: the source prompt, with weights.
        image: None; the image is `input.png`.
        batch: None; `Settings.batch_place` has the size of the batch.
    """

    source: Text
    cross_replace: Window = (0.0, 0.0)
    self_replace: Window = (0.0, 0.0)


class InputImageSettings(Note, frozen=True, kw_only=True):
    """An image of the user's that was located or edited.

    Attributes:
        size: its own (width, height) in pixels.
        sha256: the SHA-256 of its 8-bit RGB pixels at the size of the run, row by row.
    """

    size: tuple[SideLength, SideLength]
    sha256: Name


class Versions(Note, frozen=True):
    """The versions of the software."""

    heedmap: Name
    torch: Name = ""
    diffusers: Name = ""
    transformers: Name = ""
    python: Name = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(GenerateOptions):
    """The settings of a run: the arguments of the call, the pipeline and the versions.

        run.settings.seed, run.settings.size, run.settings.versions.torch
        dataclasses.asdict(run.settings)        # all as a dictionary

    Attributes:
        prompt: the prompt as written, with weights.
        text: the prompt as the model read it.
        seed: the seed of the noise.
        negative: the negative prompt.
        steps: denoising steps; None if the pipeline does not say.
        guidance: classifier-free guidance scale; None if the pipeline does not say.
        size: (width, height) in pixels.
        defaults: the source of "steps", "guidance" and "size", if the user did not set them.
        keep: the axes kept in the maps.
        tokens: "prompt" or "all".
        branches: the branches whose maps were recorded.
        concepts: the words that were searched in the image besides the prompt.
        places: the places whose attention was recorded (`heedmap.io.places`).
        reads: whether the attention of words to the image and to words was recorded.
        share_of: "all" or "text"; without a meaning where the text has a softmax of its own.
        budget: whether the budget of attention was recorded.
        limit: the bytes that the maps of the call could take.
        model: the name or folder of the model.
        revision: the commit of a model from the hub; None if unknown.
        pipeline: the class of the pipeline.
        scheduler: the class of its scheduler.
        schedulers: the class and configuration of each scheduler.
        loras: the name, part, scale and state of each LoRA.
        skipping: tools that skip layers at some steps, such as DeepCache.
        device: "cpu", "cuda", "mps".
        hardware: the GPU, or the machine and instruction set of the CPU.
        dtype: the precision, such as "float32".
        threads: the number of CPU threads.
        versions: the versions of heedmap and its libraries.
        edits: the edits of the attention of words (`generate(edits=[…])`).
        guide: the guides of the latents (`generate(guide=[…])`), with the defaults that were used.
        arguments: all other arguments of the pipeline, as `pipelines.arguments` stores them.
        batch_place: the number of the image in its batch, from 0, and the size of the batch; None
            if it was alone.
        edit: the options of an edit; None of any other run.
        located: the size and digest of the user's image in a located run (`heedmap.locate`).
        input_image: the size and digest of the user's image that was edited (`image=`).
        untaught: words that the model's card does not list; None without such a list.
        nsfw_content_detected: True if the safety checker made the image black; None without one.
    """

    prompt: Text
    text: Text = ""
    seed: Whole
    concepts: Words = ()
    places: tuple[Place, ...] = ()
    size: tuple[SideLength, SideLength]  # pyright: ignore[reportGeneralTypeIssues]
    branches: tuple[BranchName, ...] = ("conditional",)
    defaults: Mapping[Name, Name] = dataclasses.field(default_factory=dict)
    model: Name
    revision: Name | None = None
    pipeline: Name = ""
    scheduler: Name
    schedulers: Mapping[
        Literal["scheduler", "low_res_scheduler", "guider"], Scheduler
    ] = dataclasses.field(default_factory=dict)
    loras: tuple[Mapping[Name, Any], ...] = ()
    skipping: tuple[Name, ...] = ()
    device: Name = ""
    hardware: Name = ""
    dtype: Name = ""
    threads: Small | None = None
    versions: Versions
    edits: tuple[WordEdit | SavedRule, ...] = ()
    guide: tuple[SavedGuide, ...] = ()
    batch_place: tuple[Small, Small] | None = None
    edit: SavedEdit | None = None
    located: InputImageSettings | None = None
    input_image: InputImageSettings | None = None
    untaught: Words | None = None
    nsfw_content_detected: bool | None = None


# --- reports ----------------------------------------------------------------------------------


class Measures(Note, frozen=True):
    """The change of a part of an image.

    Attributes:
        share: the part's share of the image, 0 to 1.
        mse: mean squared error of values in 0 to 1; None of an empty part.
        psnr_db: peak signal-to-noise ratio in dB; None without an error, or of an empty part.
        ssim: structural similarity (Wang et al., 2004); None of an empty part.
    """

    share: Fraction
    mse: Fraction | None
    psnr_db: Number | None
    ssim: Number | None


def returned(psnr_db: float | None) -> str:
    """Write how well an encoded image is reconstructed, as a predicate."""
    exact = psnr_db is None
    return f"is reconstructed {'exactly' if exact else f'at {psnr_db:.1f} dB (PSNR)'}"


class Change(Note, frozen=True):
    """The change of an image inside a region and outside of it, each a `Measures`.

    The region is the mask of the blend, or else the masks of the changed words. The values of a
    `Measures` are `share` (of the image, 0 to 1), `mse` (of values in 0 to 1), `psnr_db` and
    `ssim` (Wang et al., 2004); None if they are not defined.

    Attributes:
        inside: the change of the region.
        outside: the change of the rest.
    """

    inside: Measures
    outside: Measures


class ChangedWords(Note, frozen=True):
    """The numbers of the words that were changed, in the source and in the edited prompt."""

    source: Numbers
    edited: Numbers


class GuideReport(Note, frozen=True, kw_only=True):
    """The effect of the guides of a run.

        run.guide_report.before[0], run.guide_report.after[0]

    Attributes:
        before: for each guide its loss at each step, before the latents were changed.
        after: the same in the pass of the step, after they were changed.
        passes: the number of passes of the model that guides took, all images together.
    """

    before: tuple[tuple[Number, ...], ...]
    after: tuple[tuple[Number, ...], ...]
    passes: Whole


class EditReport(Note, frozen=True, kw_only=True):
    """The options and the effect of an edit.

        pair.report.why, pair.report.change.inside.mse, pair.report.words.edited

    Attributes:
        kind: "replace", "refine" or "reweight".
        why: the reason for the kind.
        options: the options of `heedmap.edit`, with the windows that were used.
        weights: the weights of the edited prompt, by position on the K axis.
        words: the words that were changed.
        steps: the steps of the run.
        sites: the number of sites at which rules acted.
        self_sites: the number of sites at which self-attention was replaced.
        moved: the share of attention that the rules moved, 0 to 1; more if large weights made
            probabilities above 1.
        change: the change of the image.
        masked_by: the phrases that made the mask of the blend; None without a blend.
        reconstruction: the difference of the source's image from the given one; None if the source
            was generated from noise.
        purpose: "swap", "colour", "addition", "removal", "size", "relation" or "setting"; None if
            only weights, signs or articles and the like change.
        notes: warnings of the edit, one sentence each; None if there were none.
    """

    kind: Name
    why: Text = ""
    options: SavedEdit
    weights: Mapping[Small, Number] = {}
    words: ChangedWords
    steps: Whole = 0
    sites: Whole
    self_sites: Whole
    moved: Number
    change: Change
    masked_by: Text | None = None
    reconstruction: Measures | None = None
    purpose: EditPurpose | None = None
    notes: Words | None = None


class GridReport(Note, frozen=True):
    """The arguments of a grid, which hold for all cells.

    Attributes:
        source: the prompt that was edited.
        targets: the edited prompts; the source if only weights change.
        weights: the weights of each word.
        cross_replace: the windows of cross-attention.
        self_replace: the windows of self-attention.
        seeds: the seeds of the noise.
        options: the other options of `heedmap.grid`.
    """

    source: Text = ""
    targets: tuple[Text, ...] = ()
    weights: Mapping[Text, tuple[Number, ...]] = {}
    cross_replace: tuple[Window, ...] = ()
    self_replace: tuple[Window, ...] = ()
    seeds: tuple[Whole, ...] = ()
    options: EditOptions = EditOptions()
