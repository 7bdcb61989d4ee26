"""The table that a MATCH_RECOGNIZE clause gives."""
