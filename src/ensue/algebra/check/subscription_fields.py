"""Does a subscription fit the events? Fields that are compared with each other, and places."""

from collections.abc import Iterator

from ensue.algebra.subscription import (
    Atomic,
    Expression,
    FieldOf,
    Placed,
    Predicate,
    PredicateType,
    Subscription,
    parts_of,
)
from ensue.errors import QueryError, did_you_mean
from ensue.schema import Kind, Schema
from ensue.span import Span

_TIMES = (Kind.TIMESTAMP, Kind.DATE)
_FITS = {
    PredicateType.ARITH: ("a number", (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)),
    PredicateType.STRING: ("text", (Kind.STRING,)),
    PredicateType.BOOL: ("true or false", (Kind.BOOLEAN,)),
    PredicateType.TIME: ("a time", (*_TIMES, Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)),
}


def check_fields(subscription: Subscription, schema: Schema) -> None:
    """QueryError if places are asked for and there are none, or fields that cannot be compared.

    Predicates with constants are checked where events are brought to them.
    """
    for expression in _all(subscription):
        match expression:
            case Placed(span=span) if schema.location is None:
                raise QueryError(
                    "events have no place here",
                    hint='say where it is: location="position", or location=("lon", "lat")',
                    span=span,
                )
            case Atomic(predicates):
                for predicate in predicates:
                    if isinstance(predicate.value, FieldOf):
                        _check(predicate, predicate.value, schema)
            case _:
                continue


def _check(predicate: Predicate, other: FieldOf, schema: Schema) -> None:
    mine = _kind(predicate.name, predicate.span, schema)
    theirs = _kind(other.name, other.span, schema)
    wanted, kinds = _FITS[predicate.type]
    for name, kind, span in (
        (predicate.name, mine, predicate.span),
        (other.name, theirs, other.span),
    ):
        if kind not in kinds:
            raise QueryError(
                f"{predicate.type.value} means {wanted}, and field '{name}' holds {kind.value}s",
                hint=_hint(kind),
                span=span,
            )
    if (mine in _TIMES) != (theirs in _TIMES):
        raise QueryError(
            f"a {mine.value} cannot be compared with a {theirs.value}", span=predicate.span
        )
    if mine is Kind.STRING and predicate.operator not in ("=", "!="):
        raise QueryError(
            "the texts of two events can only be compared with = and !=, not with "
            f"{predicate.operator}",
            hint="compare each with a constant instead",
            span=predicate.span,
        )


def _kind(name: str, span: Span | None, schema: Schema) -> Kind:
    if schema.common is not None:
        if name in schema.common:
            return schema.common[name]
        known = set(schema.common)
    else:
        found = {t.fields[name] for t in schema.types.values() if name in t.fields}
        if len(found) == 1:
            return found.pop()
        known = {field for t in schema.types.values() for field in t.fields}
    if name == "type" and schema.type_column is not None:
        return Kind.STRING
    raise QueryError(f"unknown field '{name}'", hint=did_you_mean(name, sorted(known)), span=span)


def _hint(kind: Kind) -> str | None:
    for type_, (_, kinds) in _FITS.items():
        if kind in kinds:
            return f"write {type_.value}:"
    return None


def _all(subscription: Subscription) -> Iterator[Expression]:
    left = [subscription.root, *subscription.variables.values()]
    while left:
        expression = left.pop()
        yield expression
        left += parts_of(expression)
