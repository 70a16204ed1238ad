"""Pipelines: loaded, measured, and how many pictures fit into their memory."""

__all__ = ["batches", "dimensions", "pipelines"]
