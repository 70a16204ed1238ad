"""Sweeps: many jobs in one or more processes, and the table and the gallery of their results."""

TABLE = "results.parquet"  # in the folder of a sweep
