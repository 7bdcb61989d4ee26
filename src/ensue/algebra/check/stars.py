"""`RETURN a.*` and `RETURN *`: the columns that they stand for."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ensue.algebra.operator import TIMES
from ensue.algebra.pattern import Pattern
from ensue.algebra.predicate import MATCHES, At, Field
from ensue.algebra.query import Returned
from ensue.algebra.walk import bound_variables, results
from ensue.schema import EventType

FieldsOf = Callable[[str, Field], Iterable[str]]  # of a variable's events


def with_variables(
    returns: Iterable[Returned], patterns: Iterable[Pattern]
) -> tuple[Returned, ...]:
    """The columns of RETURN with all variables of these patterns in the place of `*`."""
    whole = [name for pattern in patterns for name in bound_variables(pattern)]
    found: list[Returned] = []
    for column in returns:
        if column.every and column.expr == Field(MATCHES, None):
            found += [Returned(Field(name, None), name, span=column.span) for name in whole]
        else:
            found.append(column)
    return tuple(found)


def with_fields(
    returns: Iterable[Returned], fields_of: FieldsOf, lists: Iterable[str]
) -> tuple[Returned, ...]:
    """The columns of RETURN with one for each field in the place of `a.*`: `a_price`."""
    found: list[Returned] = []
    for column in returns:
        if not column.every:
            found.append(column)
            continue
        event = column.expr
        assert isinstance(event, Field)
        if event.at is At.ONLY and event.variable in lists:
            event = replace(event, at=At.ALL)
        for name in fields_of(event.variable, event):
            one = replace(event, name=name)
            found.append(Returned(one, f"{column.name}_{name}", span=column.span))
    return tuple(found)


def fields_by(types: Mapping[str, EventType], patterns: Iterable[Pattern]) -> FieldsOf:
    """The fields of events of these types, by variable; of an operator's result its own ones."""
    own = {r.variable: r.operator for one in patterns for r in results(one)}

    def fields_of(variable: str, event: Field) -> Iterator[str]:
        if variable in own:
            yield from (*TIMES, *(name for name, _ in own[variable].z))
            return
        for name in (*types[variable].fields, *sorted(types[variable].unlike)):
            types[variable].kind_of(name, event.span, variable)  # or an error
            yield name

    return fields_of
