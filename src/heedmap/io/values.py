"""The types of values in files, and the limits of each."""

from typing import Annotated, Literal

from msgspec import Meta

MAX_LAYERS = 1024
MAX_LAYER_NAME = 512
"""Characters of a layer's name, and so of a pattern for one."""
MAX_TOKENS = 2048
"""Tokens of an encoded text; those of encoders in use are at most 512, long prompts a few more."""
MAX_PROMPT = 100_000
"""Characters of a prompt."""
MAX_CONCEPTS = 100
"""Words that are searched beside a prompt."""
MAX_EDITS = 256
"""Edits of the attention of words in one run."""
MAX_CELLS = 10_000
"""Cells of a grid."""
MAX_STEPS = 10_000
"""Denoising steps of a run."""
MAX_WHOLE = 2**63 - 1
"""The largest whole number, and so the largest seed."""
_LARGEST = 1e30  # of any number that is measured or asked for

Text = Annotated[str, Meta(max_length=MAX_PROMPT)]
Name = Annotated[str, Meta(max_length=4096)]
Whole = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SideLength = Annotated[int, Meta(ge=1, le=2**20)]
SmallSide = Annotated[int, Meta(ge=1, le=2**12)]
"""Pixels on a side of a small picture; 64 on its short side, and one may be 64 times longer."""
Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Given = Annotated[int, Meta(ge=-MAX_WHOLE, le=MAX_WHOLE)] | Number
"""A number that a user gave: 4 stays 4, and 4.0 stays 4.0."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
Correlation = Annotated[float, Meta(ge=-1, le=1)]
Window = tuple[Fraction, Fraction]
TOKENS_AT_MOST, WORDS_AT_MOST = Meta(max_length=MAX_TOKENS), Meta(max_length=MAX_PROMPT)
"""How many of a prompt a file may list."""
Words = Annotated[tuple[Text, ...], TOKENS_AT_MOST]
ConceptTexts = Annotated[tuple[Text, ...], Meta(max_length=MAX_CONCEPTS)]
TokenKind = Literal["text", "start", "end", "pad"]
StepSource = Literal["prediction", "latents"]
"""What the pictures of a run's steps show: what the model foretold the finished picture to be, or
its latents, with their noise, as they were after the step."""
Files = Annotated[tuple[Name, ...], Meta(max_length=10_000)]
"""The names of the files in a folder, without those in inner folders."""
