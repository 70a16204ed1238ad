"""Sweeps: many jobs in one or more processes, and the table of their results."""
