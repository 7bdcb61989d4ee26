"""The canonical form of a node: a text that is equal for equal queries only.

Saved states, match ids and shared plans identify a query by it. It walks the compared fields of
the frozen nodes, so a new node or field needs no code here. Values that Python calls equal
although they differ (1, 1.0 and True; 0.0 and -0.0) have different texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any

from ensue.ir.expression import Constant
from ensue.ir.pattern import RESOLVED
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    Expression,
    IntervalBetween,
    IntervalSince,
    Length,
    Predicate,
    Region,
    SpatialCondition,
    SpatialRelation,
    Subscription,
    SubscriptionInterval,
    TemporalCondition,
    TimePoint,
    VariableField,
    VariableUse,
    flatten_parts,
    get_subexpressions,
)
from ensue.ir.user_operator import UserOperator

Rewrite = Callable[[Any], Any]


class Unordered(tuple[Any, ...]):
    """A tuple whose order does not count in the canonical form."""

    __slots__ = ()


def canonical_form(value: object, rewrite: Rewrite | None = None) -> str:
    """Returns the canonical form; `rewrite` may replace each node before its fields are read.

    >>> from ensue.ir.selection import ByUnits
    >>> canonical_form(ByUnits(5)), canonical_form(ByUnits(5.0))
    ('ByUnits(amount=5)', 'ByUnits(amount=5.0)')
    """
    if (names := _compared_fields(type(value))) is not None:
        node = value if rewrite is None else rewrite(value)
        inside = [f"{name}={canonical_form(getattr(node, name), rewrite)}" for name in names]
        return f"{type(node).__name__}({' '.join(inside)})"
    match value:
        case str():
            return encode_basestring_ascii(value)
        case Unordered():
            return f"{{{' '.join(sorted([canonical_form(item, rewrite) for item in value]))}}}"
        case tuple() | list():
            return f"[{' '.join([canonical_form(item, rewrite) for item in value])}]"
        case Enum():  # before int, which some enumerations are
            return f"{type(value).__name__}.{value.name}"
        case None | int():
            return repr(value)
        case float():  # NumPy's, too
            return float.__repr__(value)
        case frozenset() | set():
            return f"{{{' '.join(sorted({canonical_form(item, rewrite) for item in value}))}}}"
        case Mapping():
            return canonical_form(Unordered(value.items()), rewrite)
        case datetime():
            return f"datetime({value.isoformat()} {value.tzinfo} {value.fold})"
        case date() | Decimal():
            return f"{type(value).__name__}({value})"
        case timedelta():
            return f"timedelta({value // timedelta(microseconds=1)})"
        case _:
            raise TypeError(f"a {type(value).__name__} has no canonical form")


def compute_fingerprint(value: object) -> bytes:
    """Hashes the canonical form to 16 bytes, ignoring fields that are resolved against a schema.

    >>> from ensue.ir.selection import ByUnits
    >>> compute_fingerprint(ByUnits(5)) == compute_fingerprint(ByUnits(5.0))
    False
    """
    return blake2b(canonical_form(value, _reset_resolved).encode(), digest_size=16).digest()


def _reset_resolved(node: Any) -> Any:
    unset = {field.name: field.default for field in fields(node) if field.metadata == RESOLVED}
    return replace(node, **unset) if unset else node


# An operator's functions cannot be read, and its fingerprint changes with them.
_COMPARED: dict[type, tuple[str, ...] | None] = {UserOperator: ("name", "fingerprint")}


def _compared_fields(node: type) -> tuple[str, ...] | None:
    """Returns the names of the compared fields; None if the type is not a dataclass."""
    if node not in _COMPARED:
        compared = tuple(f.name for f in fields(node) if f.compare) if is_dataclass(node) else None
        _COMPARED[node] = compared
    return _COMPARED[node]


# ----------------------------------------------------------------------------- subscriptions
#
# Two subscriptions share their canonical form if they differ only in the names of variables and regions, in the order
# of `&&`, `||` and predicates, in inlined tolerances, and in inlined variables that are used once.
#
# Variables are labelled by colour refinement, as in graph canonicalization: a variable's colour is
# refined by the text in which it occurs. Variables with equal colours are individualized one after
# the other, and the smallest text is the canonical one.

Labels = Mapping[str, str]
_EFFORT = 5_000  # maximum number of texts that are generated for one subscription


def canonical_subscription(subscription: Subscription) -> str:
    """Returns the canonical form of a subscription.

    Equal texts always mean equal subscriptions. With very many symmetric variables the search is
    cut off, and then equal subscriptions may have different texts.

    >>> from ensue.ir.subscription import PredicateType
    >>> one, two = (EventAtom((Predicate(PredicateType.ARITH, "id", "=", n),)) for n in (1, 2))
    >>> first, second = (Subscription(Conjunction(parts)) for parts in ((one, two), (two, one)))
    >>> canonical_subscription(first) == canonical_subscription(second)
    True
    """
    within = None if subscription.within is None else _length(subscription.within)
    options = canonical_form((subscription.select, within))
    return f"{options} {_Canonical(subscription).text()}"


class _Canonical:
    def __init__(self, subscription: Subscription) -> None:
        defined = subscription.variables
        uses, read = _count_uses(subscription.root, defined)
        once = {n: defined[n] for n, count in uses.items() if count == 1 and n not in read}
        rewriter = _Rewriter(subscription, once)
        self.root = rewriter.expression(subscription.root)
        shared = (uses.keys() | read) - once.keys()
        self.variables = {name: rewriter.expression(defined[name]) for name in shared}
        self._effort = 0

    def text(self) -> str:
        if not self.variables:
            return self._write({})
        return min(self._find_texts(self._refine(dict.fromkeys(self.variables, 0))))

    def _find_texts(self, colours: dict[str, int]) -> set[str]:
        """Returns texts for these colours, including the smallest one.

        Two choices that share a text are isomorphic, so one of them is enough.
        """
        if (alike := _find_alike(colours)) is None:
            return {self._write({name: str(colour) for name, colour in colours.items()})}
        texts = self._find_texts(self._refine(_individualize(colours, alike[0])))
        for name in alike[1:]:
            if self._effort > _EFFORT:
                break
            other = self._refine(_individualize(colours, name))
            if self._find_text(other) not in texts:
                texts |= self._find_texts(other)
        return texts

    def _find_text(self, colours: dict[str, int]) -> str:
        """Returns one of the texts for these colours."""
        while (alike := _find_alike(colours)) is not None:
            colours = self._refine(_individualize(colours, alike[0]))
        return self._write({name: str(colour) for name, colour in colours.items()})

    def _refine(self, colours: dict[str, int]) -> dict[str, int]:
        """Refines colours until variables of one colour occur in equal texts."""
        while True:
            labels = {name: str(colour) for name, colour in colours.items()}
            keys = {name: (colour, self._write({**labels, name: "*"})) for name, colour in colours.items()}
            ranks = {key: rank for rank, key in enumerate(sorted(set(keys.values())))}
            if len(ranks) == len(set(colours.values())):
                return {name: ranks[key] for name, key in keys.items()}
            colours = {name: ranks[key] for name, key in keys.items()}

    def _write(self, labels: Labels) -> str:
        self._effort += 1

        def labelled(node: Any) -> Any:
            match node:
                case VariableUse(name):
                    return VariableUse(labels[name])
                case VariableField(variable, name):
                    return VariableField(labels[variable], name)
                case _:
                    return node

        defined = Unordered((labels[name], part) for name, part in self.variables.items())
        return canonical_form((self.root, defined), labelled if labels else None)


def _find_alike(colours: Mapping[str, int]) -> list[str] | None:
    """Returns the variables of the smallest colour that several share."""
    cells: dict[int, list[str]] = {}
    for name, colour in colours.items():
        cells.setdefault(colour, []).append(name)
    return next((cells[colour] for colour in sorted(cells) if len(cells[colour]) > 1), None)


def _individualize(colours: Mapping[str, int], name: str) -> dict[str, int]:
    return {other: 2 * colour + (other != name) for other, colour in colours.items()}


def _count_uses(expression: Expression, variables: Mapping[str, Expression]) -> tuple[dict[str, int], set[str]]:
    """Counts the uses of each variable, and returns the variables whose fields are read."""
    uses: dict[str, int] = {}
    read: set[str] = set()
    seen: set[str] = set()
    pending = [expression]
    while pending:
        part = pending.pop()
        pending += get_subexpressions(part)
        names: list[str] = []
        if isinstance(part, VariableUse):
            uses[part.variable] = uses.get(part.variable, 0) + 1
            names = [part.variable]
        elif isinstance(part, EventAtom):
            names = [p.value.variable for p in part.predicates if isinstance(p.value, VariableField)]
            read |= set(names)
        pending += [variables[name] for name in dict.fromkeys(names) if name not in seen]
        seen |= set(names)
    return uses, read


@dataclass(frozen=True, slots=True)
class _Rewriter:
    """Normalizes expressions, and inlines variables that are used once."""

    subscription: Subscription
    once: Mapping[str, Expression]

    def expression(self, expression: Expression) -> Expression:
        match expression:
            case EventAtom(predicates):
                return EventAtom(Unordered(dict.fromkeys(map(_predicate, predicates))))
            case VariableUse(name):
                return self.expression(self.once[name]) if name in self.once else expression
            case TemporalCondition(when, interval, part):
                return TemporalCondition(when, self.interval(interval), self.expression(part))
            case Concurrent(first, second, tolerance):
                by = _length(tolerance or self.subscription.concurrent)
                return Concurrent(self.expression(first), self.expression(second), by)
            case SpatialCondition():
                return self.rewrite_spatial(expression)
            case Conjunction(parts):
                return Conjunction(Unordered(flatten_parts(map(self.expression, parts), Conjunction)))
            case Disjunction(parts):
                return Disjunction(Unordered(flatten_parts(map(self.expression, parts), Disjunction)))

    def interval(self, interval: SubscriptionInterval) -> SubscriptionInterval:
        match interval:
            case IntervalSince(base, length):
                since = TimePoint(_constant(base.at)) if isinstance(base, TimePoint) else self.expression(base)
                return IntervalSince(since, _length(length))
            case IntervalBetween(first, second):
                return IntervalBetween(self.expression(first), self.expression(second))

    def rewrite_spatial(self, placed: SpatialCondition) -> SpatialCondition:
        place, number, comparison = placed.place, placed.number, placed.comparison
        if placed.where is SpatialRelation.SAME and number is None:
            number = self.subscription.same_place
        if placed.where is SpatialRelation.DISTANCE and comparison == "=":
            comparison = f"within {float(self.subscription.equal)!r} of"
        return replace(
            placed,
            place=place if isinstance(place, Region) else self.expression(place),
            part=self.expression(placed.part),
            comparison=comparison,
            number=None if number is None else float(number),
        )


def _predicate(predicate: Predicate) -> Predicate:
    match predicate.value:
        case VariableField():
            return predicate
        case tuple() as values:
            return replace(predicate, value=Unordered(dict.fromkeys(map(_constant, values))))
        case constant:
            return replace(predicate, value=_constant(constant))


def _constant(value: Constant) -> Constant:
    """Normalizes equal values: 5 and 5.0, and a timestamp in any time zone."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case _:
            return value


def _length(length: Length | None) -> Length:
    """Normalizes a length; a length of zero has no unit."""
    match length:
        case None | ByTime(0) | ByUnits(0):
            return ByUnits(0)
        case ByTime():
            return length
        case ByUnits(amount):
            whole = isinstance(amount, float) and amount.is_integer()
            return ByUnits(int(amount)) if whole else length
