"""Lineage of matches: the events that a match consists of, as a tree, as text and as a picture."""
