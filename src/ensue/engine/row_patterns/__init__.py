"""Finding the matches of a MATCH_RECOGNIZE clause in rows."""
