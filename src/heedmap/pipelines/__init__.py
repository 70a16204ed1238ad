"""The public functions that call a pipeline: from prompts to results, and from saved results on."""
