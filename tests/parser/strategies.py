"""Random queries in normal form."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.functions import CIRCLE, EARTH_LOCATION, FUNCTIONS, LOCATION, WKT
from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, JoinKind, LookbackRange, RangeAnchor
from ensue.ir.expression import (
    Aggregate,
    Between,
    Binary,
    EventPosition,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.ir.pattern import And, Atom, Kleene, LoopExit, Maybe, Not, Or, Repeat, Seq, Then
from ensue.ir.query import Equivalence, Limit, Query, ReturnItem
from ensue.ir.selection import AfterMatch, ByEvents, ByTime, ByUnits, SkipTarget, Strategy
from ensue.ir.traversal import build_chain, get_kleene_variables, iterate_atoms, iterate_positive_atoms
from ensue.schema import ANY, TypeUnion, get_type_names

AWKWARD = (
    *("and", "Where", "within5", "seq", "null", "false", "between", "is", "or", "having"),
    *("pattern", "x y", 'q"t', "über", "i", "s", "end", "`", "5x"),
    *("using", "next", "any", "strict", "partition", "from"),
    *("case", "cast", "when", "then", "else", "ilike", "distinct"),
    *("join", "archive", "left", "anti", "range", "before", "start", "last", "on"),
)
# Mostly what needs escaping, and what means something elsewhere in the language.
escaped = ["it's", "'", "a''b", '"', "`", "--x", "/* y", "%_\\", "", "\n"]
texts = st.sampled_from(escaped) | st.text(max_size=6)
names = st.sampled_from(["price", "volume", "id", *AWKWARD]) | texts.filter(bool)

constants = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.datetimes(
        min_value=datetime(1000, 1, 1), timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
    ).map(lambda moment: moment.replace(fold=0)),
    st.timedeltas(min_value=timedelta(days=-30000), max_value=timedelta(days=30000)),
)
literals = st.builds(Literal, constants)


@st.composite
def patterns(draw, taken=()):
    """A pattern whose first part must occur, so that it is never empty."""
    free = names.filter(lambda name: name not in taken)
    fresh = iter(draw(st.lists(free, min_size=20, max_size=20, unique=True)))

    def types():
        match draw(st.integers(0, 7)):
            case 0:
                return ANY
            case 1:
                return TypeUnion(tuple(draw(st.lists(names, min_size=2, max_size=3, unique=True))))
            case _:
                return draw(names)

    def atom():
        return Atom(types(), next(fresh))

    def group(kind):
        return kind(tuple(single(kind is not And) for _ in range(draw(st.integers(2, 3)))))

    def times():
        least = draw(st.integers(0, 3))
        return least, draw(st.none() | st.integers(max(least, 1), 5))

    def patient():
        return draw(st.sampled_from([LoopExit.FORK, LoopExit.RELUCTANT]))

    def again(said=True):
        said = said and shape != "and"
        return draw(st.sampled_from(Strategy)) if said and not draw(st.integers(0, 3)) else None

    def single(said=True):
        match draw(st.integers(0, 4)):
            case 0:
                return Kleene(atom(), *times(), leave=patient(), inner=again(said))
            case 1:
                return Maybe(atom())
            case _:
                return atom()

    def part():
        match draw(st.integers(0, 10)):
            case 0:
                return Not(atom())
            case 1:
                return Not(Seq((atom(), atom())))
            case 2:
                return group(And)
            case 3:
                return group(Or)
            case 4:
                return Maybe(Seq((atom(), atom())))
            case 5:
                return Maybe(Kleene(atom(), 1, None))
            case 6:
                loop = Repeat(group(draw(st.sampled_from([Seq, Or]))), *times(), patient())
                return replace(loop, inner=again())
            case 7:
                eager = Kleene(atom(), *times(), leave=LoopExit.GREEDY)
                return Repeat(Seq((eager, Repeat(Seq((atom(), single())), *times()), atom())), 1, 2)
            case _:
                return single()

    def entered():
        chosen = part()
        if isinstance(chosen, Not) and isinstance(chosen.part, Atom) and draw(st.booleans()):
            return Then(chosen, Strategy.PARTITION)
        if isinstance(chosen, Kleene) and draw(st.booleans()):
            chosen = replace(chosen, until=Not(atom()))
        if isinstance(chosen, Not) or draw(st.integers(0, 2)):
            return chosen
        pause = draw(st.sampled_from([None, None, ByUnits(5), ByTime(90_000_000_000)]))
        return Then(chosen, draw(st.sampled_from(Strategy)), pause)

    shape = draw(st.sampled_from(["atom", "seq", "and", "or"]))
    if shape == "atom":
        return atom()
    if shape == "or":
        return Or((atom(), Seq((atom(), entered()))))
    if shape == "and":
        return And((atom(), Seq((atom(), part())), atom()))
    return Seq((atom(), *(entered() for _ in range(draw(st.integers(1, 3))))))


# Not those that do not take any expression.
CALLED = [f for f in FUNCTIONS.values() if f.name not in (CIRCLE, LOCATION, EARTH_LOCATION, WKT)]


def expressions(leaves):
    """Expressions of any shape over some leaves, without regard for kinds."""

    def around(inner):
        # Only the drawn function becomes a strategy: one for each of them takes seconds at every level.
        calls = st.sampled_from(CALLED).flatmap(
            lambda f: st.builds(FunctionCall, st.just(f.name), st.tuples(*[inner] * f.least))
        )
        return st.one_of(
            # Two of them, because what binds tighter than what is the hard part of printing.
            st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "%", "||"]), inner, inner),
            st.builds(Binary, st.sampled_from(["+", "-", "*", "and", "or"]), inner, inner),
            st.builds(Unary, st.just("not"), inner),
            st.builds(Unary, st.just("-"), inner.filter(lambda e: not isinstance(e, Literal))),
            st.builds(Binary, st.sampled_from(["=", "!=", "<", ">="]), inner, inner),
            st.builds(build_chain, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)),
            st.builds(IsNull, inner, st.booleans()),
            st.builds(In, inner, st.tuples(inner) | st.tuples(inner, inner), st.booleans()),
            st.builds(Between, inner, inner, inner, st.booleans()),
            st.builds(Like, inner, texts, st.booleans()),
            st.builds(FunctionCall, st.just("case"), st.tuples(inner, inner, inner)),
            st.builds(FunctionCall, st.just("case"), st.tuples(*[inner] * 4)),
            calls,
        )

    return st.recursive(leaves, around, max_leaves=10)


@st.composite
def aggregates(draw, variable, plain, positions):
    function = draw(st.sampled_from(["avg", "count", "percentile", "last"]))
    at = EventPosition.ALL if plain else draw(st.sampled_from(positions))
    if function == "count" and draw(st.booleans()):
        return Aggregate("count", variable, None, at)
    field = st.builds(FieldRef, st.just(variable), names, st.just(EventPosition.ONLY if plain else at))
    argument = draw(field | st.builds(Binary, st.just("*"), field, literals))
    percent = draw(st.floats(0, 100)) if function == "percentile" else None
    return Aggregate(function, variable, argument, at, percent)


def references(pattern, *, running):
    """Expressions of any shape over what conditions may speak of."""
    return expressions(leaves_of(pattern, running=running))


def simple(pattern):
    """Short conditions over what may be said of a whole match."""
    leaves = leaves_of(pattern, running=False)
    return st.one_of(
        st.builds(Binary, st.sampled_from(["=", "<", "or"]), leaves, leaves), st.builds(IsNull, leaves, st.booleans())
    )


def leaves_of(pattern, *, running):
    """What conditions may speak of: with `running`, also a[i] of one Kleene variable."""
    lists = get_kleene_variables(pattern)
    leaves = [literals]
    moving = sorted(v for v in lists if v in [a.variable for a in iterate_positive_atoms(pattern)])[:1]
    for atom in iterate_positive_atoms(pattern):
        name = st.just(atom.variable)
        if atom.variable not in lists:
            leaves.append(st.builds(FieldRef, name, names))
            leaves.append(aggregates(atom.variable, True, ()))
            continue
        leaves.append(st.builds(FieldRef, name, names, st.just(EventPosition.NTH), st.integers(1, 9)))
        leaves.append(st.builds(FieldRef, name, names, st.just(EventPosition.LAST)))
        positions = [EventPosition.ALL]
        if running and atom.variable in moving:
            leaves.append(
                st.builds(FieldRef, name, names, st.sampled_from([EventPosition.CURRENT, EventPosition.PREVIOUS]))
            )
            positions = [EventPosition.ALL, EventPosition.BEFORE, EventPosition.THROUGH]
        leaves.append(aggregates(atom.variable, False, positions))
    return st.one_of(leaves)


@st.composite
def queries(draw):
    pattern = draw(patterns())
    lists = get_kleene_variables(pattern)
    present = [a.variable for a in iterate_positive_atoms(pattern)]
    open_end = any(iterate_trailing_negations(pattern))
    within = draw(
        st.one_of(
            st.builds(ByTime, st.integers(1, 10**18)),
            st.builds(ByUnits, st.integers(1, 10**6) | st.floats(0.001, 1e300)),
            st.builds(ByEvents, st.integers(1, 10**8)),
        )
        | (st.nothing() if open_end else st.none())
    )
    after = st.none() | st.sampled_from(
        [AfterMatch(SkipTarget.NEXT_EVENT), AfterMatch(SkipTarget.PAST_LAST)]
        + [AfterMatch(to, v) for to in (SkipTarget.FIRST, SkipTarget.LAST) for v in present]
    )
    whole = [FieldRef(v, None, EventPosition.ALL if v in lists else EventPosition.ONLY) for v in present]
    columns = st.sampled_from(whole) | references(pattern, running=False)
    conjuncts = references(pattern, running=True).filter(lambda e: not (isinstance(e, Binary) and e.operator == "and"))
    taken = {name for atom in iterate_atoms(pattern) for name in get_type_names(atom.type)}
    return Query(
        pattern=pattern,
        name=draw(st.none() | names.filter(lambda name: name not in taken)),
        strategy=draw(st.sampled_from(Strategy)),
        where=tuple(draw(st.lists(conjuncts, max_size=3))),
        equivalence=tuple(map(Equivalence, draw(st.lists(names, max_size=2, unique=True)))),
        within=within,
        after=None if open_end else draw(after),
        returns=tuple(draw(st.lists(st.builds(ReturnItem, columns, names), max_size=3, unique_by=lambda r: r.name))),
        having=draw(st.none() | references(pattern, running=False)),
    )


@st.composite
def archive_joins(draw):
    """Queries with JOIN ARCHIVE; no variable is on two sides."""
    pattern = draw(patterns())
    taken, joins, shown = set(_named(pattern)), [], [pattern]
    for _ in range(draw(st.integers(1, 2))):
        past = draw(patterns(frozenset(taken)))
        taken |= set(_named(past))
        kind = draw(st.sampled_from(JoinKind))
        joins.append(
            ArchiveJoin(
                archive=draw(names),
                query=draw(matched(past)),
                range=draw(ranges()),
                on=tuple(draw(st.lists(simple(And((*shown, past))), max_size=2))),
                equivalence=tuple(map(Equivalence, draw(st.sets(names, max_size=2)))),
                last=draw(st.none() | st.integers(1, 10**8)),
                kind=kind,
            )
        )
        shown += [past] if kind is not JoinKind.ANTI else []
    said = simple(And(tuple(shown)) if len(shown) > 1 else pattern)
    columns = st.lists(st.builds(ReturnItem, said, names), max_size=2, unique_by=lambda r: r.name)
    limits = st.none() | st.builds(Limit, st.integers(1, 9))
    defined = {name for atom in iterate_atoms(pattern) for name in get_type_names(atom.type)}
    free = names.filter(lambda name: name not in defined)
    return ArchiveJoinQuery(
        replace(draw(matched(pattern)), name=draw(st.none() | free)),
        tuple(joins),
        returns=tuple(draw(columns)),
        having=draw(st.none() | said),
        limit=draw(limits),
    )


@st.composite
def matched(draw, pattern):
    """A pattern with WHERE, WITHIN and AFTER MATCH."""
    open_end = any(iterate_trailing_negations(pattern))
    present = [atom.variable for atom in iterate_positive_atoms(pattern)]
    after = [AfterMatch(SkipTarget.PAST_LAST), AfterMatch(SkipTarget.LAST, present[0])]
    windows = [ByTime(5), ByUnits(0.5), ByEvents(7)]
    return Query(
        pattern,
        strategy=draw(st.sampled_from(Strategy)),
        where=tuple(draw(st.lists(simple(pattern), max_size=2))),
        equivalence=tuple(map(Equivalence, draw(st.sets(names, max_size=1)))),
        within=draw(st.sampled_from(windows if open_end else [None, *windows])),
        after=None if open_end else draw(st.sampled_from([None, *after])),
    )


def _named(pattern):
    return [atom.variable for atom in iterate_atoms(pattern)]


@st.composite
def ranges(draw):
    times = st.integers(1, 10**18)
    units = st.integers(1, 10**6) | st.floats(0.001, 1e300)
    kind, amounts = draw(st.sampled_from([(ByTime, times), (ByUnits, units)]))
    one, other = draw(amounts), draw(amounts)
    near = kind(min(one, other)) if one != other and draw(st.booleans()) else None
    return LookbackRange(kind(max(one, other)), draw(st.sampled_from(RangeAnchor)), near)
