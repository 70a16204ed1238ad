"""Sweeps: many jobs in one or more processes, and the table and the gallery of their results."""

TABLE = "results.parquet"
"""The file of a sweep's table in its folder."""
