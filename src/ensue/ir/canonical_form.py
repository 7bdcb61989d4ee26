"""The canonical form of a node: a text that is equal for equal queries only.

Saved states, match ids and shared plans identify a query by it. It walks the compared fields of
the frozen nodes, so a new node or field needs no code here. Values that Python calls equal
although they differ (1, 1.0 and True; 0.0 and -0.0) have different texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any

from ensue.ir.pattern import RESOLVED
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
