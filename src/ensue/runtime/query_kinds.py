"""The registry of query kinds; the modules of a kind are loaded when a query of it appears."""

from dataclasses import dataclass

OPERATORS = "ensue.operators"


@dataclass(frozen=True, slots=True)
class QueryKind:
    """A kind of query: its node, and what handles it, each as "module:name".

    `pkgutil.resolve_name` imports it on use, so no package imports all kinds.
    """

    name: str
    node: str
    analyze: str  # (query, columns) -> checked query
    plan: str  # (queries of a call, workload) -> operators
    operator: str  # what the plan builds
    describe: str  # (query) -> its JSON in a checkpoint
    parse: str  # (that JSON, user operators) -> query
    reference: str  # (checked query, events) -> what it means


KINDS = (
    QueryKind(
        "pattern",
        node="ensue.ir.query:Query",
        analyze="ensue.analyzer.query:check_query",
        plan=f"{OPERATORS}.match.match_operator:plan_queries",
        operator=f"{OPERATORS}.match.match_operator:MatchOperator",
        describe=f"{OPERATORS}.match.match_operator:describe_query",
        parse=f"{OPERATORS}.match.match_operator:parse_query",
        reference="ensue.reference:find_matches",
    ),
    QueryKind(
        "archive join",
        node="ensue.ir.archive_join:ArchiveJoinQuery",
        analyze="ensue.analyzer.join_checks:check_archive_join",
        plan=f"{OPERATORS}.archive_join.join_operator:plan_archive_joins",
        operator=f"{OPERATORS}.archive_join.join_operator:ArchiveJoinOperator",
        describe=f"{OPERATORS}.match.match_operator:describe_query",
        parse=f"{OPERATORS}.archive_join.join_operator:parse_archive_join",
        reference="ensue.reference:join_matches",
    ),
    QueryKind(
        "row pattern",
        node="ensue.ir.row_pattern:RowPatternQuery",
        analyze="ensue.analyzer.row_pattern_checks:check_row_pattern",
        plan=f"{OPERATORS}.row_match.row_operator:plan_row_patterns",
        operator=f"{OPERATORS}.row_match.row_operator:RowPatternOperator",
        describe=f"{OPERATORS}.row_match.row_operator:describe_clause",
        parse=f"{OPERATORS}.row_match.row_operator:parse_clause",
        reference="ensue.reference.row_pattern_matches:build_output_rows",
    ),
    QueryKind(
        "hierarchy",
        node="ensue.ir.hierarchy:Hierarchy",
        analyze="ensue.analyzer.hierarchy_layers:build_layers",
        plan=f"{OPERATORS}.hierarchy.hierarchy_operator:plan_hierarchies",
        operator=f"{OPERATORS}.hierarchy.hierarchy_operator:HierarchyOperator",
        describe=f"{OPERATORS}.hierarchy.hierarchy_operator:describe_hierarchy",
        parse=f"{OPERATORS}.hierarchy.hierarchy_operator:parse_hierarchy",
        reference="ensue.reference:match_hierarchy",
    ),
    QueryKind(
        "subscriptions",
        node="ensue.runtime.query_spec:SubscriptionsSpec",
        analyze="ensue.analyzer.subscription:check_subscription_fields",
        plan=f"{OPERATORS}.subscriptions.subscription_operator:plan_subscriptions",
        operator=f"{OPERATORS}.subscriptions.subscription_operator:SubscriptionOperator",
        describe=f"{OPERATORS}.subscriptions.subscription_operator:describe_subscriptions",
        parse=f"{OPERATORS}.subscriptions.subscription_operator:parse_subscriptions",
        reference="ensue.reference.subscription_matches:find_subscription_matches",
    ),
)
_BY_NODE = {kind.node: kind for kind in KINDS}


def find_kind(query: object) -> QueryKind:
    """Returns the kind of a query, without importing the others.

    >>> import ensue
    >>> find_kind(ensue.parse("SEQ(A a, B b)")).name
    'pattern'
    """
    return _BY_NODE[f"{type(query).__module__}:{type(query).__qualname__}"]


def get_kind(name: str) -> QueryKind:
    """Returns a kind by its name."""
    return next(kind for kind in KINDS if kind.name == name)
