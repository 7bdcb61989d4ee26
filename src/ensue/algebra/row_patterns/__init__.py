"""SQL's row patterns: what stands in a MATCH_RECOGNIZE clause."""
