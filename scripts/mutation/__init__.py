"""A mutation run: what can be broken (`mutants`), and which tests notice (`trials`)."""
