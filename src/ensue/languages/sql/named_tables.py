"""The tables that a SQL query names, as far as its words tell."""

from ensue.languages.sql.tokens import KEYWORD, Dialect, tokens_of

_BEFORE = {"FROM", "JOIN", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE"}
_LISTS = {"FROM", "JOIN"}
_NO_LIST = {
    "SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "WINDOW", "QUALIFY", "LIMIT", "VALUES", "WITH",
}  # fmt: skip


def named_tables(text: str, dialect: Dialect = Dialect.DUCKDB) -> tuple[str, ...]:
    """The names that stand where a table may; some may be those of named queries, or none at all.

    >>> named_tables("WITH w AS (SELECT a, b FROM t x, u) SELECT c, d FROM w JOIN v USING (k)")
    ('t', 'u', 'w', 'v')
    >>> named_tables("SELECT 1 FROM a JOIN b ON a.x = f(b.x, c), d, (SELECT e, g FROM h) i, j")
    ('a', 'b', 'd', 'h', 'j')
    >>> named_tables("SELECT * FROM (trades) MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x < y)")
    ('trades',)
    """
    tokens, pairs = tokens_of(text, dialect)
    found: dict[str, None] = {}
    lists = [False]  # whether a comma parts tables, by depth of parentheses
    before, at = "", 0
    while at < len(tokens):
        token = tokens[at]
        if before == KEYWORD and token.word == "(":
            at, before = pairs[at] + 1, ")"  # a clause names no tables
            continue
        if token.word == "(":
            lists.append(lists[-1] and before in {*_LISTS, ",", "("})
        elif token.word == ")":
            lists.pop()
        elif token.word in _LISTS:
            lists[-1] = True
        elif token.word in _NO_LIST:
            lists[-1] = False
        opened = before in (",", "(") and lists[-1]
        if token.name is not None and (before in _BEFORE or opened):
            found.setdefault(token.name)
        before, at = token.word, at + 1
    return tuple(found)
