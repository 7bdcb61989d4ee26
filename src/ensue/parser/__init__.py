"""Parsers of the query languages, which turn text into the IR, and the query builder."""
