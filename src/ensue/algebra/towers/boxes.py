"""Whether a box may be replaced by its pattern.

A box is a variable of a pattern that stands for a complex event. Where nothing but its members
decides what happens around it, its pattern may stand in its place: the matches are the same.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ensue.algebra.answers import summarised
from ensue.algebra.equivalence import equal_through_negation
from ensue.algebra.form import Form, form, is_absence, is_event, optional, parts, plain
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Field
from ensue.algebra.query import Query
from ensue.algebra.text import show_head
from ensue.algebra.tower import types_of
from ensue.algebra.towers.box_fields import NotSaidError, fields_of, substituted
from ensue.algebra.towers.layers import Layer, returned
from ensue.algebra.walk import atoms, kleenes, positives, results
from ensue.algebra.window import ByEvents
from ensue.schema import OneOf, Types, names_of

Choice = tuple[str, str]  # the name of a layer, and a variable of it that is a box


def boxes_of(layers: Sequence[Layer], *, delivered_too: bool = False) -> dict[Choice, str | None]:
    """Every box of a tower and why it must stay; None: its pattern may stand in its place."""
    known = {layer.name: layer for layer in layers}
    return {
        (layer.name, atom.variable): why_not_inlined(
            layer, atom.variable, known[atom.type], layers, delivered_too=delivered_too
        )
        for layer in layers
        for atom in atoms(layer.query.pattern)
        if atom.type in layer.uses
    }


def why_not_inlined(
    above: Layer,
    variable: str,
    below: Layer,
    layers: Sequence[Layer] = (),
    *,
    delivered_too: bool = False,
) -> str | None:
    """Why the pattern of a layer cannot stand in the place of a box; None if it can.

    `layers` are those of the tower: they tell what its events are made of. With `delivered_too`
    it does not matter that somebody wants the events of the layer below themselves.
    """
    known = {layer.name: layer for layer in layers} | {below.name: below}
    above, below = (
        replace(one, query=equal_through_negation(one.query)) for one in (above, below)
    )
    return (
        _why_not_types(above.query)
        or _why_not_types(below.query)
        or _why_not_above(above.query)
        or _why_not_there(above.query.pattern, variable, known)
        or _why_not_below(below, delivered_too=delivered_too)
        or _why_not_key(above, below)
        or _why_not_timed(below, known)
        or _why_not_said(above.query, variable, below.query)
    )


# ---------------------------------------------------------------------------------- the layers


def _why_not_types(query: Query) -> str | None:
    if any(isinstance(atom.type, OneOf) for atom in atoms(query.pattern)):
        return "a variable of it takes events of several types"
    return None


def _why_not_above(query: Query) -> str | None:
    for strategy in sorted(s.value for s in query.strategies - {Strategy.ANY}):
        return f"{strategy} looks at skipped events"
    if query.after is not None:
        return "AFTER MATCH needs the complex events themselves"
    if query.limit is not None or summarised(query):
        return "LIMIT, COUNT(*) and EXISTS need the complex events themselves"
    if isinstance(query.within, ByEvents):
        return "WITHIN n EVENTS counts complex events"
    if any(results(query.pattern)):
        return "user-defined operators take complex events unchanged"
    if any(lapses(query.pattern)):
        return "an absence with an interval is judged on complex events"
    return None


def _why_not_below(layer: Layer, *, delivered_too: bool) -> str | None:
    query, name = layer.query, layer.name
    if layer.delivered and not delivered_too:
        return f"{name} is itself delivered"
    for strategy in sorted(s.value for s in query.strategies - {Strategy.ANY}):
        return f"{name} is matched with {strategy}"
    if query.after is not None or query.limit is not None:
        return f"{name} has AFTER MATCH or LIMIT"
    if query.having is not None or summarised(query):
        return f"{name} has HAVING, COUNT(*) or EXISTS"
    if isinstance(query.within, ByEvents):
        return f"{name} is matched WITHIN a number of events"
    if any(lapses(query.pattern)):
        return f"{name} has an absence with an interval"
    return _why_not_pattern(query.pattern, name)


def _why_not_pattern(pattern: Pattern, name: str) -> str | None:
    inner = parts(pattern)
    match form(pattern):
        case Form.EVENT | Form.LIST | Form.ABSENCE:
            return None
        case Form.LOOP:
            return f"{name} repeats a group"
        case Form.CHOICE | Form.OPTION:
            return f"{name} has alternatives or optional parts"
        case Form.RESULT:
            return f"{name} has a user-defined operator"
        case Form.SEQUENCE:
            for place, part in enumerate(inner):
                sides = (inner[:place], inner[place + 1 :])
                if is_absence(part) and any(all(map(optional, side)) for side in sides):
                    return f"{name} has a negation at a start or an end"
        case Form.TOGETHER:
            pass
    if not plain(pattern):
        return f"{name} is matched with {show_head(pattern)}"
    return next((why for p in inner if (why := _why_not_pattern(p, name))), None)


def _why_not_key(above: Layer, below: Layer) -> str | None:
    if set(above.key) != set(below.key):
        return f"{below.name} has another key"
    given = {r.name: r.expr for r in returned(below.meaning)}
    for name in below.key:
        expr = given.get(name)
        if expr is not None and not (isinstance(expr, Field) and expr.name == name):
            return f"'{name}' of {below.name} is not a field of its events"
    return None


def _why_not_timed(below: Layer, known: Mapping[str, Layer]) -> str | None:
    """The start of a box is that of a member, and here it could not be named."""
    for atom in positives(below.query.pattern):
        inner = known.get(atom.type) if isinstance(atom.type, str) else None
        if inner is not None and {r.name for r in returned(inner.meaning)} & {"start", "end"}:
            return f"{inner.name} returns its own fields called start or end"
    return None


def _why_not_said(query: Query, variable: str, below: Query) -> str | None:
    times: Mapping[str, str] = defaultdict(str)
    fields, lists = fields_of(below, times, times), kleenes(below.pattern)
    named = [*query.where, *(() if query.having is None else (query.having,))]
    named += [r.expr for r in query.returns if r.expr != Field(variable, None)]
    try:
        for expr in named:
            substituted(expr, variable, fields, lists)
    except NotSaidError as reason:
        return str(reason)
    return None


# ----------------------------------------------------------------------------------- the place


def _why_not_there(pattern: Pattern, variable: str, known: Mapping[str, Layer]) -> str | None:
    for inside in _around(pattern, variable):
        match form(inside):
            case Form.LIST | Form.LOOP:
                return f"{variable} stands for several complex events"
            case Form.ABSENCE:
                return f"{variable} is negated"
            case Form.OPTION:
                return f"{variable} is optional"
            case Form.CHOICE | Form.RESULT:
                return f"{variable} is one of several alternatives"
            case Form.TOGETHER:
                inner = parts(inside)
                if any(map(is_absence, inner)):
                    return f"a negation in the AND around {variable} looks at complex events"
                mine, others = _sides(inner, variable, known)
                if mine & others:
                    shared = ", ".join(sorted(mine & others))
                    return f"{variable} may share events with the rest of an AND ({shared})"
            case Form.SEQUENCE | Form.EVENT:
                pass
        if not plain(inside):
            return f"{show_head(inside)} needs the complex events themselves"
    return None


def _around(pattern: Pattern, variable: str) -> tuple[Pattern, ...]:
    """The nodes from the whole pattern down to the event of a variable."""
    if is_event(pattern):
        return (pattern,) if pattern.variable == variable else ()
    for part in parts(pattern):
        below = _around(part, variable)
        if below:
            return (pattern, *below)
    return ()


def _sides(
    inner: Sequence[Pattern], variable: str, known: Mapping[str, Layer]
) -> tuple[set[str], set[str]]:
    """The types that a box is made of, and those in the other parts of an AND."""
    mine: set[str] = set()
    others: set[str] = set()
    for part in inner:
        if _around(part, variable):
            box = next(a for a in atoms(part) if a.variable == variable)
            mine |= _made_of(box.type, known)
        else:
            for atom in atoms(part):
                others |= _made_of(atom.type, known)
    return mine, others


def _made_of(types: Types, known: Mapping[str, Layer]) -> set[str]:
    return {name for type_ in names_of(types) for name in made_of(type_, known)}


def made_of(name: str, known: Mapping[str, Layer]) -> set[str]:
    """A type of events and all those that its events are made of, or must be without."""
    found = {name}
    if name in known:
        for inner in types_of(known[name].query):
            found |= made_of(inner, known)
    return found
