"""What an edit did and how, and what a grid of edits has in common: the evidence.

`pair.json` and `grid.json` have it.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field

from heedmap.io.settings import EditTerms
from heedmap.io.values import MAX_TOKENS, Fraction, Name, Note, Number, Small, Text, Whole, Window
from heedmap.options import EditKind, EditPurpose


class Measures(Note, frozen=True, kw_only=True):
    """How much a part of the picture changed.

    Attributes:
        share: of the picture, 0 to 1.
        mse: mean squared error of values in 0 to 1; None where there is nothing to measure.
        psnr_db: peak signal-to-noise ratio in dB; None where there is no error either.
        ssim: structural similarity (Wang et al., 2004); None where there is nothing to measure.
    """

    share: Fraction
    mse: Fraction | None
    psnr_db: Number | None
    ssim: Number | None


def returned(psnr_db: float | None) -> str:
    """How near to itself a picture came back, for sentences that begin with it."""
    return "comes back as it was" if psnr_db is None else f"comes back at {psnr_db:.1f} dB (PSNR)"


class Change(Note, frozen=True, kw_only=True):
    """How much the picture changed.

    Attributes:
        inside: of the mask of a blend, or else of where the changed words act.
        outside: elsewhere.
    """

    inside: Measures
    outside: Measures

    def __repr__(self) -> str:
        sides = [
            f"{name} {one.share:.0%}"
            + ("" if one.mse is None else f" with an MSE of {one.mse:.3g}")
            for name, one in self.sides().items()
        ]
        return f"<Change: {', '.join(sides)}>"

    def sides(self) -> dict[str, Measures]:
        """Both by name."""
        return {"inside": self.inside, "outside": self.outside}


Numbers = Annotated[tuple[Small, ...], Meta(max_length=MAX_TOKENS)]


class ChangedWords(Note, frozen=True, kw_only=True):
    """The words that were changed, by number.

    Attributes:
        source: those of the source prompt.
        edited: those of the edited prompt.
    """

    source: Numbers
    edited: Numbers


class EditReport(EditTerms, frozen=True, kw_only=True):
    """How a pair was edited, and what that did.

        pair.about.why, pair.about.change.inside.mse, pair.about.words.edited

    Attributes:
        kind: "replace", "refine" or "reweight".
        reconstruction: how far the source's picture is from the one that was given; None where the
            source was drawn from noise.
        notes: what was asked for and did little or nothing, a sentence each, as it was told when it
            was drawn; None where all did what they should.
        purpose: what it is for: "swap", "colour", "addition", "removal", "size", "relation" or
            "setting"; None where only weights, signs or articles and the like change.
        why: of this kind.
        cross: while the source's cross-attention was taken (from, up to), of the run.
        windows: the same for single words.
        self_attention: while the source's self-attention was taken.
        weights: of the edited prompt, by position on its axis of tokens.
        words: those that were changed, of each prompt.
        steps: of the run.
        sites: at how many sites rules acted.
        self_sites: at how many self-attention was taken from the source.
        moved: the share of attention that the rules moved, 0 to 1; more where large weights made
            probabilities of more than all.
        change: how much the picture changed.
        masked_by: the phrases that decided where the edit was let in; None if it was not blended.
    """

    kind: Name
    why: Text = ""
    cross: Window
    windows: Mapping[Text, Window] = {}
    self_attention: Window = field(name="self")
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
    notes: Annotated[tuple[Text, ...], Meta(max_length=MAX_TOKENS)] | None = None


class GridReport(EditTerms, frozen=True, kw_only=True):
    """What all cells of a grid have in common.

    Attributes:
        source: the prompt that was edited, as it was given.
        targets: what it should become; None where weights were all that changes.
        weights: those that were tried out, by word.
        cross: the windows of cross-attention.
        self_attention: those of self-attention.
        seeds: of the noise.
        kind: the kind that was asked for; None where aligning the words chose.
        words: the windows of single words.
        batch: pictures in the largest batch.
        sources_drawn: how often the source was computed.
    """

    source: Text = ""
    targets: tuple[Text, ...] | None = None
    weights: Mapping[Text, tuple[Number, ...]] = {}
    cross: tuple[Window, ...] = ()
    self_attention: tuple[Window, ...] = ()
    seeds: tuple[Whole, ...] = ()
    kind: EditKind | None = None
    words: Mapping[Text, Window] = {}
    batch: Whole = 0
    sources_drawn: Whole = 0
