"""Parses the expressions of a clause: row navigations, aggregates and values over them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from ensue.analyzer.scopes import describe_argument_count
from ensue.errors import QueryError, Span, did_you_mean
from ensue.functions.row_aggregates import RowAggregateFunction, find_row_aggregate
from ensue.ir import row_pattern
from ensue.ir.expression import Expr, FieldRef, Literal
from ensue.parser.sql.sql_expressions import SyntaxTree, build_sql_expression

LOGICAL_NAVIGATION = ("first", "last")
PHYSICAL_NAVIGATION = ("prev", "next")
MATCH_FUNCTIONS = (*LOGICAL_NAVIGATION, *PHYSICAL_NAVIGATION, "classifier", "match_number")
_MOST_OFFSET = 10**9
_WINDOW_FUNCTIONS = {"first_value": "FIRST", "last_value": "LAST", "lag": "PREV", "lead": "NEXT"}


@dataclass(frozen=True, slots=True)
class PatternVariables:
    """The variables of a pattern, and its SUBSETs."""

    variables: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]

    def members(self, name: str, span: Span) -> tuple[str, ...]:
        """Returns the variables that a name stands for."""
        if name in self.variables:
            return (name,)
        if name in self.subsets:
            return self.subsets[name]
        raise QueryError(
            f"there is no variable '{name}' in the pattern",
            hint=did_you_mean(name, (*self.variables, *self.subsets)),
            span=span,
        )


@dataclass(slots=True)
class RowScope:
    """The variable whose rows the expressions of one navigation or aggregate read."""

    what: str
    owner: str | None = None  # the variable or SUBSET; "": all variables
    members: tuple[str, ...] = ()

    def take(self, owner: str, members: tuple[str, ...], span: Span) -> None:
        if self.owner is None:
            self.owner, self.members = owner, members
        elif self.owner != owner:
            first, second = (name or "all variables" for name in (self.owner, owner))
            raise QueryError(
                f"{self.what} works over the rows of one variable, not of {first} and {second}",
                hint="use each separately; a SUBSET stands for the rows of several variables",
                span=span,
            )


@dataclass(slots=True)
class RowExpressionReader:
    """Reads one expression of MEASURES or DEFINE, and collects what it reads from the match."""

    tree: SyntaxTree
    names: PatternVariables
    define: bool
    operands: list[row_pattern.RowOperand] = field(default_factory=list)

    def leaf(self, node: exp.Expr, span: Span) -> Expr | None:
        """Returns a field for a node that reads from the match."""
        reach = self._reach(node, span)
        if reach is None:
            return None
        if reach not in self.operands:
            self.operands.append(reach)
        return FieldRef(row_pattern.OPERAND, str(self.operands.index(reach)), span=span)

    def _reach(self, node: exp.Expr, span: Span) -> row_pattern.RowOperand | None:
        if isinstance(node, exp.Column):
            argument = RowScope("a column")
            column = self._column(node, span, argument)
            return row_pattern.Navigation(column, argument.members, span=span)
        if isinstance(node, exp.Filter | exp.WithinGroup):
            return self._aggregate(node, span)
        if not isinstance(node, exp.Anonymous):
            return None
        name, _ = self._read_call_name(node)
        if name in LOGICAL_NAVIGATION or name in PHYSICAL_NAVIGATION:
            return self._navigation(node, span)
        if find_row_aggregate(name) is not None:
            return self._aggregate(node, span)
        if name == "classifier":
            argument = RowScope("CLASSIFIER")
            return row_pattern.Navigation(self._classifier(node, span, argument), argument.members, span=span)
        if name == "match_number":
            self._no_arguments(node, span)
            return row_pattern.MatchNumber(span)
        return None

    def _read_call_name(self, node: exp.Anonymous) -> tuple[str, str | None]:
        """Returns the called function in lower case, and RUNNING or FINAL if present."""
        lower, semantics = node.name.lower(), node.meta.get("semantics")
        span = self.tree.span(node)
        if lower in _WINDOW_FUNCTIONS:
            raise QueryError(
                f"{lower} is a window function",
                hint=f"in MATCH_RECOGNIZE it is {_WINDOW_FUNCTIONS[lower]}(...)",
                span=span,
            )
        if semantics is not None and lower not in LOGICAL_NAVIGATION and find_row_aggregate(lower) is None:
            inside = "PREV(FINAL LAST(x))" if semantics == "FINAL" else "PREV(RUNNING LAST(x))"
            raise QueryError(
                f"{semantics} cannot be combined with {lower.upper()}",
                hint=f"write {inside}"
                if lower in PHYSICAL_NAVIGATION
                else f"it goes before FIRST, LAST or an aggregate: {semantics} LAST(x)",
                span=span,
            )
        if semantics == "FINAL" and self.define:
            raise QueryError(
                "DEFINE cannot look at the final rows of a match that is not complete",
                hint=f"leave out FINAL: {lower.upper()} covers the rows up to the current one",
                span=span,
            )
        return lower, semantics

    def _column(self, node: exp.Expr, span: Span, argument: RowScope) -> FieldRef:
        owner = node.args.get("table")
        if node.args.get("db") is not None:
            raise QueryError("a column is written as variable.column", span=span)
        if isinstance(node.this, exp.Star):
            raise QueryError("a whole row has no value", hint="only count takes it: count(A.*)", span=span)
        self._take(owner, argument, span)
        return FieldRef(row_pattern.ROW, node.name, span=self.tree.span(node.this))

    def _take(self, owner: exp.Expr | None, scope: RowScope, span: Span) -> None:
        """Adds the rows of a variable, or of all variables."""
        if owner is None:
            scope.take("", (), span)
        else:
            name = owner.name if owner.args.get("quoted") else owner.name.upper()  # as the variables are
            scope.take(name, self.names.members(name, self.tree.span(owner)), span)

    def _classifier(self, node: exp.Expr, span: Span, argument: RowScope) -> FieldRef:
        match node.expressions:
            case []:
                self._take(None, argument, span)
            case [exp.Column() as named] if named.args.get("table") is None:
                self._take(named.this, argument, span)
            case _:
                raise QueryError(
                    "CLASSIFIER takes one variable, or nothing", hint="write CLASSIFIER() or CLASSIFIER(A)", span=span
                )
        return FieldRef(row_pattern.ROW, row_pattern.CLASSIFIER, span=span)

    def _no_arguments(self, node: exp.Expr, span: Span) -> None:
        if node.expressions:
            raise QueryError("MATCH_NUMBER takes no argument", hint="write MATCH_NUMBER()", span=span)

    def _inside(self, node: exp.Expr, argument: RowScope) -> Expr:
        """Reads an expression over one row, in a navigation or an aggregate."""

        def leaf(node: exp.Expr, span: Span) -> Expr | None:
            if isinstance(node, exp.Column):
                return self._column(node, span, argument)
            if isinstance(node, exp.Filter | exp.WithinGroup):
                raise _nesting_error(argument.what, "an aggregate", span)
            if not isinstance(node, exp.Anonymous):
                return None
            name, _ = self._read_call_name(node)
            if name == "classifier":
                return self._classifier(node, span, argument)
            if name == "match_number":
                self._no_arguments(node, span)
                return FieldRef(row_pattern.ROW, row_pattern.MATCH_NUMBER, span=span)
            if name in MATCH_FUNCTIONS or find_row_aggregate(name) is not None:
                raise _nesting_error(argument.what, name.upper(), span)
            return None

        return build_sql_expression(node, self.tree, leaf)

    # ---- aggregates: `sum(A.price)`, `count(*)`, `listagg(x, ',') WITHIN GROUP (ORDER BY y)`

    def _aggregate(self, node: exp.Expr, span: Span) -> row_pattern.RowAggregate:
        only = None
        order: tuple[exp.Expr, ...] = ()
        if isinstance(node, exp.Filter):
            only, node = node.expression.this, node.this
        if isinstance(node, exp.WithinGroup):
            order, node = tuple(node.expression.expressions), node.this
        if not isinstance(node, exp.Anonymous):
            raise QueryError("FILTER and WITHIN GROUP follow an aggregate", span=span)
        name, semantics = self._read_call_name(node)
        function = find_row_aggregate(name)
        if function is None:
            raise QueryError(
                f"{name} is not an aggregate: FILTER and WITHIN GROUP cannot be combined with it",
                hint="leave it out",
                span=span,
            )
        nodes = list(node.expressions)
        if nodes and isinstance(nodes[-1], exp.Order):
            if order:
                problem = f"{name} is ordered twice"
                raise QueryError(problem, hint="leave out WITHIN GROUP", span=span)
            order, nodes[-1] = tuple(nodes[-1].expressions), nodes[-1].this
        distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
        if distinct:
            nodes[:1] = nodes[0].expressions
        scope = RowScope(name)
        if self._counts_rows(nodes, scope):
            nodes = []
        else:
            _require_count(function, name, len(nodes), span)
        arguments = tuple(self._inside(argument, scope) for argument in nodes)
        _require_constants(function, name, arguments)
        return row_pattern.RowAggregate(
            function.name,
            arguments,
            scope.members,
            semantics == "FINAL",
            distinct,
            self._inside(only, scope) if only is not None else None,
            tuple(self._order_key(key, scope) for key in order),
            span,
        )

    def _counts_rows(self, nodes: list[exp.Expr], scope: RowScope) -> bool:
        """Whether a call is `count(*)` or `count(A.*)`."""
        star = nodes[0] if len(nodes) == 1 else None
        owner = star.args.get("table") if isinstance(star, exp.Column) else None
        if star is None or not isinstance(star.this if owner else star, exp.Star):
            return False
        if scope.what != "count":
            raise QueryError(
                f"{scope.what} needs a column, and only count takes whole rows",
                hint=f"as in {scope.what}(A.price)",
                span=self.tree.span(star),
            )
        self._take(owner, scope, self.tree.span(star))
        return True

    def _order_key(self, key: exp.Expr, scope: RowScope) -> row_pattern.RowSortKey:
        if not isinstance(key, exp.Ordered):
            return row_pattern.RowSortKey(self._inside(key, scope), span=self.tree.span(key))
        descending, nulls_first = bool(key.args.get("desc")), bool(key.args.get("nulls_first"))
        return row_pattern.RowSortKey(self._inside(key.this, scope), descending, nulls_first, self.tree.span(key))

    def _navigation(self, node: exp.Anonymous, span: Span) -> row_pattern.Navigation:
        name, semantics = self._read_call_name(node)
        inner, count = self._arguments(node, name, span)
        if name in LOGICAL_NAVIGATION:
            return self._logical(inner, name, count or 0, semantics == "FINAL", span)
        shift = (1 if count is None else count) * (1 if name == "next" else -1)
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Anonymous):
            inner_name, inner_semantics = self._read_call_name(inner)
            if inner_name in LOGICAL_NAVIGATION:
                inner_span = self.tree.span(inner)
                operand, offset = self._arguments(inner, inner_name, inner_span)
                final = inner_semantics == "FINAL"
                navigation = self._logical(operand, inner_name, offset or 0, final, inner_span)
                return replace(navigation, shift=shift, span=span)
        return replace(self._logical(inner, name, 0, False, span), shift=shift)

    def _logical(self, inner: exp.Expr, name: str, offset: int, final: bool, span: Span) -> row_pattern.Navigation:
        argument = RowScope(name.upper())
        expr = self._inside(inner, argument)
        if argument.owner is None:
            raise QueryError(
                f"{name.upper()} needs a column or CLASSIFIER()", hint=f"as in {name.upper()}(A.price)", span=span
            )
        return row_pattern.Navigation(expr, argument.members, name == "first", offset, 0, final, span)

    def _arguments(self, node: exp.Anonymous, name: str, span: Span) -> tuple[exp.Expr, int | None]:
        """Returns the expression of a navigation, and its offset in rows."""
        match node.expressions:
            case [inner]:
                return inner, None
            case [inner, exp.Literal() as count] if not count.is_string and count.name.isdigit():
                if len(count.name) > 10 or int(count.name) > _MOST_OFFSET:
                    raise QueryError(f"an offset is at most {_MOST_OFFSET:,}", span=self.tree.span(count))
                return inner, int(count.name)
            case [_, count]:
                raise QueryError(
                    f"the offset of {name.upper()} must be a constant whole number, 0 or more",
                    hint=f"as in {name.upper()}(A.price, 2)",
                    span=self.tree.span(count),
                )
            case _:
                raise QueryError(
                    f"{name.upper()} takes an expression and an optional offset",
                    hint=f"as in {name.upper()}(A.price, 2)",
                    span=span,
                )


def _require_count(function: RowAggregateFunction, name: str, count: int, span: Span) -> None:
    least, most = function.takes, function.takes + function.optional
    if name == "count" and count == 0:
        raise QueryError("count needs an argument", hint="count(*) counts rows", span=span)
    if not least <= count <= most:
        scalar = {"min": "least", "max": "greatest"}.get(name) if count > 1 else None
        raise QueryError(
            f"{name} takes {describe_argument_count(least or 1, most)}, not {count}",
            hint=f"{scalar}(x, y) picks one of several values" if scalar else None,
            span=span,
        )


def _require_constants(function: RowAggregateFunction, name: str, arguments: tuple[Expr, ...]) -> None:
    example = "percentile(A.price, 90)" if name == "percentile" else f"{name}(A.name, ', ')"
    for index in function.constants:
        if index < len(arguments) and not isinstance(arguments[index], Literal):
            raise QueryError(
                f"argument {index + 1} of {name} must be a constant",
                hint=f"as in {example}",
                span=arguments[index].span,
            )


def _nesting_error(outer: str, inner: str, span: Span) -> QueryError:
    if inner in ("FIRST", "LAST") and outer in ("PREV", "NEXT"):
        return QueryError(
            f"{inner} in {outer} must stand alone there",
            hint=f"compute outside it: {outer}({inner}(A.price)) + 1",
            span=span,
        )
    if find_row_aggregate(outer) is not None:
        return QueryError(
            f"{inner} cannot be used inside {outer}",
            hint=f"an aggregate works over columns and CLASSIFIER(): {outer}(A.price)",
            span=span,
        )
    return QueryError(
        f"{inner} cannot be used inside {outer}",
        hint="only PREV and NEXT can contain another one, FIRST or LAST: PREV(LAST(A.price))",
        span=span,
    )


def read_value(tree: SyntaxTree, names: PatternVariables, define: bool) -> row_pattern.RowExpression:
    """Reads an expression of MEASURES, or of DEFINE."""
    reading = RowExpressionReader(tree, names, define)
    expr = build_sql_expression(tree.root, tree, reading.leaf)
    return row_pattern.RowExpression(expr, tuple(reading.operands), tree.whole)


def read_columns(tree: SyntaxTree, clause: str, table: str | None) -> Expr:
    """Reads an expression over the columns of one row, of PARTITION BY or ORDER BY.

    Columns may be qualified by the name of the table.
    """

    def leaf(node: exp.Expr, span: Span) -> Expr | None:
        if isinstance(node, exp.Column):
            owner = node.args.get("table")
            if owner is not None and table is not None and owner.name.lower() == table.lower():
                return FieldRef(row_pattern.ROW, node.name, span=tree.span(node.this))
            if owner is not None or isinstance(node.this, exp.Star):
                raise QueryError(
                    f"{clause} uses columns of the table, without a variable",
                    hint=f"write {node.name}" if node.name != "*" else None,
                    span=span,
                )
            return FieldRef(row_pattern.ROW, node.name, span=span)
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if find_row_aggregate(name) or name in MATCH_FUNCTIONS:
            raise QueryError(
                f"{clause} works on single rows, and {name.upper()} on a match",
                hint="use columns of the table",
                span=span,
            )
        return None

    return build_sql_expression(tree.root, tree, leaf)


def read_constant(tree: SyntaxTree) -> Expr:
    """Reads an expression without columns, of WITHIN."""
    return build_sql_expression(tree.root, tree, lambda _node, _span: None)
