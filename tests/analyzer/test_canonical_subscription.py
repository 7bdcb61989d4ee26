"""Equal parts of subscriptions have equal texts, whatever their variables are called."""

import time
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.ir.canonical_form import canonical_subscription
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    IntervalBetween,
    IntervalSince,
    Region,
    SpatialCondition,
    TemporalCondition,
    TimePoint,
    VariableField,
    VariableUse,
    get_subexpressions,
)
from ensue.parser.opsl.opsl_parser import parse_subscription
from support.seeds import scaled
from support.subscriptions import LARGE, SMALL, USUAL, random_subscription, subscriptions

AB = ", A = (ARITH:id = 1), B = (ARITH:id = 2)"


def text_of(text):
    return canonical_subscription(parse_subscription(text))


# ---------------------------------------------------------------------- the same in other words


def disguised(subscription, random):
    """The same, with other names of variables and regions, and other orders."""
    names = list(subscription.variables)
    others = random.sample(range(100), len(names))
    renamed = {name: f"v{number}" for name, number in zip(names, others, strict=True)}

    def shuffled(parts):
        return tuple(random.sample(parts, len(parts)))

    def predicate(p):
        match p.value:
            case VariableField(variable, name):
                return replace(p, value=VariableField(renamed[variable], name))
            case tuple() as values:
                return replace(p, value=shuffled(values))
            case _:
                return p

    def place(part):
        return Region(part.text, random.choice((None, "Q"))) if isinstance(part, Region) else of(part)

    def of(part):
        match part:
            case EventAtom(predicates):
                return EventAtom(shuffled(tuple(map(predicate, predicates))))
            case VariableUse(name):
                return VariableUse(renamed[name])
            case TemporalCondition(when, IntervalSince(base, length), inside):
                since = base if isinstance(base, TimePoint) else of(base)
                return TemporalCondition(when, IntervalSince(since, length), of(inside))
            case TemporalCondition(when, IntervalBetween(first, second), inside):
                return TemporalCondition(when, IntervalBetween(of(first), of(second)), of(inside))
            case Concurrent(first, second):
                return replace(part, first=of(first), second=of(second))
            case SpatialCondition():
                return replace(part, place=place(part.place), part=of(part.part))
            case Conjunction(parts):
                return Conjunction(shuffled(tuple(map(of, parts))))
            case Disjunction(parts):
                return Disjunction(shuffled(tuple(map(of, parts))))

    variables = {renamed[name]: of(subscription.variables[name]) for name in shuffled(tuple(names))}
    return replace(subscription, root=of(subscription.root), variables=variables)


@settings(max_examples=scaled(70))
@given(subscriptions(USUAL) | subscriptions(LARGE), st.randoms(use_true_random=False))
def test_names_and_orders_do_not_count(subscription, random):
    other = disguised(subscription, random)
    assert canonical_subscription(other) == canonical_subscription(subscription)


PAIRS = [
    # a graph of which every variable looks like every other
    "|($a;)$b; && |($b;)$c; && |($c;)$a;",
    "|($a;)$b; && |($b;)$c; && |($c;)$d; && |($d;)$a;",
    "|($a;)$b; && |($b;)$a; && |($c;)$d; && |($d;)$c;",
    "|($a;)$b; && |($b;)$a; && |($c;)$d; && |($d;)$e; && |($e;)$c;",
    "|($a;)$b; && @($a;)$b; && |($c;)$d; && @($c;)$d; && |($e;)$f; && @($e;)$f;",
    "(|($a;)$b; || |($b;)$a;) && (|($c;)$d; || |($d;)$c;) && |($a;)$c;",
]


@pytest.mark.parametrize("text", PAIRS)
def test_variables_that_look_alike_are_told_apart(text):
    names = [name for name in "abcdef" if f"${name};" in text]
    defined = "".join(f", ${name}; = (ARITH:id = 1)" for name in names)
    subscription = parse_subscription(text + defined)
    texts = {canonical_subscription(disguised(subscription, Random(seed))) for seed in range(scaled(60))}
    assert len(texts) == 1


def test_cycles_of_different_lengths_differ():
    defined = "".join(f", ${name}; = (ARITH:id = 1)" for name in "abcdef")
    six = "|($a;)$b; && |($b;)$c; && |($c;)$d; && |($d;)$e; && |($e;)$f; && |($f;)$a;"
    threes = "|($a;)$b; && |($b;)$c; && |($c;)$a; && |($d;)$e; && |($e;)$f; && |($f;)$d;"
    assert text_of(six + defined) != text_of(threes + defined)


# ----------------------------------------------------------------- different ones, and the same


SAME = [
    ("A && B" + AB, "B && A" + AB),
    ("A || B" + AB, "N || (ARITH:id = 2), N = (ARITH:id = 1)"),
    ("(ARITH:id = 1, ARITH:v > 5)", "(ARITH:v > 5.0, ARITH:id = 1, ARITH:id = 1)"),
    ("(ARITH:id IN (1, 2, 2))", "(ARITH:id IN (2, 1))"),
    ("@(R)(ARITH:id = 1), R = CIRCLE (1 2, 3)", "@(CIRCLE(1.0 2, 3))(ARITH:id = 1)"),
    ("|($x;)A, $x; = B" + AB, "|(B)A" + AB),
    ("$x; && A, $x; = B && C, C = (ARITH:id = 3)" + AB, "A && B && C, C = (ARITH:id = 3)" + AB),
    ("|(A; 2)B" + AB, "|(A)B" + AB + " WITH concurrent = 2"),
    ("|(A; 0 seconds)B" + AB, "|(A)B" + AB),
    ("SPL(A; 2)B" + AB, "SPL(A)B" + AB + " WITH same_place = 2"),
    ("A && B" + AB, "A && B" + AB + " WITH same_place = 7, equal = 7, concurrent = 7"),
    ("=|(A; 60 seconds)B" + AB, "=|(A; 1 minute)B" + AB),
]
DIFFERENT = [
    ("A && B" + AB, "A || B" + AB),
    ("|(A)B" + AB, "|(A; 1)B" + AB),
    ("|(A)B" + AB, "|(A)A, A = (ARITH:id = 1)"),
    ("$x; && !($x;; 5)A, $x; = B" + AB, "B && !(B; 5)A" + AB),
    ("=|(A; 5)B" + AB, "=|(B; 5)A" + AB),
    ("=|(A; 5)B" + AB, "|=(A; 5)B" + AB),
    ("=|(A; 5)B" + AB, "=|(A; 5 seconds)B" + AB),
    ("=|(5; 5)B, B = (ARITH:id = 1)", "=|(6; 5)B, B = (ARITH:id = 1)"),
    ("!(A; 5)B" + AB, "=|(A; 5)B" + AB),
    ("(ARITH:id = 1)", "(STRING:id = '1')"),
    ("(STRING:id = 'a')", "(STRING:a = 'id')"),
    ("(STRING:id IN ('a', 'b'))", "(STRING:id IN ('a b'))"),
    ("(BOOL:id = TRUE)", "(ARITH:id = 1)"),
    ("(ARITH:id = 1, ARITH:v = 2)", "(ARITH:id = 2, ARITH:v = 1)"),
    ("DIST(A; <; 5)B" + AB, "DIST(A; >; 5)B" + AB),
    ("DIST(A; =; 5)B" + AB, "DIST(A; =; 5)B" + AB + " WITH equal = 1"),
    ("OVLP(A)B" + AB, "@(A)B" + AB),
    ("A && B" + AB, "A && B" + AB + " WITH select = all"),
    ("A && B" + AB, "A && B" + AB + " WITH within = 5"),
    ("A && B" + AB, "A && B" + AB + " WITH within = 0"),
    ("$x; && (ARITH:id = $x;.id), $x; = (ARITH:id = 1)",
     "$x; && (ARITH:id = $x;.v), $x; = (ARITH:id = 1)"),
    ("$x; && $y; && (ARITH:id = $x;.id), $x; = (ARITH:id = 1), $y; = (ARITH:id = 2)",
     "$x; && $y; && (ARITH:id = $y;.id), $x; = (ARITH:id = 1), $y; = (ARITH:id = 2)"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same(one, other):
    assert text_of(one) == text_of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different(one, other):
    assert text_of(one) != text_of(other)


def test_texts_of_random_ones_say_which_they_are():
    """Two of one text are made of the same nodes."""
    by_text = {}
    for seed in range(scaled(4_000)):
        made = random_subscription(Random(seed), SMALL)
        by_text.setdefault(canonical_subscription(made), []).append(made)
    for alike in by_text.values():
        for other in alike[1:]:
            assert loosely(alike[0]) == loosely(other)


def loosely(made):
    """What all disguises of one subscription share, found in another way: counts of nodes."""
    found = Counter([made.select, made.within])
    left = [made.root, *made.variables.values()]
    while left:
        part = left.pop()
        left += get_subexpressions(part)
        if isinstance(part, EventAtom):
            found[frozenset((p.name, p.operator, said(p.value)) for p in part.predicates)] += 1
        elif not isinstance(part, VariableUse | Conjunction | Disjunction):
            found[type(part), getattr(part, "when", None), getattr(part, "where", None)] += 1
    return found


def said(value):
    return frozenset(value) if isinstance(value, tuple) else str(value)


def test_very_many_variables_that_look_alike_take_bounded_time():
    pairs = [f"|($a{k};)$b{k}; && OVLP($a{k};)$b{k};" for k in range(scaled(16))]
    defined = "".join(f", $a{k}; = (ARITH:id = 1), $b{k}; = (ARITH:id = 1)" for k in range(scaled(16)))
    made = parse_subscription(" && ".join(pairs) + defined)
    start = time.perf_counter()
    assert canonical_subscription(made) == canonical_subscription(disguised(made, Random(3)))
    assert time.perf_counter() - start < 60
