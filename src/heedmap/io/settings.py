"""The settings of a run, as `run.json` has them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from heedmap.errors import signed
from heedmap.io.values import (
    MAX_EDITS,
    MAX_STEPS,
    WORDS_AT_MOST,
    ConceptTexts,
    Fraction,
    Given,
    Name,
    Note,
    Number,
    SideLength,
    Small,
    Text,
    Whole,
    Window,
    Words,
)
from heedmap.options import Axis, BranchName, EditKind, Tokens


class Scheduler(Note, frozen=True, kw_only=True):
    """A scheduler.

    Attributes:
        kind: the class.
        config: the whole configuration, as `pipelines.arguments` stores values.
    """

    kind: Name = field(name="class")
    config: Mapping[Name, Any]


class EditTerms(Note, frozen=True, kw_only=True):
    """The options of an edit besides its windows.

    Attributes:
        renormalize: whether rows with weights were normalized to sum to 1.
        only: the words of the local blend, as "cat->dog"; None without a blend.
        self_cells: the largest grid, in cells, at which self-attention was replaced.
        protect: words whose regions the blend kept.
        blend_from: the fraction of the run from which latents were blended.
        threshold: the threshold of the blend's mask.
    """

    renormalize: bool = False
    only: Text | None = None
    self_cells: Whole = 32 * 32
    protect: Words = ()
    blend_from: Fraction = 0.2
    threshold: Fraction = 0.25


class EditNoted(EditTerms, frozen=True, kw_only=True):
    """The options of a run that is an edit.

    Attributes:
        source: the source prompt, with weights.
        kind: "replace" or "refine".
        kind_asked: the kind that the user gave; None if the alignment of the words decided.
        cross: the window of cross-attention, as fractions of the run.
        windows: the windows of single words.
        self_attention: the window of self-attention.
    """

    source: Text
    kind: EditKind | None = None
    kind_asked: EditKind | None = None
    cross: Window
    windows: Mapping[Text, Window] = {}
    self_attention: Window = field(name="self")


class Mask(Note, frozen=True, kw_only=True):
    """A mask of a region, written by `maps.masks.packed`.

    Attributes:
        mask: the (width, height) in pixels.
        share: the share of pixels inside.
        sha256: the SHA-256 of its bits.
        packed: its compressed bits; None if they are too many for a file.
    """

    mask: tuple[SideLength, SideLength]
    share: Fraction = 0.0
    sha256: Name = ""
    packed: str | None = None


class Reweighted(Note, frozen=True, kw_only=True, tag_field="kind", tag="reweight"):
    """A `Reweight` edit."""

    word: Text
    weight: Number
    renormalize: bool = False

    def __str__(self) -> str:
        how = ", renormalized" if self.renormalize else ""
        return f"“{self.word}” ×{signed(self.weight)}{how}"


class Confined(Note, frozen=True, kw_only=True, tag_field="kind", tag="confine"):
    """A `Confine` edit."""

    word: Text
    where: tuple[Given, Given, Given, Given] | Mask
    strength: Number = 3.0
    start: Fraction = 0.0
    end: Fraction = 0.6
    along: Words | None = None
    tail: bool = True

    def __str__(self) -> str:
        place = (
            "a mask" if isinstance(self.where, Mask) else ", ".join(signed(x) for x in self.where)
        )
        return f"“{self.word}” confined to {place}, strength {signed(self.strength)}"


class Ruled(Note, frozen=True, kw_only=True, tag_field="kind", tag="rule"):
    """A rule of the user's, known by its name."""

    name: Name = ""

    def __str__(self) -> str:
        return f"the rule {self.name}" if self.name else "a rule"


WordEditNoted = Reweighted | Confined | Ruled
"""An edit of the attention of a word."""


class GivenPicture(Note, frozen=True, kw_only=True):
    """A picture of the user's that was located or edited.

    Attributes:
        size: its own (width, height) in pixels.
        sha256: the SHA-256 of its 8-bit RGB pixels at the size of the run, row by row.
    """

    size: tuple[SideLength, SideLength]
    sha256: Name


class Versions(Note, frozen=True, kw_only=True):
    """The versions of the software."""

    heedmap: Name
    torch: Name = ""
    diffusers: Name = ""
    transformers: Name = ""
    python: Name = ""


class Settings(Note, frozen=True, kw_only=True):
    """The settings of a run: the arguments of the call, the pipeline and the versions.

        run.settings.seed, run.settings.size, run.settings.versions.torch
        run.settings.edit.source if run.settings.edit else None

    Attributes:
        prompt: the prompt as written, with weights.
        text: the prompt as the model read it.
        seed: the seed of the noise.
        negative: the negative prompt.
        steps: denoising steps; None if the pipeline does not say.
        guidance: classifier-free guidance scale; None if the pipeline does not say.
        size: (width, height) in pixels.
        defaults: the source of the values of "steps", "guidance" and "size" that the user did not
            give.
        keep: the axes kept in the maps.
        tokens: "prompt" or "all".
        branches: the branches whose maps were recorded.
        concepts: the words that were searched in the image besides the prompt.
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
        arguments: all other arguments of the pipeline, as `pipelines.arguments` stores them.
        batch_place: the number of the image in its batch, from 0, and the size of the batch; None
            if it was alone.
        edit: the options of an edit; None of any other run.
        located: the picture of a located run (`heedmap.locate`).
        given: the picture of the user's that was edited (`image=`).
        untaught: words that the model's card does not list; None without such a list.
        nsfw_content_detected: whether the safety checker made the image black; None without one.
    """

    prompt: Text
    text: Text = ""
    seed: Whole
    negative: Text | None = None
    steps: Annotated[int, Meta(ge=1, le=MAX_STEPS)] | None
    guidance: Given | None
    size: tuple[SideLength, SideLength]
    defaults: Mapping[Name, Name] = {}
    keep: tuple[Axis, ...] = ("layer",)
    tokens: Tokens = "prompt"
    branches: tuple[BranchName, ...] = ("conditional",)
    concepts: ConceptTexts = ()
    model: Name
    revision: Name | None = None
    pipeline: Name = ""
    scheduler: Name
    schedulers: Mapping[Literal["scheduler", "low_res_scheduler"], Scheduler] = {}
    loras: tuple[Mapping[Name, Any], ...] = ()
    skipping: tuple[Name, ...] = ()
    device: Name = ""
    hardware: Name = ""
    dtype: Name = ""
    threads: Small | None = None
    versions: Versions
    edits: Annotated[tuple[WordEditNoted, ...], Meta(max_length=MAX_EDITS)] = ()
    arguments: Mapping[Name, Any] = {}
    batch_place: tuple[Small, Small] | None = None
    edit: EditNoted | None = None
    located: GivenPicture | None = None
    given: GivenPicture | None = None
    untaught: Annotated[tuple[Text, ...], WORDS_AT_MOST] | None = None
    nsfw_content_detected: bool | None = None
