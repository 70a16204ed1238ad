"""Animations as GIF files."""

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from heedmap.errors import plural, quoted
from heedmap.io.writing import put_file


@dataclass(frozen=True, eq=False)
class Animation:
    """Frames that a GIF shows one after the other, for ever.

    Attributes:
        label: what it shows.
        frames: RGB pictures of one size.
        durations: how long each stands, in milliseconds; GIFs count in tens of them.
    """

    label: str
    frames: tuple[Image.Image, ...]
    durations: tuple[int, ...]

    def __repr__(self) -> str:
        width, height = self.frames[0].size
        count = plural(len(self.frames), "frame")
        return f"<Animation {quoted(self.label)}: {count}, {width}×{height}>"

    def gif(self) -> bytes:
        """Give the bytes of a GIF file. All frames have one palette, so that no colour flickers."""
        width, height = self.frames[0].size
        strip = Image.new("RGB", (width, height * len(self.frames)))
        for number, frame in enumerate(self.frames):
            strip.paste(frame, (0, number * height))
        sample = strip.resize((width // 2, strip.height // 2), Image.Resampling.NEAREST)
        palette = sample.quantize(256, Image.Quantize.MEDIANCUT, kmeans=1)
        first, *others = (
            frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames
        )
        file = io.BytesIO()
        first.save(
            file,
            "GIF",
            save_all=True,
            append_images=others,
            duration=list(self.durations),
            loop=0,
            disposal=1,
            optimize=False,
        )
        return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the GIF file, in the place of an older one, and give its path.

        Args:
            path: of the file.

        Raises:
            ArgumentError: if `path` is not a path.
            RunError: if it cannot be written.
        """
        return put_file(path, self.gif())

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.gif()).decode()
        return f'<img alt="{html.escape(self.label)}" src="data:image/gif;base64,{data}">'
