"""Boxes replaced by their patterns: a tower, or a part of it, as one query.

`boxes.boxes_of` says which boxes may go.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ensue.algebra.equivalence import equal_through_negation, tie
from ensue.algebra.form import is_event
from ensue.algebra.pattern import Atom, Pattern
from ensue.algebra.predicate import Binary, Expr, Field, Unary
from ensue.algebra.query import Query, Returned
from ensue.algebra.towers.box_fields import fields_of, named_anew, substituted, window_condition
from ensue.algebra.towers.boxes import Choice
from ensue.algebra.towers.layers import Layer
from ensue.algebra.walk import atoms, kleenes, positives, rewrite
from ensue.algebra.window import Window

Path = tuple[str, ...]  # the variable of a box, behind those of the boxes around it


@dataclass(frozen=True, slots=True)
class Box:
    """A complex event whose pattern stands in its place."""

    path: Path
    name: str  # of its definition
    box: str  # its variable, told apart from all others: `x`, and `x_p` inside it
    variables: tuple[str, ...]  # the events below it that a match binds
    within: Window | None
    level: int  # the query is level 1
    precursor: str | None  # the box it stands in; None: the query
    fields: Mapping[str, Expr]  # what its fields are, in terms of those events


@dataclass(frozen=True, slots=True)
class Inlined:
    """A query without some or all of its boxes, and where they were.

    `leaves` has for each box, and at () for the query, its own variables that are no boxes that
    went, and what they are called now. `whole` are the columns of RETURN that are whole boxes:
    no expression says what they are, so the query does not return them.
    """

    query: Query
    boxes: tuple[Box, ...] = ()  # each before those inside it
    leaves: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    whole: Mapping[str, Path] = field(default_factory=dict)


def inlined(
    layers: Sequence[Layer],
    gone: Collection[Choice],
    *,
    name: str | None = None,
    times: tuple[str, str] = ("start", "end"),
) -> Inlined:
    """A layer, by default the one on top, without the boxes that are `gone`.

    `times` are the names of the columns in which events that come in start and end.
    """
    known = {layer.name: layer for layer in layers}
    return _Inlining(known, gone, times).of(known[layers[-1].name if name is None else name])


@dataclass(frozen=True, slots=True)
class _Inlining:
    known: Mapping[str, Layer]
    gone: Collection[Choice]
    times: tuple[str, str]

    def of(self, layer: Layer) -> Inlined:
        query = equal_through_negation(layer.query)
        here = list(atoms(query.pattern))
        going = [a for a in here if (layer.name, a.variable) in self.gone]
        kept = {a.variable: a.variable for a in here if a not in going}
        flat = Inlined(query, (), {(): kept})
        taken = {a.variable for a in here}
        for box in going:
            flat = self._without(flat, box, taken)
        return replace(flat, query=_told_apart(flat.query))

    def _without(self, above: Inlined, box: Atom, taken: set[str]) -> Inlined:
        """The query above with the pattern of the layer below in the place of a box."""
        x, layer = box.variable, self.known[str(box.type)]
        below = self.of(layer)
        names = {a.variable: _new(x, a.variable, taken) for a in atoms(below.query.pattern)}
        boxes = {b.box: _new(x, b.box, taken) for b in below.boxes}
        inside = _named_anew(below.query, names)
        starts, ends = (self._times(inside.pattern, side) for side in (0, 1))
        fields = fields_of(inside, starts, ends)
        timeless = fields_of(replace(inside, returns=()), starts, ends)
        mine = Box(
            (x,),
            layer.name,
            x,
            tuple(a.variable for a in positives(inside.pattern)),
            inside.within,
            2,
            None,
            fields,
        )
        inner = [
            replace(
                b,
                path=(x, *b.path),
                box=boxes[b.box],
                variables=tuple(names[v] for v in b.variables),
                level=b.level + 1,
                precursor=x if b.precursor is None else boxes[b.precursor],
                fields={f: named_anew(expr, names) for f, expr in b.fields.items()},
            )
            for b in below.boxes
        ]
        lists = kleenes(inside.pattern)

        def said(expr: Expr) -> Expr:
            return substituted(expr, x, fields, lists)

        query = above.query
        where = (
            *map(said, query.where),
            *inside.where,
            *window_condition(inside.within, timeless["start"], timeless["end"]),
        )
        whole = {r.name: (x,) for r in query.returns if r.expr == Field(x, None)}
        others = [r for r in query.returns if r.name not in whole]
        leaves = {
            (x, *path): {v: names[n] for v, n in own.items()} for path, own in below.leaves.items()
        }
        return Inlined(
            replace(
                query,
                pattern=rewrite(query.pattern, lambda p: inside.pattern if p == box else p),
                where=where,
                having=None if query.having is None else said(query.having),
                returns=tuple(replace(r, expr=said(r.expr)) for r in others),
            ),
            (*above.boxes, mine, *inner),
            {**above.leaves, **leaves},
            {**above.whole, **whole},
        )

    def _times(self, pattern: Pattern, side: int) -> dict[str, str]:
        """Where the start, or the end, of each variable's event is."""
        standard = ("start", "end")
        return {
            a.variable: (standard if a.type in self.known else self.times)[side]
            for a in atoms(pattern)
        }


def _new(box: str, variable: str, taken: set[str]) -> str:
    """A name that nothing else has."""
    name, number = f"{box}_{variable}", 1
    while name in taken:
        number += 1
        name = f"{box}_{variable}{number}"
    taken.add(name)
    return name


def _named_anew(query: Query, names: Mapping[str, str]) -> Query:
    def renamed(part: Pattern) -> Pattern:
        return replace(part, variable=names[part.variable]) if is_event(part) else part

    return replace(
        query,
        pattern=rewrite(query.pattern, renamed),
        where=tuple(named_anew(c, names) for c in query.where),
        returns=tuple(Returned(named_anew(r.expr, names), r.name) for r in query.returns),
    )


def _told_apart(query: Query) -> Query:
    """Equalities of several layers that together look like `[attr]` must not be taken for it."""
    if equal_through_negation(query).equivalence == query.equivalence:
        return query
    plain = tuple(
        Unary("not", replace(c, operator="!="))
        if tie(c) is not None and isinstance(c, Binary)
        else c
        for c in query.where
    )
    return replace(query, where=plain)
