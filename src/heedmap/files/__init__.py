"""Files, read without trust and written whole or not at all.

What a saved result holds has one schema for each file; that of the recording, which is made of what it
holds, is `maps.recordings.RecordingFile`. No torch; what the files mean is not known here.
"""

__all__ = ["kinds", "notes", "reading", "reports", "schemas", "settings", "values", "writing"]
