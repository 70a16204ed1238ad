"""Files, read without trust and written whole or not at all.

What a saved result holds has one schema for each file, here and nowhere else. No torch; what the
files mean is not known here.
"""

__all__ = ["kinds", "notes", "reading", "reports", "schemas", "settings", "values", "writing"]
