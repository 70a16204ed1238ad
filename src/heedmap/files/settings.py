"""What a run was made with: its settings, as `run.json` has them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from heedmap.errors import signed
from heedmap.files.notes import Note
from heedmap.files.values import (
    MAX_EDITS,
    MAX_STEPS,
    WORDS_AT_MOST,
    ConceptTexts,
    Fraction,
    Given,
    Name,
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
    """A scheduler as it was set up.

    Attributes:
        kind: its class.
        config: its whole configuration; what is no JSON, as `arguments` have it.
    """

    kind: Name = field(name="class")
    config: Mapping[Name, Any]


class EditTerms(Note, frozen=True, kw_only=True):
    """What was asked of an edit besides its windows.

    Attributes:
        renormalize: whether weighted rows were made to sum to 1 again.
        only: "cat->dog", where the edit was let in; None where it was not blended.
        self_cells: the largest grid, in cells, at which self-attention was taken.
        protect: the words whose places stayed.
        blend_from: fraction of the run from which latents were blended.
        threshold: above which a word was taken to act at a place.
    """

    renormalize: bool = False
    only: Text | None = None
    self_cells: Whole = 32 * 32
    protect: Words = ()
    blend_from: Fraction = 0.2
    threshold: Fraction = 0.25


class EditNoted(EditTerms, frozen=True, kw_only=True):
    """What was asked for, of a run that is an edit.

    Attributes:
        source: the prompt that was edited, as it was written.
        kind: "replace" or "refine", as it was drawn.
        kind_asked: the one that was asked for; None where aligning the words chose.
        cross: while the source's cross-attention was taken (from, up to), of the run.
        windows: the same for single words.
        self_attention: while the source's self-attention was taken.
    """

    source: Text
    kind: EditKind | None = None
    kind_asked: EditKind | None = None
    cross: Window
    windows: Mapping[Text, Window] = {}
    self_attention: Window = field(name="self")


class Mask(Note, frozen=True, kw_only=True):
    """A mask of a region, as `regions.packed` writes it.

    Attributes:
        mask: its (width, height) in pixels.
        share: how much of it is inside.
        sha256: of its bits.
        packed: its bits; None where they are too many for a file.
    """

    mask: tuple[SideLength, SideLength]
    share: Fraction = 0.0
    sha256: Name = ""
    packed: str | None = None


class Reweighted(Note, frozen=True, kw_only=True, tag_field="kind", tag="reweight"):
    """A `Reweight`."""

    word: Text
    weight: Number
    renormalize: bool = False

    def __str__(self) -> str:
        how = ", renormalized" if self.renormalize else ""
        return f"“{self.word}” ×{signed(self.weight)}{how}"


class Confined(Note, frozen=True, kw_only=True, tag_field="kind", tag="confine"):
    """A `Confine`."""

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
    """A rule of a user's own, by its name."""

    name: Name = ""

    def __str__(self) -> str:
        return f"a rule of one's own{self.name and f', {self.name}'}"


WordEditNoted = Reweighted | Confined | Ruled
"""What was asked of the attention of a word."""


class GivenPicture(Note, frozen=True, kw_only=True):
    """A picture of a user's own, which was looked at or edited.

    Attributes:
        size: (width, height) as it was given, in pixels.
        sha256: of what the model saw of it: 8-bit RGB, row by row, of the run's size.
    """

    size: tuple[SideLength, SideLength]
    sha256: Name


class Versions(Note, frozen=True, kw_only=True):
    """The versions of what drew it."""

    heedmap: Name
    torch: Name = ""
    diffusers: Name = ""
    transformers: Name = ""
    python: Name = ""


class Settings(Note, frozen=True, kw_only=True):
    """What a run was made with, as it was asked for: all that decides its picture.

        run.settings.seed, run.settings.size, run.settings.versions.torch
        run.settings.edit.source if run.settings.edit else None

    Attributes:
        prompt: as it was written, with weights.
        text: what the model read of it.
        seed: of the noise.
        negative: the negative prompt.
        steps: denoising steps; None where the pipeline does not say.
        guidance: classifier-free guidance scale; None where the pipeline does not say.
        size: (width, height) in pixels.
        defaults: whose choice it was where nobody said: of "steps", "guidance" and "size".
        keep: the axes that were kept in the maps.
        tokens: "prompt" or "all", as it was recorded.
        branches: whose maps were recorded.
        concepts: the words that were looked for beside the prompt.
        model: the name or folder that the pipeline was loaded from.
        revision: the commit of a hub's model, the SHA-256 of the embedded one; None if unknown.
        pipeline: its class.
        scheduler: the class of its scheduler.
        schedulers: each scheduler as it was set up.
        parts: the class of each part, and what is not as the pipeline has it.
        configs: by part a hash of its configuration.
        options: what the pipeline was told when it was made.
        attention: the classes of attention processors, where they are not diffusers' usual ones.
        loras: of which weights, at which scale.
        adapters: IP-Adapters, and words of textual inversions.
        device: "cpu", "cuda", "mps".
        hardware: what computed.
        dtype: precision, such as "float32".
        threads: of the processor.
        versions: of what drew it.
        edits: what was done to the attention of words (`generate(edits=[…])`).
        arguments: all others of the pipeline, as JSON; pictures and tensors by their SHA-256.
        batch_place: its number among the pictures that were drawn at once, from 0, and how many
            there were; None where it was drawn alone.
        edit: what was asked of an edit; None of any other run.
        located: what was looked at, where nothing was drawn (`heedmap.locate`): its own picture.
        given: what was edited, where the source of an edit was not drawn from noise (`image=`).
        untaught: the words of both prompts and of the concepts that the model's card does not list;
            None where there is no such list.
        nsfw_content_detected: whether a safety checker made the image black; None without one.
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
