"""SQL queries with MATCH_RECOGNIZE clauses: where the clauses are, and the SQL around them."""
