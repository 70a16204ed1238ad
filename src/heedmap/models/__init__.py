"""Pipelines: loaded, measured, and how many pictures fit into their memory.

Nothing is recorded or drawn here.
"""

__all__ = ["batches", "dimensions", "pipelines"]
