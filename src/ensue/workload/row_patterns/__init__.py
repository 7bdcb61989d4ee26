"""Clauses of SQL (MATCH_RECOGNIZE) as a kind of work."""
