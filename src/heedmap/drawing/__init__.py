"""One call each: from prompts to results, and from saved results to the same again.

What an edit takes from its source is planned here, before the first step. Nothing of files.
"""

__all__ = ["editing", "generation", "repeating", "settings"]
