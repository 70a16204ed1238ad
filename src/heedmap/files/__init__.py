"""Files, read without trust and written whole or not at all.

What a saved result holds has one schema a file, here and nowhere else. No torch; nothing of what
the files mean.
"""

__all__ = ["kinds", "reading", "schemas", "writing"]
