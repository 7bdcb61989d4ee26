"""What those who come from other languages write works, or the error says how it is said here."""

import re
from importlib.resources import files
from itertools import product

import pytest

import ensue
from ensue.errors import QueryError
from support.cases import each_case

SLIPS = """
SEQ(1 a, 2 b)                                   => "1" a
SEQ(2nd a, B b)                                 => "2nd" a
SEQ(A a, B b) WHERE a.x > 3 PARTITION BY id     => WHERE [id]
SEQ(A a, B b) PARTITION BY id                   => WHERE [id]
SELECT * FROM trades                            => SQL with MATCH_RECOGNIZE is for ensue.sql
SELECT a.price FROM SEQ(A a, B b)               => SQL with MATCH_RECOGNIZE is for ensue.sql
FROM trades SEQ(A a, B b)                       => ensue.match(events, query)
SEQ(A a, B b) FROM trades                       => ensue.match(events, query)
WHERE a.price > 3                               => a query begins with its pattern
SEQ(A a, B b) JOIN names ON a.id = names.id     => JOIN ARCHIVE
SEQ(A a, B b) WHERE a.x => 3                    => write >=
SEQ(A a, B b) WHERE a.x > 3 && b.x < 4          => write 'and'
SEQ(A a, B b) WHERE a.x > 3 || b.x < 4          => write 'or'
SEQ(A a, B b) WHERE a.name = "x"                => 'x'
SEQ(A a, B b.price > 3)                         => conditions follow WHERE
SEQ(A a, B b WHERE b.price > 3)                 => conditions follow WHERE
SEQ(A a b.price > 3, B b)                       => conditions follow WHERE
SEQ(A a, B b) WITHIN 5 months                   => count days or weeks
SEQ(A a, B b) WITHIN 5 mintes                   => 'minutes'
SEQ(A a, B b) WITHIN '5 minutes'                => without quotes: WITHIN 5 minutes
SEQ(A a B b)                                    => is a comma missing before B?
SEQ(A a, B b                                    => '(' of line 1, column 4 is not closed
SEQ(A WITHIN 5                                  => '(' of line 1, column 4 is not closed
SEQ(A a; B b)                                   => parts are separated by commas
SEQ[A a, B b]                                   => SEQ(A a, B b)
SEQ()                                           => SEQ(A a, B b)
SEQ(A a,, B b)                                  => a comma too many
A a, B b                                        => SEQ(A a, B b)
A a AND B b                                     => AND(A a, B b)
A a FOLLOWED BY B b                             => A a -> B b
A a -> B b ->                                   => an event is missing
A a --> B b                                     => write ->
EVERY A a -> B b                                => leave out EVERY
PATTERN (A B+ C)                                => B+ b[]
SEQ(A a, B b) DEFINE b AS price > 3             => MATCH_RECOGNIZE
SEQ(A a, B b*)                                  => B+ b[]
SEQ(A as a, B as b)                             => without AS: A a
SEQ(a: A, b: B)                                 => the type comes first
SEQ(A a, B+ b[]) WHERE b[0].price > 3           => b[1]
SEQ(A a, B+ b[]) WHERE b.length > 3             => b.LEN
SEQ(A a, B+ b[]) WHERE len(b) > 3               => b.LEN
SEQ(A a, B+ b[]) WHERE size(b) > 3              => a.LEN
SEQ(A a, B b) WHERE a.x > 3 AND                 => a condition is missing after AND
SEQ(A a, B b) WHERE a.x > 3, b.x < 4            => join conditions with 'and'
SEQ(A a, B b) WHERE a.x is 3                    => compare with =
SEQ(A a, B b) WHERE a.x between 1 to 3          => BETWEEN 1 AND 3
SEQ(A a, B b) WHERE a.name like x%              => LIKE 'x%'
SEQ(A a, B b) WHERE a.name ~ 'x'                => regexp_matches
SEQ(A a, B b) WHERE a.name contains 'x'         => contains(a.name, 'x')
SEQ(A a, B b) WHERE a.name in ['x', 'y']        => IN ('x', 'y')
SEQ(A a, B b) WHERE if a.x > 3 then 1           => if(a.price > 3, 1, 0)
SEQ(A a, B b) WHERE a.x::int > 3                => CAST(a.price AS int)
SEQ(A a, B b) WHERE a->x > 3                    => a.price
SEQ(A a, B b) WHERE a.x ** 2 > 3                => power(a.x, 2)
SEQ(A a, B b) WHERE a.x ^ 2 > 3                 => power(a.x, 2)
SEQ(A a, B b) WHERE a.x > 1,000                 => 1000
SEQ(A a, B b) WHERE a.t > 2026-01-01            => DATE '2026-01-01'
SEQ(A a, B b) WHERE a.x > $low                  => :low
SEQ(A a, B b) WHERE a.x > {low}                 => :low
SEQ(A a, B b) WHERE a.x > ?                     => params=
SEQ(A a, B b) WHERE a.x > 3 # fine              => a comment begins with --
SEQ(A a, B b) // fine                           => a comment begins with --
SEQ(A a, B b) RETURN a.price p                  => AS p
SEQ(A a, B b) RETURN                            => RETURN a.price
SEQ(A a, B b) TOP 10                            => LIMIT 10
SEQ(A a, B b) LIMIT ten                         => LIMIT 10
SEQ(A a, B b) SKIP PAST LAST EVENT              => AFTER MATCH SKIP
SEQ(A a, B b) WHERE a.t > now()                 => :now
SEQ(A a, B b) WHERE weekday(a.t) = 1            => isodow 1 on Mondays
SEQ(A a, B b) WHERE date_format(a.t, 'y') = 'x' => strftime
SEQ(A a, B b) WHERE random() > 0.5              => nothing in it is random
SEQ(A a, B b) WHERE average(a.x) > 3            => 'avg'
SEQ(A a, B b) WHERE lenght(a.name) > 3          => 'length'
SEQ(A a, B b) WHERE lag(a.x) > 3                => a[i-1].price
SEQ(A a, B b) WHERE int(a.x) > 3                => CAST(x AS int)
"""


def test_the_hint_says_how_it_is_said_here():
    lines = [line for line in SLIPS.strip().splitlines() if "=> 3 " not in line]
    with each_case() as case:
        for text, hint in (re.split(r"\s*=> (?=\S)", line) for line in lines):
            with case(text):
                with pytest.raises(QueryError) as error:
                    ensue.parse(text)
                assert hint in str(error.value.hint)


def test_an_arrow_for_at_least():
    with pytest.raises(QueryError, match="write >= for"):
        ensue.parse("SEQ(A a, B b) WHERE a.x => 3")


# -------------------------------------------------------------------------- keywords as names


def keywords():
    """The words of the grammar, from its tokens."""
    grammar = files("ensue.parser").joinpath("patterns.lark").read_text("utf-8")
    found = set()
    for line in grammar.splitlines():
        token = re.match(r"_?[A-Z_]+(?:\.\d)?: /(.*)/i$", line)
        if token:
            lead = re.sub(r"\\[swWd]", "", re.split(r"\(\?[!=]", token[1])[0])
            found |= {word.lower() for word in re.findall(r"[A-Za-z]{2,}", lead)}
    return sorted(found - {"skip", "till", "match", "contiguity"})


VALUES = {"not", "null", "true", "false"}  # they are values, or stand before one
GROUPS = {"seq", "and", "or"}
PLACES = {
    "a variable": "SEQ(A a, B {0}) WHERE {0}.x > a.x and [id] RETURN {0}.x AS y",
    "the first variable": "SEQ(A {0}, B b) WHERE {0}.x > b.x",
    "a Kleene variable": "SEQ(A a, B+ {0}[]) WHERE {0}[1].x > a.x and count({0}) > 1",
    "a type": "SEQ(A a, {0} b, C c) WHERE a.x > b.x",
    "a field": "SEQ(A a, B b) WHERE a.{0} > b.{0} and [{0}] RETURN a.{0} AS y",
    "a column": "SEQ(A a, B b) RETURN a.x AS {0}",
}


def test_there_are_keywords():
    assert {"within", "order", "limit", "return", "event", "where", "group"} <= set(keywords())


def test_keywords_are_names_where_a_name_is_meant():
    with each_case() as case:
        for place, word in product(PLACES, keywords()):
            with case(f"{word} as {place}"):
                _is_a_name(place, word)


def _is_a_name(place, word):
    text = PLACES[place].format(word)
    quoted = ensue.parse(PLACES[place].format(f'"{word}"'))
    assert ensue.parse(ensue.show(quoted)) == quoted
    refused = word in (VALUES if "variable" in place else GROUPS if place == "a type" else ())
    if refused:
        with pytest.raises(QueryError) as error:
            ensue.parse(text)
        assert f'"{word}"' in str(error.value.hint)
    elif (word, place) not in (("not", "a type"), ("any", "a type")):  # !b, and all types
        assert ensue.parse(text) == quoted
