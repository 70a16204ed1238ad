"""Sweeps: many jobs in one or more processes, and the table and the gallery of their results."""
