"""All that knows how diffusers builds its models, and where to listen.

Which layers read the text, what a pipeline encodes, at which step it is. Nothing of what is
recorded or changed there.
"""

__all__ = ["encodings", "patches", "processors", "schedules", "unet"]
