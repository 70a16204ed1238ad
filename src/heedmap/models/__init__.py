"""Pipelines: loaded, measured, and how many pictures fit into their memory.

Nothing is recorded or drawn here, and `pipelines` alone asks diffusers for one.
"""
