"""MATCH_RECOGNIZE of SQL: text to a `Recognition` and back."""
