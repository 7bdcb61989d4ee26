"""What those who come from other languages write, and how it is said here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BY_WORDS = {
    "PARTITION": "partition by a field in brackets, among the conditions: WHERE [id]",
    "SELECT": "a query is a pattern, SEQ(A a, B b) WHERE ... RETURN a.price; SQL with "
    "MATCH_RECOGNIZE is for ensue.sql",
    "DEFINE": "this looks like MATCH_RECOGNIZE (PATTERN ... DEFINE ...), which stands in SQL, for "
    "ensue.sql; here it is SEQ(A a, B+ b[]) WHERE b[i].price > 3",
    "EVERY": "leave out EVERY: all matches are found anyway",
    "TOP": "write LIMIT 10 at the end",
    "SKIP": "write AFTER MATCH SKIP PAST LAST EVENT, or SKIP TO NEXT EVENT",
    "FOLLOWED": "write A a -> B b, or SEQ(A a, B b), for one event after the other",
    "FOLLOWEDBY": "write A a -> B b, or SEQ(A a, B b), for one event after the other",
}
_EVENTS = "a query names no table: pass the events in the call, ensue.match(events, query)"
_INFIX = {
    "CONTAINS": "contains(a.name, 'x')",
    "STARTSWITH": "starts_with(a.name, 'x')",
    "STARTS": "starts_with(a.name, 'x')",
    "ENDSWITH": "ends_with(a.name, 'x')",
    "ENDS": "ends_with(a.name, 'x')",
    "MATCHES": "regexp_matches(a.name, 'x+')",
    "SIMILAR": "regexp_matches(a.name, 'x+')",
    "GLOB": "a.name LIKE 'x%'",
    "DIV": "div(a.x, 2)",
    "MOD": "a.x % 2",
    "XOR": "(a and not b) or (b and not a)",
}
_CLAUSES = ("WHERE", "WITHIN", "AFTER", "RETURN", "HAVING", "LIMIT", "CHOOSE")
_CONDITIONS = "conditions follow WHERE, after the pattern: SEQ(A a, B b) WHERE b.price > 3"
_TAIL = 200  # characters; patterns that end in $ take the square of the length
_COMPARES = re.compile(r"[=<>!≤≥≠]")
_OPEN = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|[()]""")


def tail_of(text: str) -> str:
    """The end of a text, as far as it says what is meant behind it."""
    return text[-_TAIL:]


def last_word(text: str) -> str:
    """The word that a text ends with, in upper case; of a very long one the end."""
    last = re.search(r"\w*$", tail_of(text))
    return last[0].upper() if last else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parser stopped: at `found`, with `before` it and `rest` from it on."""

    before: str
    found: str
    rest: str
    expected: set[str]

    @property
    def word(self) -> str:
        """The word before it, in upper case."""
        return last_word(self.before)

    @property
    def first(self) -> str:
        """The first word of the text, in upper case."""
        begins = re.match(r"(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*(\w*)", self.before + " " + self.rest)
        return begins[1].upper() if begins else ""

    @property
    def in_brackets(self) -> bool:
        depth = 0
        for token in _OPEN.finditer(self.before):
            depth += {"(": 1, ")": -1}.get(token[0], 0)
        return depth > 0

    @property
    def in_pattern(self) -> bool:
        """Whether parts of a pattern, and no conditions, are read here."""
        return bool(self.expected & {"_ARROW", "_SEQ", "_THEN"})


def hints(place: Place) -> Iterator[str]:
    """What may be meant, the surest first."""
    yield from _statements(place)
    yield from _patterns(place)
    yield from _conditions(place)
    yield from _signs(place)
    yield from _ends(place)


def _statements(place: Place) -> Iterator[str]:
    word = place.found.upper()
    if place.first == "SELECT":
        yield _BY_WORDS["SELECT"]
    if place.first == "FROM" or (word == "FROM" and place.in_pattern and not place.in_brackets):
        yield _EVENTS
    conditions = re.search(r"(?i)\b(where|return|having|on)\b", place.before)
    if word == "," and not place.in_brackets and not conditions:
        yield "write SEQ(A a, B b) for one event after the other"
    if place.first in _CLAUSES and place.in_pattern and not place.in_brackets:
        yield f"a query begins with its pattern: SEQ(A a, B b) {place.first} ..."
    if place.first == "EVERY" or word in _BY_WORDS:
        yield _BY_WORDS[word if word in _BY_WORDS else "EVERY"]


def _patterns(place: Place) -> Iterator[str]:
    found, before = place.found, place.before
    if "_SEQ" in place.expected and found[:1].isdigit():
        whole = re.match(r"\w+", place.rest)
        assert whole is not None
        yield f'a type that does not begin with a letter is quoted: "{whole[0]}" a'
    if not place.in_pattern and place.word in ("SEQ", "AND", "OR") and place.expected == {"LPAR"}:
        if found == "[":
            yield f"parts stand in parentheses: {place.word}(A a, B b)"
        else:
            written = before[-len(place.word) :]
            yield f'a type called like a keyword is quoted: "{written}" {found}'
    where = found.upper() == "WHERE" or (place.word == "WHERE" and place.in_pattern)
    if place.in_brackets and where and ")" in place.rest:
        yield _CONDITIONS
    if not place.in_pattern:
        return
    if found in ("+", "*", "{", "?") and place.in_brackets:
        yield "a quantifier stands behind the type: B+ b[]"
    if place.word == "AS":
        yield "a variable stands behind its type, without AS: A a"
    if found == ":":
        yield "the type comes first, then the variable: A a"
    if found == "." or _COMPARES.match(found) or re.match(r"\w+\s*\.\s*\w+\s*[=<>!]", place.rest):
        yield _CONDITIONS
    if found.upper() in ("AND", "OR") and not place.in_brackets:
        yield (
            "AND(A a, B b) is both in any order, OR(A a, B b) one of them, and SEQ(A a, B b) one "
            "after the other"
        )
    if "_SEQ" in place.expected and found == "," and before.endswith(","):
        yield "there is a comma too many"
    if "_SEQ" in place.expected and found == ")" and before.endswith("("):
        yield "name events, with a variable each: SEQ(A a, B b)"
    if place.rest.startswith("-->"):
        yield "write -> for one event after the other; a comment is -- and a blank"


def _conditions(place: Place) -> Iterator[str]:
    found, word = place.found, place.word
    if place.in_pattern:
        return
    if found.upper() in _INFIX:
        yield f"write {_INFIX[found.upper()]}"
    if word == "IS":
        yield "compare with =; IS asks for NULL, TRUE, FALSE or DISTINCT FROM"
    if re.search(r"(?i)\bbetween\s+\S+$", tail_of(place.before)) and found.upper() == "TO":
        yield "say BETWEEN 1 AND 3"
    if word in ("LIKE", "ILIKE"):
        yield "the pattern is a string in single quotes: LIKE 'x%'"
    if word == "IN" and place.expected == {"LPAR"}:
        yield "the values stand in parentheses: IN ('x', 'y')"
    if word == "IF":
        yield "if is a function: if(a.price > 3, 1, 0); or CASE WHEN a.price > 3 THEN 1 END"
    if place.rest.startswith("->"):
        yield "a field is written with a dot: a.price"
    if _COMPARES.match(found) and re.search(r"\|\|[^|]*$", tail_of(place.before)):
        yield "|| joins strings; between conditions write 'or'"
    if found == "," and re.match(r",\d{3}\b", place.rest):
        yield "a number has no commas: 1000"
    if found == "," and "_AND" not in place.expected and "COMMA" not in place.expected:
        yield "join conditions with 'and'"
    if found.isidentifier() and "_AS" in place.expected:
        yield f"a column is named with AS: AS {found}"
    if found in (".", "[") and word in ("NOT", "TRUE", "FALSE", "NULL"):
        yield f'a variable called like a keyword is quoted: "{word.lower()}".price'


def _signs(place: Place) -> Iterator[str]:
    found, rest = place.found, place.rest
    named = re.match(r"[$@](\w+)|\$?\{(\w+)\}|\?", rest)
    if named and "NUMBER" in place.expected:
        name = named[1] or named[2] or "low"
        yield f'a parameter is written :{name}, and its value given by params={{"{name}": ...}}'
    if rest.startswith("::"):
        yield "write CAST(a.price AS int)"
    if found == "~":
        yield "regexp_matches(a.name, 'x+') asks for a regular expression"
    if found == "^" or (found == "*" and place.before.endswith("*")):
        yield "write power(a.x, 2)"
    if found == "#" or rest.startswith("//"):
        yield "a comment begins with --"
    if place.word == "WITHIN" and found[:1] == "'":
        yield f"write it without quotes: WITHIN {found[1:-1]}"


def _ends(place: Place) -> Iterator[str]:
    if place.found:
        return
    if place.word in ("AND", "OR", "WHERE"):
        yield f"a condition is missing behind {place.word}"
    if place.word == "RETURN":
        yield "say what: RETURN a.price, b.price AS later"
    if place.before.endswith("->") or place.word == "THEN":
        yield "an event is missing at the end: A a -> B b"
