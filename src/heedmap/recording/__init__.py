"""A trace: wiring and mathematics together, on a pipeline that runs.

It records what was asked for, and lets rules act. Nothing of two prompts and how they correspond;
of files only how an edit is noted there, and the largest numbers that they hold.
"""
