"""The experiments of the papers, measured here: one module a topic."""
