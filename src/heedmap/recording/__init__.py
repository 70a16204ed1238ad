"""A trace: wiring and mathematics together, on a pipeline that runs.

It records what was asked for, and lets rules act. Nothing of prompts that are edited, and no
files.
"""

__all__ = ["edits", "recorder", "steering", "tracing"]
