"""OPSL: every form of its grammar, as texts and as trees."""

import pickle
import re
from datetime import datetime

import pytest

import ensue
from ensue.errors import QueryError
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    IntervalBetween,
    IntervalSince,
    Predicate,
    PredicateType,
    Region,
    Select,
    SpatialCondition,
    SpatialRelation,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
    VariableField,
    VariableUse,
)
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.parser.registry import detect_language
from ensue.printing.opsl_printer import format_subscription

MINUTE = 60_000_000_000
DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
HOLED = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5), (5.5 5.2, 5.6 5.2, 5.6 5.3, 5.5 5.2)))"
DEFINED = {"A": 1, "B": 2, "C": 3, "D": 4, "E": 5}


def with_names(text):
    """A text with definitions of the names that it uses."""
    used = [name for name in DEFINED if re.search(rf"\b{name}\b", text)]
    return text + "".join(f", {name} = (ARITH:id = {DEFINED[name]})" for name in used)


def arith(name, operator, value):
    return EventAtom((Predicate(PredicateType.ARITH, name, operator, value),))


A, B, C, D, E = (arith("id", "=", number) for number in DEFINED.values())
REGION = Region(DEPOT)


TEMPORAL = [
    ("=|(7; 2)C", TemporalCondition(TemporalRelation.BETWEEN, IntervalSince(TimePoint(7), ByUnits(2)), C)),
    ("=|(A; 2)C", TemporalCondition(TemporalRelation.BETWEEN, IntervalSince(A, ByUnits(2)), C)),
    ("=|(A; B)C", TemporalCondition(TemporalRelation.BETWEEN, IntervalBetween(A, B), C)),
    ("|=(7; 2)C", TemporalCondition(TemporalRelation.AFTER, IntervalSince(TimePoint(7), ByUnits(2)), C)),
    ("|=(A; 2)C", TemporalCondition(TemporalRelation.AFTER, IntervalSince(A, ByUnits(2)), C)),
    ("|=(A; B)C", TemporalCondition(TemporalRelation.AFTER, IntervalBetween(A, B), C)),
    ("!(7; 2)C", TemporalCondition(TemporalRelation.ABSENT, IntervalSince(TimePoint(7), ByUnits(2)), C)),
    ("!(A; 2)C", TemporalCondition(TemporalRelation.ABSENT, IntervalSince(A, ByUnits(2)), C)),
    ("!(A; B)C", TemporalCondition(TemporalRelation.ABSENT, IntervalBetween(A, B), C)),
    ("|(A)B", Concurrent(A, B)),
    ("|(A; 3 minutes)B", Concurrent(A, B, ByTime(3 * MINUTE))),
]
SPATIAL = [
    ("@(Depot)B", SpatialCondition(SpatialRelation.INSIDE, REGION, B)),
    ("IN(Depot)B", SpatialCondition(SpatialRelation.INSIDE, REGION, B)),
    ("@(A)B", SpatialCondition(SpatialRelation.INSIDE, A, B)),
    ("IN(A)B", SpatialCondition(SpatialRelation.INSIDE, A, B)),
    ("OVLP(Depot)B", SpatialCondition(SpatialRelation.OVERLAP, REGION, B)),
    ("OVLP(A)B", SpatialCondition(SpatialRelation.OVERLAP, A, B)),
    ("SPL(Depot)B", SpatialCondition(SpatialRelation.SAME, REGION, B)),
    ("SPL(A)B", SpatialCondition(SpatialRelation.SAME, A, B)),
    ("SPL(A; 2.5)B", SpatialCondition(SpatialRelation.SAME, A, B, None, 2.5)),
    *(
        (f"DIST({text}; {sign}; 300)B", SpatialCondition(SpatialRelation.DISTANCE, place, B, sign, 300.0))
        for text, place in (("Depot", REGION), ("A", A))
        for sign in "<=>"
    ),
]
LOGICAL = [
    ("A && B", Conjunction((A, B))),
    ("A || B", Disjunction((A, B))),
    ("A || B && C", Disjunction((A, Conjunction((B, C))))),
    ("(A || B) && C", Conjunction((Disjunction((A, B)), C))),
    ("A && (B && (C && D))", Conjunction((A, B, C, D))),
    ("(A || B) || (C || D)", Disjunction((A, B, C, D))),
    ("@(Depot)A && B", Conjunction((SpatialCondition(SpatialRelation.INSIDE, REGION, A), B))),
    ("@(Depot)(A && B)", SpatialCondition(SpatialRelation.INSIDE, REGION, Conjunction((A, B)))),
    ("|(A)B || |(C)D", Disjunction((Concurrent(A, B), Concurrent(C, D)))),
    ("|(A)B|||(C)D", Disjunction((Concurrent(A, B), Concurrent(C, D)))),
    ("A|||=(B;2)C", Disjunction((A, TemporalCondition(TemporalRelation.AFTER, IntervalSince(B, ByUnits(2)), C)))),
    ("A||=|(B;2)C", Disjunction((A, TemporalCondition(TemporalRelation.BETWEEN, IntervalSince(B, ByUnits(2)), C)))),
    ("@(Depot)|=(7;2)B",
     SpatialCondition(SpatialRelation.INSIDE, REGION, TemporalCondition(
         TemporalRelation.AFTER, IntervalSince(TimePoint(7), ByUnits(2)), B))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tree"), [*TEMPORAL, *SPATIAL, *LOGICAL])
def test_operators(text, tree):
    found = parse_subscription(with_names(text), {"Depot": DEPOT})
    assert found == Subscription(tree)
    assert parse_subscription(format_subscription(found)) == found
    assert parse_subscription(with_names(text).replace(" ", ""), {"Depot": DEPOT}) == found or "minutes" in text
    assert parse_subscription(with_names(text).replace("(", " (\n").replace(";", " ; "), {"Depot": DEPOT})


VALUES = [
    ("ARITH:id = 17", (PredicateType.ARITH, "id", "=", 17)),
    ("ARITH:id=-17", (PredicateType.ARITH, "id", "=", -17)),
    ("ARITH:v >= 2.5e-3", (PredicateType.ARITH, "v", ">=", 0.0025)),
    ("ARITH:v <> +4", (PredicateType.ARITH, "v", "!=", 4)),
    ("arith:v ≤ .5", (PredicateType.ARITH, "v", "<=", 0.5)),
    ("ARITH:id IN (1, 2,3)", (PredicateType.ARITH, "id", "IN", (1, 2, 3))),
    ("STRING:type = 'truck'", (PredicateType.STRING, "type", "=", "truck")),
    ("STRING:type LIKE 'tr%''s'", (PredicateType.STRING, "type", "LIKE", "tr%'s")),
    ("STRING:type IN ('a', 'b')", (PredicateType.STRING, "type", "IN", ("a", "b"))),
    ('STRING:"type of it" != \'\'', (PredicateType.STRING, "type of it", "!=", "")),
    ("BOOL:ok = true", (PredicateType.BOOL, "ok", "=", True)),
    ("BOOL:ok != FALSE", (PredicateType.BOOL, "ok", "!=", False)),
    ("TIME:seen > TIMESTAMP '2026-01-31 10:00:00'",
     (PredicateType.TIME, "seen", ">", datetime(2026, 1, 31, 10))),
    ("TIME:seen < DATE '2026-02-01'", (PredicateType.TIME, "seen", "<", datetime(2026, 2, 1))),
    ("TIME:seen < 5", (PredicateType.TIME, "seen", "<", 5)),
    ("ARITH:in IN (1)", (PredicateType.ARITH, "in", "IN", (1,))),
    ("ARITH:a-b = 1", (PredicateType.ARITH, "a-b", "=", 1)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "predicate"), VALUES)
def test_predicates(text, predicate):
    found = parse_subscription(f"({text})")
    assert found.root == EventAtom((Predicate(*predicate),))
    assert type(found.root.predicates[0].value) is type(predicate[3])
    assert parse_subscription(format_subscription(found)) == found


def test_predicates_need_no_parentheses_of_their_own_inside_others():
    both = EventAtom(A.predicates + B.predicates)
    assert parse_subscription("(ARITH:id = 1, ARITH:id = 2)").root == both
    assert parse_subscription("|(ARITH:id = 1, ARITH:id = 2)(ARITH:id = 3)").root == Concurrent(both, C)
    assert parse_subscription("(ARITH:id = 1, ARITH:id = 2 && C), C = (ARITH:id = 3)").root == Conjunction((both, C))
    assert parse_subscription("=|(ARITH:id = 1; ARITH:id = 2)(ARITH:id = 3)").root == TemporalCondition(
        TemporalRelation.BETWEEN, IntervalBetween(A, B), C
    )


# ------------------------------------------------------------------------ names and variables


def test_a_name_is_written_out_each_time():
    found = parse_subscription("|(N)N, N = A && B, A = (ARITH:id = 1), B = (ARITH:id = 2)")
    assert found == Subscription(Concurrent(Conjunction((A, B)), Conjunction((A, B))))
    assert parse_subscription("N && C, N = A && B, A = (ARITH:id = 1), B = (ARITH:id = 2), C=(ARITH:id = 3)") == (
        Subscription(Conjunction((A, B, C)))
    )


def test_a_variable_is_defined_beside_the_root():
    found = parse_subscription("|($x;)$y;, $x; = A, $y; = $x; && B, A = (ARITH:id = 1), B = (ARITH:id = 2)")
    assert found.root == Concurrent(VariableUse("x"), VariableUse("y"))
    assert found.variables == {"x": A, "y": Conjunction((VariableUse("x"), B))}


def test_a_variable_ends_in_a_semicolon_and_a_stray_one_is_passed_over():
    tree = TemporalCondition(TemporalRelation.BETWEEN, IntervalSince(VariableUse("e1"), ByUnits(5)), VariableUse("e2"))
    for text in ("=|($e1;;5)($e2;)", "=|($e1; ; 5)($e2;;)", "=|(($e1;;);5)$e2 ;"):
        assert parse_subscription(f"{text}, $e1; = (ARITH:id = 1), $e2; = (ARITH:id = 2)").root == tree


def test_a_definition_may_begin_with_an_operator():
    tree = {"x": Concurrent(A, B), "y": TemporalCondition(TemporalRelation.BETWEEN, IntervalSince(A, ByUnits(2)), B)}
    text = "$x; && $y;, $x;=|(A)B, $y;==|(A;2)B, A=(ARITH:id=1), B=(ARITH:id=2)"
    assert parse_subscription(text).variables == tree


def test_fields_of_variables():
    found = parse_subscription("=|($A;; 5)$C;, $A; = (ARITH:id > 0), $C; = (ARITH:id = $A;.id)")
    assert found.variables["C"] == arith("id", "=", VariableField("A", "id"))
    assert parse_subscription(format_subscription(found)) == found


def test_names_may_contain_a_hyphen_and_be_called_as_operators_are():
    assert parse_subscription("E-A && in, E-A = (ARITH:id = 1), in = (ARITH:id = 2)").root == Conjunction((A, B))
    assert parse_subscription("with && dist, with = (ARITH:id = 1), dist = (ARITH:id = 2)").root == Conjunction((A, B))


# ----------------------------------------------------------------------------------- regions


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("POLYGON((0 0,10 0,10 10,0 10,0 0))", DEPOT),
        ("polygon ((0.0 0, 1e1 0, 10 10, 0 10, -0 0))", DEPOT),
        ("POLYGON((0 0,10 0,10 10,0 10))", DEPOT),
        (HOLED.replace(" (", "(").replace(", ", ",").lower(), HOLED),
        ("CIRCLE(5 5, 3)", "CIRCLE (5 5, 3)"),
        ("circle ( 5 5.0 ,3.50)", "CIRCLE (5 5, 3.5)"),
    ],
)  # fmt: skip
def test_regions_have_one_spelling(text, spelling):
    for found in (
        parse_subscription(f"@({text})(ARITH:id = 1)"),
        parse_subscription(f"@(R)(ARITH:id = 1), R = {text}"),
        parse_subscription(f"@((R))(ARITH:id = 1), R = (S), S = {text}"),
    ):
        assert found.root == SpatialCondition(SpatialRelation.INSIDE, Region(spelling), A)
        assert parse_subscription(format_subscription(found)) == found


def test_a_name_that_stands_for_a_region_is_a_region_and_keeps_its_name():
    text = "@(Depot)A && DIST(Yard; >; 5)A, A = (ARITH:id = 1), Yard = Ground"
    found = parse_subscription(text + ", Ground = CIRCLE (1 2, 3)", {"Depot": DEPOT, "Unused": DEPOT})
    assert [part.place.name for part in found.root.parts] == ["Depot", "Ground"]
    assert format_subscription(found).count(DEPOT) == 1
    assert "Unused" not in format_subscription(found)


def test_two_regions_of_one_name_are_told_apart():
    one, other = Region("CIRCLE (1 1, 1)", "R"), Region("CIRCLE (2 2, 1)", "R")
    both = Subscription(
        Conjunction(
            (SpatialCondition(SpatialRelation.INSIDE, one, A), SpatialCondition(SpatialRelation.INSIDE, other, A))
        )
    )
    assert parse_subscription(format_subscription(both)) == both


# ---------------------------------------------------------------------- lengths and options


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("25 minutes", ByTime(25 * MINUTE)),
        ("25min", ByTime(25 * MINUTE)),
        ("1.5 h", ByTime(90 * MINUTE)),
        ("+2 s", ByTime(2_000_000_000)),
        ("500 ms", ByTime(500_000_000)),
        ("25", ByUnits(25)),
        ("2.5", ByUnits(2.5)),
        ("0", ByUnits(0)),
        ("1e3", ByUnits(1000.0)),
    ],
)
def test_lengths(text, length):
    found = parse_subscription(f"=|(ARITH:id = 1; {text})(ARITH:id = 2)")
    assert found.root.interval.length == length
    assert parse_subscription(format_subscription(found)) == found


def test_moments():
    at = datetime(2026, 1, 31, 10)
    for text, moment in (("TIMESTAMP '2026-01-31 10:00:00'", at), ("-5", -5), ("7.5", 7.5),
                         ("DATE '2026-01-31'", datetime(2026, 1, 31))):  # fmt: skip
        found = parse_subscription(f"!({text}; 5 minutes)(ARITH:id = 1)")
        assert found.root.interval.base == TimePoint(moment)
        assert parse_subscription(format_subscription(found)) == found


def test_options():
    found = parse_subscription(
        "|(A)B, A = (ARITH:id = 1), B = (ARITH:id = 2) "
        "with select = once, concurrent = 2 s, SAME_PLACE=3, equal = 0, within = 5 minutes"
    )
    assert found == Subscription(Concurrent(A, B), {}, Select.ONCE, ByTime(2_000_000_000), 3.0, 0.0, ByTime(5 * MINUTE))
    assert parse_subscription(format_subscription(found)) == found
    assert parse_subscription("(ARITH:id = 1) WITH select = all").select is Select.ALL
    assert parse_subscription("(ARITH:id = 1)").select is Select.LATEST


# -------------------------------------------------------------------- the texts of the paper


def test_the_variable_check():
    found = parse_subscription(with_names("|($x;)$y; && OVLP($x;)$y;, $x; = A&&B, $y; = D&&E"))
    assert found.root == Conjunction(
        (
            Concurrent(VariableUse("x"), VariableUse("y")),
            SpatialCondition(SpatialRelation.OVERLAP, VariableUse("x"), VariableUse("y")),
        )
    )
    assert found.variables == {"x": Conjunction((A, B)), "y": Conjunction((D, E))}
    either = parse_subscription(with_names("|($x;)$y; || OVLP($x;)$y;, $x; = A&&B, $y; = D&&E"))
    assert either.root == Disjunction(found.root.parts)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (
            "=|(@(Region1)(A); 25)(DIST(Region1; >; 20)(A))",
            TemporalCondition(
                TemporalRelation.BETWEEN,
                IntervalSince(SpatialCondition(SpatialRelation.INSIDE, REGION, A), ByUnits(25)),
                SpatialCondition(SpatialRelation.DISTANCE, REGION, A, ">", 20.0),
            ),
        ),
        (
            "=|(DIST(Region2; >; 20)(A); 25)(@(Region2)(A))",
            TemporalCondition(
                TemporalRelation.BETWEEN,
                IntervalSince(SpatialCondition(SpatialRelation.DISTANCE, REGION, A, ">", 20.0), ByUnits(25)),
                SpatialCondition(SpatialRelation.INSIDE, REGION, A),
            ),
        ),
    ],
)
def test_left_and_arrived(text, tree):
    regions = {"Region1": DEPOT, "Region2": DEPOT}
    assert parse_subscription(text + ", A = (ARITH:id = 1)", regions) == Subscription(tree)


def test_strayed_from_the_convoy():
    found = parse_subscription("""=|($e1;;100)($e2;;),
        $e1; = (|($A;)($B;) && DIST($A;;<;50)($B;)),
        $e2; = (|($C;)($D;) && DIST($C;;>;50)($D;)),
        $A; = E-A, $B; = E-B, $C; = E-A, $D; = E-B,
        E-A = (ARITH:id = 7), E-B = (ARITH:id = 1)""")
    assert found.root == TemporalCondition(
        TemporalRelation.BETWEEN, IntervalSince(VariableUse("e1"), ByUnits(100)), VariableUse("e2")
    )
    near = SpatialCondition(SpatialRelation.DISTANCE, VariableUse("A"), VariableUse("B"), "<", 50.0)
    assert found.variables["e1"] == Conjunction((Concurrent(VariableUse("A"), VariableUse("B")), near))
    assert found.variables["C"] == found.variables["A"] == arith("id", "=", 7)


# ---------------------------------------------------------------------------- as a language


def test_ensue_reads_and_shows_it():
    text = """=|(@(Depot)(A); 25 minutes)(DIST(Depot; >; 300)(A)),
        A = (ARITH:id = 17, STRING:type = 'truck')"""
    found = ensue.parse(text, regions={"Depot": DEPOT})
    assert isinstance(found, Subscription)
    assert found == ensue.parse(text, language="opsl", regions={"Depot": DEPOT})
    assert ensue.parse(ensue.show(found, "opsl")) == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.text == text


@pytest.mark.parametrize(
    "text",
    [
        "=|(A; 5)B", "|=(A; 5)B", "|(A)B", "@(R)A", "!(A; 5)B", "! ( A;B)C", "$x; && $y;",
        "IN(R)A", "OVLP(R)A", "SPL(A)B", "DIST(A; <; 5)B", "(ARITH:id = 1)",
        "((STRING:x = 'y') && B)",
        "A && B", "A || B", "A, A = (ARITH:id = 1)", "-- left\n /* it */ =|(A; 5)B", "(=|(A;5)B)",
        "A, $x; = (ARITH:id = 1)", "| A", "$x",
    ],
)  # fmt: skip
def test_texts_that_begin_as_it_does_are_claimed(text):
    assert detect_language(text).name == "opsl"


@pytest.mark.parametrize(
    "text",
    [
        "A a", "A", "SEQ(A a, B b)", "!(A a)", "!A a", "(A a -> B b)", "((A a))", "A a, B b",
        "EVENT X AS A a; X x", "PATTERN A a", "IN a", "OVLP o -> SPL s", "DIST", "near(A a, B b)",
        "NOT (A a)", "!(SEQ(A a, B b)) ;", "AND(A a, B b)", "", "A a WHERE a.x = 'b; c' || 'd'",
    ],
)  # fmt: skip
def test_patterns_stay_patterns(text):
    assert detect_language(text).name == "patterns"


def test_an_operator_of_ours_may_be_called_as_one_of_theirs():
    ours = [ensue.operator("SPL", q=lambda a, b: True)]
    assert detect_language("SPL(A a, B b) r", ours).name == "patterns"
    assert detect_language("SPL(A a, B b) r").name == "opsl"
    assert detect_language("DIST(A; <; 5)B", ours).name == "opsl"


def test_calls_that_take_queries_say_where_subscriptions_go():
    text = "=|(ARITH:id = 1; 5)(ARITH:id = 2)"
    for query in (text, ensue.parse(text)):
        with pytest.raises(QueryError, match="this is a subscription") as error:
            ensue.explain(query)
        assert "ensue.Subscriptions" in str(error.value)


def test_what_belongs_to_the_other_language_is_refused():
    with pytest.raises(QueryError, match="regions= is for the language opsl"):
        ensue.parse("SEQ(A a, B b)", regions={"R": DEPOT})
    with pytest.raises(QueryError, match="patterns cannot be converted to OPSL"):
        ensue.show(ensue.parse("SEQ(A a, B b)"), "opsl")
    hot = ensue.define("EVENT Hot AS SEQ(T a, T b) WITHIN 5")
    with pytest.raises(QueryError, match="definitions= is for the language patterns"):
        ensue.parse("(ARITH:id = 1)", definitions=hot)


def test_a_parenthesis_in_a_comment_does_not_hide_the_language():
    text = "-- in words (or not)\n=|(A; 5)B, A = (ARITH:id = 1), B = (ARITH:id = 2)"
    assert isinstance(ensue.parse(text), ensue.Subscription)
    assert isinstance(ensue.parse("/* (a */ @(CIRCLE (0 0, 1))(ARITH:id = 1)"), ensue.Subscription)
