"""How a MATCH_RECOGNIZE clause is run: its automaton, and which conditions a row alone decides."""
