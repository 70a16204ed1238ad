"""A mutation run: what can be broken in the house (`mutants`), and who notices (`trials`)."""
