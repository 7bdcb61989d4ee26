"""What an expression of MEASURES or DEFINE reaches: columns, navigations, aggregates."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from ensue.algebra.predicate import Expr, Field
from ensue.algebra.row_patterns.aggregates import row_aggregate
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    NUMBER,
    REACHED,
    ROW,
    MatchNumber,
    Navigation,
    Reach,
)
from ensue.errors import QueryError
from ensue.languages.row_patterns.names import Names
from ensue.languages.row_patterns.row_aggregates import Argument, aggregate_of
from ensue.languages.row_patterns.scalars import Place, expression_of
from ensue.span import Span

LOGICAL = ("first", "last")
PHYSICAL = ("prev", "next")
OF_MATCHES = (*LOGICAL, *PHYSICAL, "classifier", "match_number")
_MOST_OFFSET = 10**9
_WINDOWED = {"first_value": "FIRST", "last_value": "LAST", "lag": "PREV", "lead": "NEXT"}


def folded(identifier: exp.Expr) -> str:
    """A variable's name: in upper case, unless it is quoted."""
    name = identifier.name
    return name if identifier.args.get("quoted") else name.upper()


@dataclass(slots=True)
class Reading:
    """One expression of MEASURES or DEFINE, and the reaches that it is made of."""

    place: Place
    names: Names
    define: bool
    spoken: Mapping[int, str]
    reaches: list[Reach] = field(default_factory=list)

    def leaf(self, node: exp.Expr, span: Span) -> Expr | None:
        """What looks at the match, as a field that stands for a reach."""
        reach = self._reach(node, span)
        if reach is None:
            return None
        if reach not in self.reaches:
            self.reaches.append(reach)
        return Field(REACHED, str(self.reaches.index(reach)), span=span)

    def _reach(self, node: exp.Expr, span: Span) -> Reach | None:
        if isinstance(node, exp.Column):
            argument = Argument("a column")
            column = self._column(node, span, argument)
            return Navigation(column, argument.members, span=span)
        if isinstance(node, exp.Filter | exp.WithinGroup):
            return self._aggregate(node, span)
        if not isinstance(node, exp.Anonymous):
            return None
        name, _ = self._called(node)
        if name in LOGICAL or name in PHYSICAL:
            return self._navigation(node, span)
        if row_aggregate(name) is not None:
            return self._aggregate(node, span)
        if name == "classifier":
            argument = Argument("CLASSIFIER")
            return Navigation(self._classifier(node, span, argument), argument.members, span=span)
        if name == "match_number":
            self._no_arguments(node, span)
            return MatchNumber(span)
        return None

    def _called(self, node: exp.Anonymous) -> tuple[str, str | None]:
        """The function that is called, in lower case, and RUNNING or FINAL where it is said."""
        name, semantics = node.name, None
        start = self.place.span(node).start
        if start in self.spoken:
            semantics = self.spoken[start]
            name = re.sub(rf"(?i)^{semantics}_+", "", name)
        lower = name.lower()
        span = self.place.span(node)
        if lower in _WINDOWED:
            raise QueryError(
                f"{lower} is a window function",
                hint=f"in MATCH_RECOGNIZE it is {_WINDOWED[lower]}(...)",
                span=span,
            )
        if semantics is not None and lower not in LOGICAL and row_aggregate(lower) is None:
            inside = "PREV(FINAL LAST(x))" if semantics == "FINAL" else "PREV(RUNNING LAST(x))"
            raise QueryError(
                f"{semantics} cannot be combined with {lower.upper()}",
                hint=f"write {inside}"
                if lower in PHYSICAL
                else f"it goes before FIRST, LAST or an aggregate: {semantics} LAST(x)",
                span=span,
            )
        if semantics == "FINAL" and self.define:
            raise QueryError(
                "DEFINE cannot look at the final rows of a match that is still being found",
                hint=f"leave out FINAL: {lower.upper()} covers the rows up to the current one",
                span=span,
            )
        return lower, semantics

    # ---- rows

    def _column(self, node: exp.Expr, span: Span, argument: Argument) -> Field:
        owner = node.args.get("table")
        if node.args.get("db") is not None:
            raise QueryError("a column is written as variable.column", span=span)
        if isinstance(node.this, exp.Star):
            raise QueryError(
                "a whole row has no value", hint="only count takes it: count(A.*)", span=span
            )
        if owner is None:
            argument.take("", (), span)
        else:
            name = folded(owner)
            argument.take(name, self.names.members(name, self.place.span(owner)), span)
        return Field(ROW, node.name, span=self.place.span(node.this))

    def _classifier(self, node: exp.Expr, span: Span, argument: Argument) -> Field:
        match node.expressions:
            case []:
                argument.take("", (), span)
            case [exp.Column() as named] if named.args.get("table") is None:
                name = folded(named.this)
                argument.take(name, self.names.members(name, self.place.span(named)), span)
            case _:
                raise QueryError(
                    "CLASSIFIER takes one variable, or nothing",
                    hint="write CLASSIFIER() or CLASSIFIER(A)",
                    span=span,
                )
        return Field(ROW, CLASSIFIER, span=span)

    def _no_arguments(self, node: exp.Expr, span: Span) -> None:
        if node.expressions:
            raise QueryError(
                "MATCH_NUMBER takes no argument", hint="write MATCH_NUMBER()", span=span
            )

    def _inside(self, node: exp.Expr, argument: Argument) -> Expr:
        """An expression over one row, in a navigation or an aggregate."""

        def leaf(node: exp.Expr, span: Span) -> Expr | None:
            if isinstance(node, exp.Column):
                return self._column(node, span, argument)
            if isinstance(node, exp.Filter | exp.WithinGroup):
                raise _nested(argument.what, "an aggregate", span)
            if not isinstance(node, exp.Anonymous):
                return None
            name, _ = self._called(node)
            if name == "classifier":
                return self._classifier(node, span, argument)
            if name == "match_number":
                self._no_arguments(node, span)
                return Field(ROW, NUMBER, span=span)
            if name in OF_MATCHES or row_aggregate(name) is not None:
                raise _nested(argument.what, name.upper(), span)
            return None

        return expression_of(node, self.place, leaf)

    def _aggregate(self, node: exp.Expr, span: Span) -> Reach:
        return aggregate_of(node, span, self.place, self._called, self._inside, self.names.members)

    # ---- navigation

    def _navigation(self, node: exp.Anonymous, span: Span) -> Navigation:
        name, semantics = self._called(node)
        inner, count = self._arguments(node, name, span)
        if name in LOGICAL:
            return self._logical(inner, name, count or 0, semantics == "FINAL", span)
        shift = (1 if count is None else count) * (1 if name == "next" else -1)
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Anonymous):
            below, within = self._called(inner)
            if below in LOGICAL:
                at = self.place.span(inner)
                deeper, offset = self._arguments(inner, below, at)
                found = self._logical(deeper, below, offset or 0, within == "FINAL", at)
                return Navigation(
                    found.expr,
                    found.variables,
                    found.first,
                    found.offset,
                    shift,
                    found.final,
                    span,
                )
        found = self._logical(inner, name, 0, False, span)
        return Navigation(found.expr, found.variables, shift=shift, span=span)

    def _logical(
        self, inner: exp.Expr, name: str, offset: int, final: bool, span: Span
    ) -> Navigation:
        argument = Argument(name.upper())
        expr = self._inside(inner, argument)
        if argument.owner is None:
            raise QueryError(
                f"{name.upper()} needs a column or CLASSIFIER()",
                hint=f"as in {name.upper()}(A.price)",
                span=span,
            )
        return Navigation(expr, argument.members, name == "first", offset, 0, final, span)

    def _arguments(
        self, node: exp.Anonymous, name: str, span: Span
    ) -> tuple[exp.Expr, int | None]:
        """What a navigation is about, and how many rows away."""
        match node.expressions:
            case [inner]:
                return inner, None
            case [inner, exp.Literal() as count] if not count.is_string and count.name.isdigit():
                if len(count.name) > 10 or int(count.name) > _MOST_OFFSET:
                    raise QueryError(
                        f"an offset is at most {_MOST_OFFSET:,}", span=self.place.span(count)
                    )
                return inner, int(count.name)
            case [_, count]:
                raise QueryError(
                    f"the offset of {name.upper()} must be a constant whole number, 0 or more",
                    hint=f"as in {name.upper()}(A.price, 2)",
                    span=self.place.span(count),
                )
            case _:
                raise QueryError(
                    f"{name.upper()} takes an expression and an optional offset",
                    hint=f"as in {name.upper()}(A.price, 2)",
                    span=span,
                )


def _nested(outer: str, inner: str, span: Span) -> QueryError:
    if inner in ("FIRST", "LAST") and outer in ("PREV", "NEXT"):
        return QueryError(
            f"{inner} in {outer} must stand alone there",
            hint=f"compute outside it: {outer}({inner}(A.price)) + 1",
            span=span,
        )
    if row_aggregate(outer) is not None:
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
