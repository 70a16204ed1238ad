"""The recording of a pipeline that runs, and the edits of its attention.

It imports from `backends` and from `mathematics`, and knows nothing of pairs of prompts.
"""
