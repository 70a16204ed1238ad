"""What may be asked of a drawing and of an edit, and what holds where nothing is said.

Every default has its home here: the functions, the command line, the app and the commands on a page
read it from these classes. Plain data; what a value must be is checked where it is used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

Axis = Literal["layer", "step", "head"]
"""An axis that a recording may keep."""
AXES: tuple[Axis, ...] = get_args(Axis)
Keep = Iterable[Axis] | Literal["all"]
"""Axes that a recording keeps."""
BranchName = Literal["conditional", "negative"]
"""Whose attention is recorded: the prompt's, or the negative prompt's."""
Tokens = Literal["prompt", "all"]
"""Which tokens are recorded: the prompt's own, or the padding too."""
EditKind = Literal["replace", "refine"]
"""How the words of an edit correspond: one to one, or with words that are new."""
EditPurpose = Literal["swap", "colour", "addition", "removal", "size", "relation", "setting"]
"""What an edit is for, read off its words (`heedmap.text.purposes`)."""
Device = Literal["auto", "cpu", "cuda", "mps"]
"""Where a model runs; "auto" is the best that there is."""
Dtype = Literal["auto", "float32", "float16", "bfloat16"]
"""How precisely; "auto" is float32 on the CPU, else float16."""
Window = float | tuple[float, float]
"""A fraction of the run up to which, or two from and up to which, something is done."""
USUAL: Mapping[EditPurpose | None, tuple[float, float]] = {
    None: (0.8, 0.4),
    "swap": (0.8, 0.4),
    "colour": (0.8, 0.4),
    "size": (0.5, 0.4),
    "setting": (0.5, 0.4),
    "addition": (0.2, 0.0),
    "removal": (0.3, 0.4),
    "relation": (0.1, 0.4),
}
"""Up to when an edit takes its source's cross-attention and self-attention where nobody says.

By what it is for; None: weights, signs or articles and the like alone. Measured on the embedded
model (`scripts/evaluate.py windows`): a thing that comes or goes, or lies elsewhere, finds no room
in a layout that is held for long.
"""
OWN_NAMES = {
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


class _Taken:
    @classmethod
    def taken(cls, given: dict[str, Any]) -> Self:
        """The options among keyword arguments, which are taken out of these."""
        return cls(**{one.name: given.pop(one.name) for one in fields(cls) if one.name in given})  # pyright: ignore[reportArgumentType]

    def named(self) -> dict[str, Any]:
        """The options as keyword arguments, as functions take them: `taken` reads them back.

        What is an argument of the pipeline is one among them.
        """
        found = {one.name: getattr(self, one.name) for one in fields(self)}  # pyright: ignore[reportArgumentType]
        arguments: Mapping[str, Any] = found.pop("arguments", {})
        return {**found, **arguments}


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Where a model runs, and how precisely."""

    device: Device = "auto"
    dtype: Dtype = "auto"


@dataclass(frozen=True, kw_only=True)
class DrawOptions(_Taken):
    """What every drawing takes.

    Attributes:
        steps: denoising steps; the model's own default if None.
        guidance: classifier-free guidance scale; the model's own default if None.
        size: (width, height) in pixels; the model's own if None.
        negative: what to keep away from (the unconditional branch's prompt), of all pictures.
        keep: the axes to keep in the maps, of "layer", "step", "head"; or "all".
        limit: bytes that the maps may take; a run that would need more is refused beforehand.
        arguments: any other argument of the pipeline, passed on.
    """

    steps: int | None = None
    guidance: float | None = None
    size: tuple[int, int] | None = None
    negative: str | None = None
    keep: Keep = ("layer",)
    limit: int = 2 * 2**30
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(DrawOptions):
    """What `generate` takes besides.

    Attributes:
        tokens: "prompt" for the prompt's own tokens, "all" for the padding too.
        branches: "conditional" for the prompt's maps; with "negative", those of the negative
            prompt too (`Run.negative_maps`).
        concepts: words and phrases that are looked for in the picture, whether or not the prompt
            has them (`Run.concepts`); they change nothing that is drawn.
    """

    tokens: Tokens = "prompt"
    branches: Iterable[BranchName] = ("conditional",)
    concepts: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class LocateOptions(_Taken):
    """What looking at a picture takes.

    Attributes:
        steps: how often the model looks, each time with other noise: at the middles of so many
            equal parts of the training's timesteps. On scenes whose masks are known 5, 10, 20 and
            40 are alike.
        size: (width, height) in pixels that the model sees; if None the picture's own, where the
            model can draw it and it has about as many pixels as the model's (half to twice), else
            about as many as the model's, as nearly in the picture's proportions as it draws them.
        keep: as of `DrawOptions`.
        limit: as of `DrawOptions`.
        tokens: as of `GenerateOptions`.
        concepts: as of `GenerateOptions`.
        arguments: any other argument of the pipeline, passed on.
    """

    steps: int = 10
    size: tuple[int, int] | None = None
    keep: Keep = DrawOptions.keep
    limit: int = DrawOptions.limit
    tokens: Tokens = GenerateOptions.tokens
    concepts: Sequence[str] = GenerateOptions.concepts
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EditOptions(_Taken):
    """What an edit takes: windows, weights, blend.

    Attributes:
        kind: "replace" where the words correspond one to one, "refine" where some were added;
            chosen by aligning the words if None (`Pair.about` says which and why).
        cross: while the source's cross-attention is taken (0 to 1, of the run); if None, as `USUAL`
            has it for what the edit is for (`Pair.about.purpose`).
        words: other windows for single words or phrases of the target that take from the source.
        self_attention: while the source's self-attention is taken; if None, the same.
        self_cells: the largest grid, in cells, at which it is; 32 × 32 as published.
        renormalize: whether weighted rows are made to sum to 1 again.
        only: "cat->dog": outside of where these words act the source's latents stay (LocalBlend),
            by their refined maps as far as the run has come, against those of the other phrases.
            Their phrases are meant ("red cat" in "a red cat"), whose maps hold more of the thing;
            '"cat"->"dog"' means the words alone, as published.
        protect: a word of the source, or several, whose places stay, with `only`.
        blend_from: fraction of the run from which latents are blended, below 1; before, maps say
            little. Maps are refined in the later half of the run; until then the plain ones decide.
        threshold: above which a word is taken to act at a place; 0 is where it acts least, 1 where
            most. On the embedded model the mask then holds nearly all of the thing and some two
            fifths of the picture.
        image: a picture of your own (of Pillow, or a file) that is edited, in the place of one
            that is drawn from noise; the source says what it shows. Its size is chosen as
            `heedmap.locate` does it. A pipeline that takes an image is given it, as it always was.
        batch: how many pictures are drawn at once, the source included; as many as the free memory
            should hold (`heedmap.backends.latents`) if None.
    """

    kind: EditKind | None = None
    cross: Window | None = None
    words: Mapping[str, Window] | None = None
    self_attention: Window | None = None
    self_cells: int = 32 * 32
    renormalize: bool = False
    only: str | None = None
    protect: Iterable[str] = ()
    blend_from: float = 0.2
    threshold: float = 0.25
    image: Any = None
    batch: int | None = None


MASK_THRESHOLD = 0.5
"""What a soft mask must have at least for a pixel to be in its mask: measured to be right on scenes
whose masks are known."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Which of a step's numbers are taken apart.

    Attributes:
        branch: whose attention.
        pass_: which of the model's passes within the step, from 0.
    """

    branch: BranchName = "conditional"
    pass_: int = 0


@dataclass(frozen=True, kw_only=True)
class ConfineOptions:
    """How a word is kept inside of a place, as `heedmap.Confine` tells it."""

    strength: float = 3.0
    start: float = 0.0
    end: float = 0.6
    along: Sequence[str] | None = None
    tail: bool = True
