"""Any MATCH_RECOGNIZE, written in its one spelling, is read as the same clause."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ensue.ir.expression import Between, Binary, FieldRef, FunctionCall, In, IsNull, Like, Literal, Unary
from ensue.ir.row_pattern import (
    CLASSIFIER,
    OPERAND,
    ROW,
    Alternation,
    Concatenation,
    Define,
    EmptyRowPattern,
    Exclusion,
    MatchNumber,
    Measure,
    Navigation,
    PartitionAnchor,
    PartitionKey,
    Permutation,
    Repetition,
    RowAggregate,
    RowExpression,
    RowPatternQuery,
    RowSkip,
    RowSkipTarget,
    RowSortKey,
    RowsPerMatch,
    RowVariable,
    collect_variables,
)
from ensue.ir.traversal import build_chain, get_operands, rewrite_expr
from ensue.parser.sql.clause_parser import parse_clause
from ensue.printing.sql_printer import format_clause

AWKWARD = (
    *("price", "Unit Price", 'q"t', "über", "`", "select", "case", "PATTERN", "final", "order"),
    *("running", "first", "last", "prev", "end", "date", "timestamp", "interval", "true", "in"),
    *("is", "not", "row", "by", "as", "x", "desc", "nulls", "filter", "within", "values", "_"),
    *("if", "left", "any", "current_date", "count", "map", "array", "escape", "div", "xor"),
    *("e", "n", "b", "r", "u", "x1", "at", "match", "skip", "like", "over", "group", "limit"),
)
VARIABLES = ("A", "B", "UP", "a", "Up Down", "PERMUTE", "FINAL", "ORDER", "SELECT", "É")
names = st.sampled_from(AWKWARD) | st.text(min_size=1, max_size=4)
texts = st.sampled_from(["it's", "--x", "/* y", "%_\\", "", "\n", '"']) | st.text(max_size=4)
instants = (
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.sampled_from([UTC]))
    | st.datetimes()
)
constants = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=0),
    st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    texts,
    instants,
    st.timedeltas(min_value=timedelta(days=-9999), max_value=timedelta(days=9999)),
).map(Literal)


# ------------------------------------------------------------------------------------- patterns


def _repeated(part):
    return st.builds(
        lambda part, least, more, greedy: Repetition(
            part, least, None if more is None else max(least + more, 1), greedy
        ),
        part,
        st.integers(0, 3),
        st.none() | st.integers(0, 3),
        st.booleans(),
    )


def _larger(part):
    several = st.lists(part, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        several.map(Concatenation),
        several.map(Alternation),
        st.lists(part, min_size=1, max_size=3).map(tuple).map(Permutation),
        _repeated(part),
        part.map(Exclusion),
    )


patterns = st.recursive(
    st.one_of(
        st.sampled_from(VARIABLES).map(RowVariable),
        st.just(EmptyRowPattern()),
        st.sampled_from([PartitionAnchor("start"), PartitionAnchor("end")]),
    ),
    _larger,
    max_leaves=8,
)


# ---------------------------------------------------------------------------------- expressions


def _inverted(operand):
    """What `NOT x` reads as: conditions that have a NOT of their own take it."""
    if isinstance(operand, In | Between | Like | IsNull) and not operand.negated:
        return operand
    return Unary("not", operand)


def _composed(part):
    signs = ["+", "-", "*", "/", "%", "||", "=", "!=", "<", "<=", ">", ">="]
    return st.one_of(
        st.builds(Binary, st.sampled_from(signs), part, part),
        st.builds(build_chain, st.sampled_from(["and", "or"]), st.lists(part, min_size=2, max_size=4)),
        part.map(lambda operand: Unary("-", operand)),
        part.map(_inverted),
        st.builds(IsNull, part, st.booleans()),
        st.builds(In, part, st.lists(part, min_size=1, max_size=3).map(tuple), st.booleans()),
        st.builds(Between, part, part, part, st.booleans()),
        st.builds(Like, part, texts, st.booleans()),
        st.builds(lambda x: FunctionCall("upper", (x,)), part),
        st.builds(lambda x, y, z: FunctionCall("substring", (x, y, z)), part, part, part),
        st.builds(lambda x, y: FunctionCall("coalesce", (x, y)), part, part),
        st.builds(lambda x: FunctionCall("trim", (x,)), part),
        st.builds(lambda x: FunctionCall("year", (x,)), part),
    )


def expressions(leaves):
    return st.recursive(leaves, _composed, max_leaves=6)


columns = names.map(lambda name: FieldRef(ROW, name))
row_expressions = expressions(columns | st.just(FieldRef(ROW, CLASSIFIER)) | constants)
plain_expressions = expressions(columns | constants)


def _looks(expr):
    match expr:
        case FieldRef():
            return True
        case Literal():
            return False
        case _:
            return any(map(_looks, get_operands(expr)))


looking = row_expressions.filter(_looks)  # of what looks at no row, all rows are meant


def orders(exprs):
    return st.lists(st.builds(RowSortKey, exprs, st.booleans(), st.booleans()), max_size=2).map(tuple)


row_orders, plain_orders = orders(row_expressions), orders(plain_expressions)


@st.composite
def reaches(draw, owners, define):
    match draw(st.sampled_from(["number", "navigation", "aggregate"])):
        case "number":
            return MatchNumber()
        case "navigation":
            return Navigation(
                draw(looking),
                draw(st.sampled_from(owners)),
                draw(st.booleans()),
                draw(st.integers(0, 2)),
                draw(st.integers(-2, 2)),
                not define and draw(st.booleans()),
            )
    final = not define and draw(st.booleans())
    owner = draw(st.sampled_from(owners))
    function = draw(st.sampled_from(["count", "sum", "array_agg", "max_by", "string_agg", "rows"]))
    only = draw(st.none() | row_expressions)
    order = draw(row_orders)
    if function == "rows":
        return RowAggregate("count", (), owner, final, False, only, ())
    arguments = [draw(looking)]
    if function == "max_by":
        arguments.append(draw(row_expressions))
    elif function == "string_agg":
        arguments.append(Literal(draw(texts)))
    distinct = function in ("count", "array_agg") and draw(st.booleans())
    return RowAggregate(function, tuple(arguments), owner, final, distinct, only, order)


value_expressions = expressions(st.integers(0, 2).map(lambda number: FieldRef(OPERAND, str(number))) | constants)


@st.composite
def values(draw, owners, define):
    found = draw(st.lists(reaches(owners, define), min_size=1, max_size=3))
    return _numbered(draw(value_expressions), found)


def _numbered(expr, found):
    """A value whose reaches are those that it uses, each once, in the order of the text."""
    used = []

    def change(node):
        if not isinstance(node, FieldRef):
            return node
        reach = found[int(node.name) % len(found)]
        if reach not in used:
            used.append(reach)
        return FieldRef(OPERAND, str(used.index(reach)))

    return RowExpression(rewrite_expr(expr, change), tuple(used))


# ------------------------------------------------------------------------------------- clauses


@st.composite
def row_patterns(draw):
    pattern = draw(patterns.filter(collect_variables))
    variables = collect_variables(pattern)
    members = st.sets(st.sampled_from(variables), min_size=1).map(
        lambda chosen: tuple(v for v in variables if v in chosen)
    )
    subsets = draw(st.dictionaries(st.sampled_from(["U", "v w", "SUBSET"]), members, max_size=2))
    owners = [(), *((v,) for v in variables), *subsets.values()]
    rows = draw(st.sampled_from(RowsPerMatch))
    if "Exclusion" in repr(pattern) and rows is RowsPerMatch.ALL_AND_UNMATCHED:
        rows = RowsPerMatch.ALL
    skip = RowSkip()
    if draw(st.booleans()):
        skips = {**{v: (v,) for v in variables}, **subsets}
        name = draw(st.sampled_from(list(skips)))
        skip = RowSkip(draw(st.sampled_from([RowSkipTarget.FIRST, RowSkipTarget.LAST])), name, skips[name])
    named = draw(st.lists(names, max_size=3, unique_by=str.lower))
    keys = draw(st.lists(st.builds(PartitionKey, plain_expressions, names), max_size=2))
    defined = draw(st.lists(st.sampled_from(variables), min_size=1, max_size=2, unique=True))
    return RowPatternQuery(
        pattern,
        tuple(keys),
        draw(plain_orders),
        tuple(Measure(draw(values(owners, False)), name) for name in named),
        rows,
        skip,
        tuple(subsets.items()),
        tuple(Define(variable, draw(values(owners, True))) for variable in defined),
        draw(st.none() | st.integers(min_value=1) | st.timedeltas(timedelta(microseconds=1), timedelta(days=99999))),
    )


@given(row_patterns())
def test_a_clause_that_is_shown_is_read_as_it_was(row_pattern):
    text = format_clause(row_pattern)
    found = parse_clause(text)
    assert found == row_pattern
    assert format_clause(found) == text
