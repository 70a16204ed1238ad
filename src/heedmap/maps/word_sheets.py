"""What all sheets of one word have in common: their size, their scale, and what they say of it.

One scale holds for all that a sheet shows, and it says which: of the word (from the least to the
greatest value that it could show), "shared" (of all the prompt's words) or "raw" (0 to 1). Steps,
heads and layers are averaged as `HeatMaps.select` does, and named as it takes them: steps and heads
count from 0.
"""

from dataclasses import replace

from PIL import Image

from heedmap.errors import SelectionError, plural
from heedmap.figures import overlays
from heedmap.figures.layout import ScaleBar
from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale
from heedmap.maps.recordings import Layer
from heedmap.options import Axis

SIDE = 256  # px, the geometric mean of a panel's sides
_MOST_WORK = 60_000  # maps, of all words, that are made for one scale of all words


def heat_of(maps: HeatMaps, word: str | int, scale: Scale) -> HeatMap:
    """A word's map; only where all words share a scale are all of them made."""
    if scale != "shared":
        return maps.alone(word)
    return maps[word] if isinstance(word, str) else maps.at(word)


def of_layer(maps: HeatMaps, layer: Layer) -> HeatMaps:
    """The maps of one layer: that very one, whatever its name may mean as a pattern."""
    return maps.select(lambda one: one is layer)


def check_many(maps: HeatMaps, count: int, most: int, of: str, scale: Scale) -> None:
    """Raise a SelectionError if more maps are asked for than one can look at."""
    if count > most:
        few = {"steps": "steps=slice(0, 500)", "heads": "heads=[0, 1]"}.get(of, "layers='mid'")
        raise SelectionError(
            f"these are {count} {of}: expected at most {most} on a sheet; select some, as in "
            f"run.maps.select({few})"
        )
    if scale == "shared" and count * len(maps.words) > _MOST_WORK:
        raise SelectionError(
            f"a scale shared by {len(maps.words)} words in {count} maps takes too long: select "
            f"fewer {of}, or take the word's own scale, scale='word'"
        )


def shown_at(maps: HeatMaps, side: int) -> HeatMaps:
    """Maps over their picture at another size: the geometric mean of its sides is `side` pixels."""
    width, height = maps.recording.size
    root = (width / height) ** 0.5
    size = max(1, round(side * root)), max(1, round(side / root))
    image = maps.image
    if image is not None:
        image = overlays.to_rgb(image).resize(size, Image.Resampling.LANCZOS)
    return replace(maps, image=image, recording=replace(maps.recording, size=size))


def scale_bar(scale: Scale, heat: HeatMap, where: str, low: float, high: float) -> ScaleBar:
    """What the colours of a sheet mean; `where` says of what its one scale is."""
    said = {"word": f"one for the word {where}", "shared": f"one for all words {where}"}
    return ScaleBar(said.get(scale, "raw probability"), low, high, alone=heat.image is None)


def mean_of(maps: HeatMaps, *shown: Axis) -> str:
    """What each map is averaged over."""
    kept, total = maps.recording.keep, len(maps.recording.timesteps)
    said: list[str] = []
    if "layer" not in shown:
        said.append(plural(len(maps.layers), "layer") if "layer" in kept else "all layers")
    if "step" not in shown:
        some = len(maps.steps) if "step" in kept else total
        said.append(plural(total, "step") if some == total else f"{some} of {total} steps")
    if "head" not in shown:
        some = maps.heads if "head" in kept else ()
        few = some and len(some) < max(layer.heads for layer in maps.recording.layers)
        numbered = f"head{'s' * (len(some) > 1)} {', '.join(map(str, some))}"
        said.append(numbered if few else "all heads")
    return f"mean of {', '.join(said)}"
