"""Everything that knows diffusers: model families, and what their pipelines read and run."""
