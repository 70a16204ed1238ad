"""Files, read without trust and written whole or not at all.

What a saved result holds has one schema for each file, here; that of a recording is made of the
types that it holds, in `maps.recordings`. No torch; what the files mean is not known here.
"""

__all__ = [
    "ablations",
    "arrays",
    "explanations",
    "kinds",
    "notes",
    "pictures",
    "placing",
    "reading",
    "reports",
    "schemas",
    "settings",
    "values",
    "writing",
]
