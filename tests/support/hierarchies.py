"""Random texts of hierarchies over the streams of `support.streams`, and the judge's events.

Every choice is taken from the generator that is passed in. A seeded one repeats a hierarchy; one that
Hypothesis supplies also shrinks it. Every complex event has the fields x, y, s and k of the events
that come in, so that any layer can stand above any other; some of the texts are no valid hierarchies:
`ensue` says so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from ensue.analyzer.hierarchy_inlining import InlinedQuery, InlinedVariable, Path, inline_layer
from ensue.analyzer.hierarchy_layers import Layer
from ensue.engine.reference_events import read_events
from ensue.ir.hierarchy import get_pattern_types
from ensue.reference import Binding, Event, build_complex_events, build_layer_stream, find_matches, nest_positions
from ensue.reference.hierarchy_matches import NestedPositions, match_layer, resolve_layer_query
from ensue.schema import Schema
from ensue.vector.event_table import StreamSchema
from support.streams import PLAIN, TYPES, Nature, random_nature

STRATEGIES = ("skip_till_next_match", "strict_contiguity", "partition_contiguity")
QUANTIFIERS = ("+", "{2}", "{1,2}", "{0,2}", "*")
COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")


@dataclass(frozen=True, slots=True)
class Habits:
    """What random hierarchies are made of."""

    depth: int = 3  # definitions, at most
    flat: bool = False  # little that would keep a box from being replaced by its pattern
    unions: bool = True  # OR and parts that may be missing
    intervals: bool = False  # absences with intervals of their own
    lengths: tuple[int, ...] = (3, 4, 5, 6)  # of windows, more in higher layers


def random_hierarchy(random: Random, nature: Nature = PLAIN, habits: Habits | None = None) -> str:
    """The text of a hierarchy.

    >>> print(random_tower(Random(3), habits=Habits(depth=2, flat=True)))  # doctest: +SKIP
    EVENT D1 AS SEQ(A a1, B b2) WITHIN 4 RETURN ...; SEQ(D1 d1, C c2) WITHIN 6
    """
    return _Hierarchy(random, nature, habits or Habits()).text()


def random_hierarchies(random: Random, count: int, nature: Nature = PLAIN, habits: Habits | None = None) -> list[str]:
    """The texts of hierarchies that share definitions, some of which nobody else has."""
    whole = _Hierarchy(random, nature, habits or Habits())
    defined = whole.definitions()
    texts = []
    for number in range(1, count + 1):
        own = replace(whole, defined=list(whole.defined))
        more = []
        if random.random() < 0.4:
            text, made = _Layer(own, own.key(own.usual)).definition(f"E{number}")
            own.defined.append(made)
            more.append(text)
        texts.append("; ".join([*defined, *more, *own.top(own.key(own.usual))]))
    return texts


def random_crowd(random: Random) -> Nature:
    """What may happen in a stream in which many events have the same time."""
    steps = random.choice(((0, 1, 1, 2), (0, 0, 0, 1), (0, 0, 1)))
    return replace(random_nature(random), steps=steps)


def given_events(events: pa.Table, shape: StreamSchema, untyped: str = "") -> list[Event]:
    """The rows of a table in order, as events for `semantics.tower_matches`.

    Where each type has a table of its own, events have the fields of theirs only.
    """
    found = read_events(events, shape.schema, shape.unit, untyped=untyped)
    if shape.by_type is None:
        return found
    places = {name: dict(columns) for name, columns in shape.by_type.items()}
    times = {shape.schema.start, shape.schema.end}
    return [
        replace(
            event,
            values={name: event.values[name] for name in times}
            | {f: event.values[column] for f, column in places[event.type].items()},
        )
        for event in found
    ]


def few_enough(layers: Sequence[Layer], events: Sequence[Event], schema: Schema, most: int = 12) -> Sequence[Event]:
    """As many of the first events as make no layer below the top too large for the semantics."""
    found: dict[str, list[Event]] = {}
    for layer in layers[:-1]:
        found[layer.name] = match_layer(layer, events, found, schema)
        if len(found[layer.name]) > most:
            return few_enough(layers, events[: len(events) // 2], schema, most)
    return events


def by_rows(members: Mapping[str, Any]) -> NestedPositions:
    """The members of a match as `semantics.nested` writes them."""
    found: list[tuple[str, tuple[int | NestedPositions, ...]]] = []
    for variable, value in members.items():
        several = [e for e in (value if isinstance(value, list) else [value]) if e]
        if not all("members" in e or "row" in e for e in several):
            continue  # the result of an operator
        events = tuple(by_rows(e["members"]) if "members" in e else e["row"] for e in several)
        if events:
            found.append((variable, events))
    return tuple(sorted(found))


def flat_matches(
    layers: Sequence[Layer], gone: Collection[InlinedVariable], events: Sequence[Event], schema: Schema
) -> list[NestedPositions]:
    """The matches of the query on top without some boxes, written as those of the hierarchy are.

    Layers that are still there are found as always.
    """
    top = layers[-1]
    flat = inline_layer(layers, gone, times=(schema.start, schema.end))
    uses = tuple(t for t in get_pattern_types(flat.query) if t in {layer.name for layer in layers})
    layer = replace(top, query=flat.query, uses=uses)
    stream = build_layer_stream(layer, events, build_complex_events(layers[:-1], events, schema))
    found = find_matches(resolve_layer_query(layer, schema), stream.events)
    return [regrouped(flat, {v: tuple(stream.origins[e.position] for e in es) for v, es in b.items()}) for b in found]


def regrouped(flat: InlinedQuery, binding: Binding, path: Path = ()) -> NestedPositions:
    """A match of a flat query with its events in the boxes they came from."""
    inside = {v: binding[now] for v, now in flat.leaves[path].items() if now in binding}
    boxes = [box.path for box in flat.boxes if box.path[:-1] == path]
    found = dict(nest_positions(inside)) | {p[-1]: (regrouped(flat, binding, p),) for p in boxes}
    return tuple(sorted(found.items()))


@dataclass(slots=True)
class _Defined:
    name: str
    level: int
    members: list[str]  # of single events, that layers above may name
    made_of: set[str]


@dataclass(slots=True)
class _Hierarchy:
    random: Random
    nature: Nature
    habits: Habits
    defined: list[_Defined] = field(default_factory=list)

    usual: str = ""  # the key of most layers

    def text(self) -> str:
        return "; ".join([*self.definitions(), *self.top(self.key(self.usual))])

    def definitions(self) -> list[str]:
        count = self.random.randint(1, self.habits.depth)
        self.usual = self.random.choice(("", "k", "k"))
        texts = []
        for number in range(1, count + 1):
            text, made = _Layer(self, self.key(self.usual)).definition(f"D{number}")
            self.defined.append(made)
            texts.append(text)
        return texts

    def top(self, key: str) -> list[str]:
        """The query on top, and what is emitted beside it."""
        texts = [_Layer(self, key).query(top=True)]
        if self.defined and not self.habits.flat and self.random.random() < 0.2:
            texts.append(f"EMIT {self.random.choice(self.defined).name}")
        return texts

    def made_of(self, type: str) -> set[str]:
        return next((d.made_of for d in self.defined if d.name == type), {type})

    def level(self, type: str) -> int:
        return next((d.level for d in self.defined if d.name == type), 0)

    def key(self, usual: str) -> str:
        if self.habits.flat or self.random.random() < 0.8:
            return usual
        return self.random.choice(("", "k", "s"))


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    type: str
    kleene: bool = False
    negated: bool = False
    missing: bool = False


@dataclass(slots=True)
class _Layer:
    """Writes one layer, and keeps the variables it has named."""

    hierarchy: _Hierarchy
    key: str
    variables: list[_Variable] = field(default_factory=list)

    @property
    def random(self) -> Random:
        return self.hierarchy.random

    @property
    def habits(self) -> Habits:
        return self.hierarchy.habits

    @property
    def positive(self) -> list[_Variable]:
        return [v for v in self.variables if not v.negated]

    @property
    def certain(self) -> list[_Variable]:
        return [v for v in self.positive if not v.kleene and not v.missing]

    @property
    def level(self) -> int:
        return 1 + max(self.hierarchy.level(v.type) for v in self.variables)

    def definition(self, name: str) -> tuple[str, _Defined]:
        body = self.query(top=False)
        level = self.level
        members = [v.name for v in self.certain]
        made_of = {name}.union(*(self.hierarchy.made_of(v.type) for v in self.variables))
        return f"EVENT {name} AS {body}", _Defined(name, level, members, made_of)

    def query(self, *, top: bool) -> str:
        pattern = self.pattern()
        if not self.certain or (top and not any(self.hierarchy.level(v.type) for v in self.positive)):
            more = self.variable(self.hierarchy.defined[-1].name if top else "A")
            pattern = f"SEQ({pattern}, {more.type} {more.name})"
        text = f"{pattern}{self.where()}{self.within()}{self.after()}"
        returns = self.returns() if not top or self.random.random() < 0.3 else ""
        having = ""
        if not self.habits.flat and self.random.random() < 0.05:
            having = f" HAVING {self.value(self.random.choice(self.positive))} > 1"
        return text + returns + having

    # ------------------------------------------------------------------------ pattern

    def pattern(self) -> str:
        chance = self.random.random()
        if chance < 0.75:
            return self.sequence(1, self.random.choice((1, 2, 2, 2, 2, 3)))
        if chance < 0.92 or self.habits.flat or not self.habits.unions:
            return self.conjunction(1)
        return f"OR({self.one()}, {self.sequence(0, 2)})"

    def conjunction(self, depth: int) -> str:
        """Two parts in any order; some of them can share no events."""
        apart = [d for d in self.hierarchy.defined if not d.made_of & {"C"}]
        if apart and self.random.random() < (0.8 if self.habits.flat else 0.2):
            box = self.variable(self.random.choice(apart).name)
            other = self.variable("C")
            return f"AND({box.type} {box.name}, C {other.name})"
        return f"AND({self.part(0)}, {self.part(depth)})"

    def sequence(self, depth: int, length: int) -> str:
        parts = []
        for place in range(length):
            if self.random.random() < (0.05 if place == 0 and self.habits.flat else 0.15):
                parts.append(self.negation())
            parts.append(self.part(depth))
        if not self.habits.flat and self.random.random() < 0.08:
            parts.append(self.negation())
        return f"SEQ({', '.join(parts)})"

    def part(self, depth: int) -> str:
        chance = self.random.random()
        if depth > 0 and chance < 0.1:
            return self.conjunction(0)
        if depth > 0 and chance < 0.2:
            return self.sequence(0, 2)
        if chance < 0.3:
            return self.repeated()
        if self.habits.unions and not self.habits.flat and chance < 0.4:
            name = self.named(missing=True)
            return f"{name.type}? {name.name}"
        return self.one()

    def one(self) -> str:
        variable = self.named()
        return f"{variable.type} {variable.name}"

    def repeated(self) -> str:
        variable = self.named(kleene=True)
        return f"{variable.type}{self.random.choice(QUANTIFIERS)} {variable.name}[]"

    def negation(self) -> str:
        variable = self.named(negated=True)
        interval = self.interval() if self.habits.intervals else ""
        return f"!{variable.type} {variable.name}{interval}"

    def interval(self) -> str:
        """An interval that begins and ends near events that every match has."""
        known = [v.name for v in self.certain]
        if not known or self.random.random() < 0.3:
            return ""
        unit = " seconds" if self.hierarchy.nature.time.startswith("timestamp") else ""
        ends = (
            f"{self.random.choice(known)}.{self.random.choice(('start', 'end'))} "
            f"{self.random.choice('+-')} {self.random.choice((0, 1, 2))}{unit}"
            for _ in "ab"
        )
        return " FROM {} TO {}".format(*ends)

    def named(self, *, kleene: bool = False, negated: bool = False, missing: bool = False) -> _Variable:
        defined = self.hierarchy.defined
        boxes = defined and not (self.habits.flat and (kleene or negated))
        if boxes and self.random.random() < 0.6:
            recent = defined[-1:] if self.random.random() < 0.5 else defined
            type = self.random.choice(recent).name
        else:
            type = self.random.choice(TYPES + "X" if negated else TYPES)
        return self.variable(type, kleene=kleene, negated=negated, missing=missing)

    def variable(self, type: str, *, kleene: bool = False, negated: bool = False, missing: bool = False) -> _Variable:
        prefix = "n" if negated else ""
        name = f"{prefix}{type.lower()}v{len(self.variables) + 1}"
        variable = _Variable(name, type, kleene, negated, missing)
        self.variables.append(variable)
        return variable

    # ------------------------------------------------------------------------ conditions

    def where(self) -> str:
        conditions = [f"[{self.key}]"] if self.key else []
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2))):
            conditions += self.condition()
        joined = " and ".join(conditions)
        if self.habits.flat or self.random.random() < 0.8:
            return f" WHERE {joined}" if joined else ""
        names = ", ".join(v.name + ("[]" if v.kleene else "") for v in self.positive)
        return f" WHERE {self.random.choice(STRATEGIES)}({names}) {{ {joined or '1 = 1'} }}"

    def condition(self) -> list[str]:
        one = self.random.choice(self.variables)
        chance = self.random.random()
        operator = self.random.choice(COMPARISONS)
        if one.kleene and chance < 0.4:
            right = self.random.choice((f"{one.name}[i-1].x", "2", f"avg({one.name}[..i-1].y)"))
            return [f"{one.name}[i].x {self.random.choice(('>=', '<=', '!='))} {right}"]
        if chance < 0.3:
            return [f"{self.value(one)} {operator} {self.random.choice(('1', '2', '1.5'))}"]
        other = self.random.choice(self.positive)
        if one == other:
            return []
        if chance < 0.4 and not one.kleene and not other.kleene:
            return [self.spaced(one, other)]
        if chance < 0.45 and not one.kleene and not other.kleene:
            return [f"{one.name}.s {self.random.choice(('=', '!='))} {other.name}.s"]
        return [f"{self.value(one)} {operator} {self.value(other)}"]

    def spaced(self, one: _Variable, other: _Variable) -> str:
        """A condition on how far two events are apart."""
        sides = self.random.choice((("start", "end"), ("end", "start"), ("start", "start")))
        unit = " seconds" if self.hierarchy.nature.time.startswith("timestamp") else ""
        amount = self.random.choice((1, 2, 3))
        return f"{one.name}.{sides[0]} - {other.name}.{sides[1]} {self.random.choice(('<', '>='))} {amount}{unit}"

    def value(self, variable: _Variable) -> str:
        name, number = variable.name, self.random.choice("xy")
        if variable.kleene:
            single = (f"{name}[1].{number}", f"{name}[{name}.LEN].{number}")
            over_all = (f"sum({name}.{number})", f"max({name}.{number})", f"count({name})")
            return self.random.choice((*single, *over_all))
        made = next((d for d in self.hierarchy.defined if d.name == variable.type), None)
        if made is not None and made.members and self.random.random() < 0.35:
            return f"{name}.{self.random.choice(made.members)}.{number}"
        return f"{name}.{number}"

    # ------------------------------------------------------------------------ the rest

    def within(self) -> str:
        unit = " seconds" if self.hierarchy.nature.time.startswith("timestamp") else ""
        if not self.habits.flat and self.random.random() < 0.08:
            return " WITHIN 4 EVENTS"
        if self.random.random() < 0.1 and not self.hierarchy.defined:
            return ""
        length = self.random.choice(self.habits.lengths) + 4 * (self.level - 1)
        return f" WITHIN {length}{unit}"

    def after(self) -> str:
        if self.habits.flat or self.random.random() < 0.9:
            return ""
        name = self.random.choice(self.positive).name
        places = ("PAST LAST EVENT", "TO NEXT EVENT", f"TO LAST {name}", f"TO FIRST {name}")
        return f" AFTER MATCH SKIP {self.random.choice(places)}"

    def returns(self) -> str:
        columns = [f"{self.number('x')} AS x", f"{self.number('y')} AS y", f"{self.text()} AS s"]
        if self.key != "k" or self.random.random() < 0.5:
            columns.append(f"{self.source()}.k AS k")
        if self.key == "s":
            columns = [c for c in columns if not c.endswith(" AS s")]
        return f" RETURN {', '.join(columns)}"

    def number(self, name: str) -> str:
        one, other = self.random.choice(self.positive), self.random.choice(self.positive)
        chance = self.random.random()
        if name == "x" and chance < 0.2:
            lists = [v for v in self.positive if v.kleene]
            return f"count({lists[0].name})" if lists else f"{self.single(one)}.x"
        if chance < 0.5 or one == other:
            return f"{self.single(one)}.{name}"
        return f"{self.single(one)}.{name} + {self.single(other)}.{name}"

    def text(self) -> str:
        return f"{self.single(self.random.choice(self.positive))}.s"

    def source(self) -> str:
        """An event that every match has, if there is one."""
        return self.single(self.random.choice(self.certain or self.positive))

    def single(self, variable: _Variable) -> str:
        if not variable.kleene:
            return variable.name
        return f"{variable.name}[1]" if self.random.random() < 0.7 else (f"{variable.name}[{variable.name}.LEN]")
