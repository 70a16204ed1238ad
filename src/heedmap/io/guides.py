"""Guides of the latents, as `generate` takes them and `run.json` has them."""

from msgspec import Struct
from msgspec.structs import force_setattr

from heedmap.checks import check_float, check_fraction, check_int, check_text
from heedmap.errors import ArgumentError, format_number, quoted
from heedmap.io.word_edits import Region, SavedRule, parse_region
from heedmap.options import Part, check_part, check_window, format_part


class Guide(Struct, frozen=True, kw_only=True):
    """A goal for the attention of words, and how the latents are changed for it.

    Before a step, the model runs with gradients, and the latents are changed against the loss of
    the attention.

    Attributes:
        step_size: the root mean square of a change of the latents, whose own is about 1. None is
            that of the model's generation (`heedmap.pipelines.guiding.UNET` and `JOINT`). Where
            several guides act, it also weights their losses; the change is as long as the largest.
        iterations: the most changes before a step, 1 to 100.
        target: the loss, 0 to 1, up to which nothing is changed.
        start: fraction of the run from which it acts, 0 to 1.
        end: fraction up to which it acts, 0 to 1. None is that of the model's generation, or 1
            if `start` is not before that.
        layers: the layers whose attention is meant, named as in `HeatMaps.select` (no function).
    """

    step_size: float | None = None
    iterations: int = 2
    target: float = 0.2
    start: float = 0.0
    end: float | None = None
    layers: Part | None = None

    def __post_init__(self) -> None:
        for word in self.words:
            check_text("the word of a guide", word, "cat")
        if len({*self.words}) < len(self.words):
            raise ArgumentError(
                f"a guide names {quoted(self.words[0])} twice: expected two different words"
            )
        if self.step_size is not None:
            check_float("step_size", self.step_size, least=0, most=100)
        check_int("iterations", self.iterations, least=1, most=100)
        check_fraction("target", self.target)
        end = 1.0 if self.end is None else self.end
        check_window("(start, end)", (self.start, end))
        force_setattr(self, "layers", check_part("layers", self.layers))

    @property
    def words(self) -> tuple[str, ...]:
        """The words or phrases of the prompt."""
        names = ("word", "first", "second")
        return tuple(getattr(self, n) for n in names if hasattr(self, n))

    def __str__(self) -> str:
        parts = [""]
        for option in Guide.__struct_fields__:
            value = getattr(self, option)
            if value is not None:
                text = format_part(value) if option == "layers" else value
                parts.append(f"{option.replace('_', ' ')} {text}")
        return ", ".join(parts)


class Excite(Guide, frozen=True, tag_field="kind", tag="excite"):
    """A word that should be read strongly somewhere, so that its object is drawn.

        heedmap.generate(pipe, "a cat and a dog", guide=[heedmap.Excite("dog")])

    The loss is 1 minus the largest share that the word has of the attention to the words of the
    prompt, each averaged over 3×3 positions. After Attend-and-Excite (Chefer et al., 2023, arXiv
    2301.13826).

    It takes the options of `heedmap.io.guides.Guide`, too: `step_size`, how far the latents move
    (their own root mean square is about 1); `iterations`, the most moves before a step; `target`,
    the loss that is good enough; `start` and `end`, fractions of the run; and `layers`.

    Attributes:
        word: a word or phrase of the prompt, at all its places; "cat#2" is the second "cat" alone.
    """

    word: str

    def __str__(self) -> str:
        return f"“{self.word}” excited{Guide.__str__(self)}"


class Inside(Guide, frozen=True, tag_field="kind", tag="inside"):
    """A word that should be read inside a region, and nowhere else.

        heedmap.generate(pipe, "a cat", guide=[heedmap.Inside("cat", (0, 0, 64, 128))])

    The loss is the share of the word's attention that is outside. After layout guidance (Chen et
    al., 2023, arXiv 2304.03373) and BoxDiff (Xie et al., 2023, arXiv 2307.10816).

    It takes the options of `heedmap.io.guides.Guide`, too: `step_size`, how far the latents move
    (their own root mean square is about 1); `iterations`, the most moves before a step; `target`,
    the loss that is good enough; `start` and `end`, fractions of the run; and `layers`.

    Attributes:
        word: a word or phrase of the prompt, at all its places; "cat#2" is the second "cat" alone.
        where: a box (left, top, right, bottom) in pixels of the image, or a mask of its size, as in
            `Confine`.
    """

    word: str
    where: Region

    def __post_init__(self) -> None:
        Guide.__post_init__(self)
        where = parse_region(self.where, quoted(self.word))
        force_setattr(self, "where", where)

    def __str__(self) -> str:
        place = "a mask"
        if isinstance(self.where, tuple):
            place = ", ".join(map(format_number, self.where))
        return f"“{self.word}” inside of {place}{Guide.__str__(self)}"


class PairGuide(Guide, frozen=True):
    """A guide of two words.

    Attributes:
        first: a word or phrase of the prompt.
        second: another one.
    """

    first: str
    second: str


class Bind(PairGuide, frozen=True, kw_only=True, tag_field="kind", tag="bind"):
    """Two words that should be read at the same places, such as a colour and its object.

        heedmap.generate(pipe, "a red house", guide=[heedmap.Bind("red", "house")])

    The loss is the divergence of the two maps, 0 to 1 (`mathematics.losses.divergence`). After
    SynGen (Rassin et al., 2023, arXiv 2306.08877).

    It takes the options of `heedmap.io.guides.Guide`, too: `step_size`, how far the latents move
    (their own root mean square is about 1); `iterations`, the most moves before a step; `target`,
    the loss that is good enough; `start` and `end`, fractions of the run; and `layers`.

    Attributes:
        first: a word or phrase of the prompt.
        second: another one.
        target: as in `Guide`. Without a guide, a colour and its object have a loss below 0.1.
    """

    target: float = 0.03

    def __str__(self) -> str:
        return f"“{self.first}” bound to “{self.second}”{Guide.__str__(self)}"


class Separate(PairGuide, frozen=True, tag_field="kind", tag="separate"):
    """Two words that should be read at different places, such as two objects.

        heedmap.generate(pipe, "a cat and a dog", guide=[heedmap.Separate("cat", "dog")])

    The loss is 1 minus the divergence of the two maps. After CONFORM (Meral et al., 2023, arXiv
    2312.06059).

    It takes the options of `heedmap.io.guides.Guide`, too: `step_size`, how far the latents move
    (their own root mean square is about 1); `iterations`, the most moves before a step; `target`,
    the loss that is good enough; `start` and `end`, fractions of the run; and `layers`.

    Attributes:
        first: a word or phrase of the prompt.
        second: another one.
    """

    def __str__(self) -> str:
        return f"“{self.first}” apart from “{self.second}”{Guide.__str__(self)}"


WordGuide = Excite | Inside | Bind | Separate
SavedGuide = WordGuide | SavedRule
