"""One call each: from prompts to results, and from saved results to the same again.

What an edit takes from its source is planned here, before the first step. Nothing is written to
the disk, and what a pipeline is made of and called with is asked of `wiring`.
"""
