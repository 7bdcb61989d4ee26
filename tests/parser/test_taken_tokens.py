"""What may come next in a text: our own look at Lark's tables says what Lark says."""

import pytest

from ensue.parser.grammar import _accepts
from ensue.parser.pattern_parser import load_pattern_grammar

TEXTS = [
    "SEQ(A a, !B b, (C|D)+ c[] UNTIL X u) WHERE [id] and (a.x > 3 or not b.y in (1, 2)) WITHIN 5",
    "EVENT E AS A a THEN NEXT B b USING next RETURN a.*, avg(b.x) AS m GROUP BY m ORDER BY m DESC",
    "A a JOIN ARCHIVE old B b WHERE b.x = CASE WHEN 1 = 1 THEN 2 ELSE 3 END RANGE 5 BEFORE START",
    "A a WHERE " + "(" * 20 + "a.x" + " and a.y)" * 20,
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_kinds_are_taken(text):
    reading = load_pattern_grammar("start").parse_interactive(text, start="start")
    for token in reading.lexer_thread.lex(reading.parser_state):
        named = {kind for kind in reading.choices() if kind.isupper() and kind != "$END"}
        taken = {kind for kind in named if _accepts(reading.parser_state, kind)}
        assert taken == reading.accepts() - {"$END"}
        reading.feed_token(token)
