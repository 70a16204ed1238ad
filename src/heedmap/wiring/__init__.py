"""All that knows how diffusers builds its models, and where to listen.

Which layers read the text, what a pipeline encodes, at which step it is, what it is made of and
called with. A family of models is one file and a row of `registry`. Nothing of what is recorded or
changed there.
"""

__all__ = [
    "advice",
    "arguments",
    "colours",
    "concept_states",
    "decoding",
    "encodings",
    "family",
    "frames",
    "insides",
    "noise_levels",
    "noising",
    "parts",
    "patches",
    "predictions",
    "processors",
    "prompt_tables",
    "registry",
    "schedules",
    "skipping",
]
