"""Whatever is written, the answer is a query or a QueryError."""

import pickle
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parser.test_papers import SASE, SASE_PLUS, THEFT, ZEUS

from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.query import Query
from ensue.parser import registry as table
from ensue.parser.pattern_parser import parse, parse_statement
from ensue.printing.pattern_printer import format_query
from support.seeds import THOROUGH, scaled

VALID = [
    SASE,
    SASE_PLUS,
    THEFT,
    ZEUS,
    """EVENT X AS AND(A a, OR(B b, C? c), !D d) WHERE not a.x in (1, -2.5, 'q') or b.y is null
    WITHIN 20 EVENTS AFTER MATCH SKIP TO LAST a RETURN a.x AS "q q", b HAVING 1 = 1;""",
    """A a WITHIN 5 s LEFT JOIN ARCHIVE old SEQ(B b, C+ c[]) WHERE b.x = 1
    AFTER MATCH SKIP TO LAST c RANGE BETWEEN 30 days AND 1 day BEFORE START LAST 2 ON [k]
    ANTI JOIN ARCHIVE "o o" D d RANGE 5 h BEFORE END RETURN a.x, b HAVING a.x is null LIMIT 3""",
]
VOCABULARY = [
    *("EVENT", "PATTERN", "AS", "SEQ", "AND", "OR", "NOT", "!", "\u2227", "\u2228", "\u00ac"),
    *("WHERE", "WITHIN", "AFTER", "MATCH", "SKIP", "TO", "NEXT", "PAST", "LAST", "FIRST", "ROW"),
    *("RETURN", "HAVING", "IS", "IN", "BETWEEN", "LIKE", "TRUE", "FALSE", "NULL", "TIMESTAMP"),
    *("DATE", "INTERVAL", "EVENTS", "minutes", "s", "skip_till_next_match", "strict_contiguity"),
    *("(", ")", "[", "]", "{", "}", ",", ".", "..", ";", "->", "+", "-", "*", "/", "%", "||"),
    *("?", "=", "!=", "<", ">=", "80%", "0", "1", "2.5", "1e5", "''", "'x'", "'2026-01-01'"),
    *("'5'", '"q"', "`q`", "A", "B", "a", "b", "i", "LEN", "x", "avg", "count", "percentile"),
    *("abs", "foo", "--", "/*", "*/", "JOIN ARCHIVE", "LEFT", "ANTI", "JOIN", "ARCHIVE", "RANGE"),
    *("BEFORE", "START", "END", "ON", "LIMIT", "JOIN ARCHIVE o B c RANGE 5 BEFORE START"),
]
INSERTED = st.sampled_from(VOCABULARY) | st.text(max_size=2)
MANY = settings(max_examples=scaled(120), deadline=None)
PATIENCE = 10  # seconds of processor time; each of these texts takes a few at most


@pytest.fixture
def impatient():
    """Fails a test that takes much longer than it may."""

    def give_up(*_):
        raise TimeoutError(f"more than {PATIENCE} seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def read(text):
    """The query, or the error; anything else that is raised fails the test."""
    try:
        return parse_statement(text)
    except QueryError as error:
        return error


def answers(text):
    answer = read(text)
    if isinstance(answer, QueryError):
        assert str(answer)
        assert answer.span is None or 0 <= answer.span.start <= len(text)
    else:
        assert isinstance(answer, Query | ArchiveJoinQuery)
        assert parse_statement(format_query(answer)) == answer


@MANY
@given(st.text())
def test_any_text(text):
    answers(text)


@MANY
@given(st.lists(st.sampled_from(VOCABULARY), max_size=25), st.sampled_from(["", " "]))
def test_any_tokens(tokens, between):
    answers(between.join(tokens))


@MANY
@given(st.lists(st.sampled_from(VOCABULARY), max_size=12))
def test_any_tokens_behind_a_pattern(tokens):
    answers("SEQ(A a, B+ b[]) WHERE " + " ".join(tokens))


@MANY
@given(st.lists(st.sampled_from(VOCABULARY), max_size=12))
def test_any_tokens_behind_a_join(tokens):
    answers("A a JOIN ARCHIVE old B+ b[] RANGE 5 BEFORE START " + " ".join(tokens))


@st.composite
def slips(draw):
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text) - 1))
        to = draw(st.integers(at, min(at + 6, len(text))))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + text[at:]
            case 2:
                text = text[:at] + text[at : at + 2][::-1] + text[at + 2 :]
            case _:
                text = text[:at] + draw(INSERTED) + text[at:]
        text = text or "A"
    return text


@MANY
@given(slips())
def test_any_slip_in_a_valid_query(text):
    answers(text)


DEEP = 3_000


@pytest.mark.parametrize(
    "text",
    [
        "A a WHERE " + "(" * DEEP + "a.x = 1" + ")" * DEEP,
        "A a WHERE " + "(" * DEEP,
        "A a WHERE " + "not " * DEEP + "a.x",
        "A a WHERE a.x = " + "- " * DEEP + "1",
        "A a WHERE a.x = " + "1 + " * DEEP + "1",
        "A a WHERE a.x = " + "abs(" * DEEP + "1" + ")" * DEEP,
        "A a WHERE a.x = avg(" + "- " * DEEP + "a.x)",
        "A a WHERE " + "(a.x and " * DEEP + "a.x" + ")" * DEEP,
        "A a WHERE " + "(1 = 1 or " * 150 + "a.x" + ")" * 150,
        "A a WHERE " + "(" * 90 + "a.x" + (" or a.x" * 40 + ")") * 90,
        "(" * DEEP + "A a" + ")" * DEEP,
        "SEQ(" * DEEP + "A a" + ")" * DEEP,
        "SEQ(A a, " + "!" * DEEP + "B b, C c)",
        "A a" + "(" * DEEP,
        "[" * DEEP,
    ],
    ids=lambda text: text[:24],
)
def test_deep_nesting_is_refused(text):
    with pytest.raises(QueryError):
        parse(text)


SHAPES = {
    "brackets": lambda n: "A a WHERE " + "(" * n + "a.x" + ")" * n,
    "not": lambda n: "A a WHERE " + "not " * n + "a.x",
    "minus": lambda n: "A a WHERE a.x = " + "- " * n + "a.x",
    "sum": lambda n: "A a WHERE a.x = " + "a.x + " * n + "1",
    "calls": lambda n: "A a WHERE a.x = " + "abs(" * n + "a.x" + ")" * n,
    "in": lambda n: "A a WHERE " + "a.x in (" * n + "a.x" + ")" * n,
    "aggregate": lambda n: "A+ a[] WHERE 1 = avg(" + "- " * n + "a.x)",
    "or in brackets": lambda n: "A a WHERE " + "(" * n + "a.x" + " or a.y)" * n,
    "wide or in brackets": lambda n: "A a WHERE " + "(" * n + "a.x" + (" or a.y" * 20 + ")") * n,
    "and in or": lambda n: "A a HAVING " + "(a.x or a.y and " * n + "a.x" + ")" * n,
    "groups": lambda n: "SEQ(A a0, " + "".join(
        f"{'AND' if k % 2 else 'SEQ'}(A a{k}, B b{k}, " for k in range(1, n)
    ) + "C c" + ")" * n,
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_deepest_query_that_is_taken_can_be_walked(shape, impatient):
    taken, answer = 0, None
    for depth in (*range(2, 20, 3), *range(20, 420, 9 if THOROUGH else 25)):
        text = SHAPES[shape](depth)
        answer = under(250, lambda text=text: read(text))
        if isinstance(answer, QueryError):
            break
        taken = depth
        # Those who come after have to walk it too.
        assert under(100, lambda query=answer: parse(format_query(query))) == answer
        assert hash(answer) == hash(parse(text))
        assert repr(answer)
        assert pickle.loads(pickle.dumps(answer)) == answer
    assert taken >= 8
    assert "nested too deeply" in answer.problem


def under(frames, work):
    """Does the work from deep inside other calls, as a notebook or a web server does."""
    return work() if frames == 0 else under(frames - 1, work)


def test_a_reasonable_depth_is_fine():
    parse("A a WHERE " + "(" * 80 + "a.x = 1" + ")" * 80)
    parse("A a WHERE a.x = " + "abs(" * 40 + "a.y" + ")" * 40)
    parse("A a WHERE a.x = " + " + ".join(["a.y"] * 150))


def test_long_queries_are_fine():
    assert len(parse("A a WHERE " + " and ".join(["a.x = 1"] * 500)).where) == 500
    parse("A a WHERE " + " or ".join(["a.x = 1"] * 2000))
    parse("A a HAVING " + " and ".join(["a.x = 1"] * 2000))
    parse("A a WHERE a.x IN (" + ", ".join(map(str, range(5000))) + ")")
    parse("SEQ(" + ", ".join(f"A a{n}" for n in range(500)) + ")")


LONG = 100_000  # characters: the square of it would take many minutes


@pytest.mark.parametrize(
    "text",
    [
        "EVENT {word}(",
        "SEQ({word} a, B b",
        "SEQ(A a, B b) WHERE a.{word} =",
        "SEQ(A a, B b) WHERE {word}(a.x) >",
        "SEQ(A a) WHERE a.x = '{word}' b",
        "SEQ(A a) WHERE a.x BETWEEN {word} TO",
        "SEQ(A a) JOIN ARCHIVE b B b RANGE BETWEEN {word} !",
        "SEQ(A a) {comments}",
        "SEQ(A a) {spaces}!",
        "SEQ(A a) WHERE a.x = '{comments}",
        "@(Depot)(ARITH:{word} =",
        "@(Depot)(STRING:x LIKE '{word}",
        "A && {comments}",
        "A && B {withs}",
        "{comments}",
    ],
)
def test_a_syntax_error_in_a_long_text_takes_no_time(text, impatient):
    """Time grows with the length of the text, not with its square."""
    pieces = {"word": "x", "comments": "/* x ", "spaces": " ", "withs": "WITH x = "}
    filled = {name: piece * (LONG // len(piece)) for name, piece in pieces.items()}
    with pytest.raises(QueryError):
        table.parse(text.format(**filled))


@pytest.mark.parametrize("number", ["9" * 5000, "1e" + "9" * 5000, "0." + "0" * 5000 + "1"])
@pytest.mark.parametrize("text", ["a.x = {}", "a.x = {}%", "a.x = {} hours", "a.x = INTERVAL '{}' HOUR", "a.x IN ({})"])
def test_enormous_numbers(number, text):
    answers("A a WHERE " + text.format(number))
    answers(f"A{{{number}}} a[] WHERE a[{number}].x = 1 WITHIN {number}")


def test_a_typical_query_takes_a_few_milliseconds():
    parse(SASE_PLUS)
    assert min(_seconds(lambda: parse(SASE_PLUS)) for _ in range(20)) < 0.005


def _seconds(work):
    start = time.process_time()  # what others do on the machine does not count
    work()
    return time.process_time() - start
