"""What places in a query mean for the events it is for: their columns, and plane or earth."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

from ensue.algebra.functions import CIRCLE, EARTH_LOCATION, FUNCTIONS, LOCATION, WKT, on_earth
from ensue.algebra.functions.record import Takes
from ensue.algebra.predicate import At, Call, Expr, Field, Literal
from ensue.algebra.wkt import HINT, Circle, Points, Polygons, read_wkt
from ensue.errors import QueryError
from ensue.schema import EventType, Schema

NAME = "location"  # a.location is where a was


def check_written(call: Call) -> None:
    """Raises a QueryError for a place that a query writes down and that cannot be one."""
    match call:
        case Call(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            try:
                _check_geometry(read_wkt(text))
            except QueryError as error:
                raise error.at(call.arguments[0].span or call.span, None) from None
        case Call(function=function) if function == WKT:
            raise QueryError(
                "WKT is followed by a text in quotes",
                hint="as in WKT 'POINT (8.5 47.4)'; location= says where events are",
                span=call.span,
            )
        case Call(function=function, arguments=arguments) if function == CIRCLE:
            numbers = [a.value for a in arguments if isinstance(a, Literal)]
            if len(numbers) < len(arguments) or not all(map(_is_number, numbers)):
                raise QueryError(
                    "the centre and the radius of a circle must be numbers",
                    hint="CIRCLE(8.5, 47.4, 300); around an event: "
                    "distance(a.location, b.location) <= 300",
                    span=call.span,
                )
            try:
                _check_geometry(FUNCTIONS[CIRCLE](numbers))
            except QueryError as error:
                raise error.at(call.span, None) from None


def _check_geometry(found: object) -> None:
    """What can be told without more geometry: numbers, corners, radius."""
    match found:
        case Circle(radius=radius) if not radius > 0:
            raise QueryError(f"the radius of a circle must be positive, not {radius:g}")
        case Circle(x=x, y=y, radius=radius):
            numbers: tuple[float, ...] = (x, y, radius)
        case Polygons():
            numbers = tuple(n for ring in found.rings for corner in ring for n in corner)
            for ring in found.rings:
                if len(set(ring)) < 3:
                    raise QueryError(
                        f"a ring has {len(set(ring))} corners",
                        hint="a polygon needs at least three",
                    )
        case Points(points=points):
            numbers = tuple(n for point in points for n in point)
        case _:
            raise AssertionError(found)
    if not numbers:
        raise QueryError("this place is empty", hint=HINT)
    if not all(map(isfinite, numbers)):
        raise QueryError("a coordinate is a finite number", hint=HINT)


def check_asked(call: Call) -> None:
    """Raises a QueryError for what is not asked of places that a query writes down."""
    takes = FUNCTIONS[call.function].wanted(len(call.arguments))
    given = [a for a, t in zip(call.arguments, takes, strict=True) if t is Takes.PLACE]
    if not given:
        return
    circles = [a for a in given if _is_circle(a)]
    if all(isinstance(a, Call) and a.function in (CIRCLE, WKT) for a in given):
        raise QueryError(
            f"{call.function} of constant places: no event is involved",
            hint="use the place of an event for one of them, as in a.location",
            span=call.span,
        )
    if circles and call.function.endswith("hull"):
        raise QueryError(
            "a circle has no corners, so it cannot be used in hull",
            hint="write a polygon around it: WKT 'POLYGON (...)'",
            span=circles[0].span,
        )
    if circles and call.function.endswith("inside") and circles[0] is given[0]:
        raise QueryError(
            "a circle inside the place of an event is not supported",
            hint="inside(a.location, CIRCLE(...)) asks the other way round",
            span=circles[0].span,
        )


def _is_circle(expr: Expr) -> bool:
    match expr:
        case Call(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            return isinstance(read_wkt(text), Circle)
        case Call(function=function):
            return function == CIRCLE
        case _:
            return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def placed(
    expr: Expr, types: Mapping[str, EventType], schemas: Mapping[str, Schema], space: str
) -> Expr:
    """A node with `a.location` as the columns that hold it, measured where events lie.

    An event's own field `location` is that field, unless it is the column of places and a place
    is needed; so is the column of places by its own name.
    """
    match expr:
        case Field(name=name) if name == NAME and name not in types[expr.variable].fields:
            return _located(expr, types[expr.variable], schemas[expr.variable])
        case Call(function=function, arguments=arguments):
            wanted = FUNCTIONS[function].wanted(len(arguments))
            given = tuple(
                _as_place(argument, types, schemas) if takes is Takes.PLACE else argument
                for argument, takes in zip(arguments, wanted, strict=True)
            )
            name = on_earth(function) if space == "earth" else function
            return replace(expr, function=name, arguments=given)
        case _:
            return expr


def _as_place(expr: Expr, types: Mapping[str, EventType], schemas: Mapping[str, Schema]) -> Expr:
    """The column of places by its own name."""
    match expr:
        case Field(variable=owner, name=str(name)) if name == schemas[owner].location:
            return _located(expr, types[owner], schemas[owner])
        case Field(name=str(name)) if name.endswith(f".{NAME}"):  # of a member, a layer below
            return _read(expr, schemas[expr.variable])
        case _:
            return expr


def _located(field: Field, event: EventType, schema: Schema) -> Expr:
    owner = field.variable
    if schema.location is None:
        raise QueryError(
            f"{owner}.{NAME}: no column says where events happened",
            hint="name them: location=('x', 'y'), or location='place' for WKT or WKB; "
            f"or build a place from two fields: point({owner}.x, {owner}.y)",
            span=field.span,
        )
    columns = (schema.location,) if isinstance(schema.location, str) else schema.location
    for column in columns:
        if column not in event.fields:
            raise QueryError(
                f"{owner} ({event.name}) has no place: it has no field '{column}'", span=field.span
            )
    return _read(field, schema, *columns)


def _read(field: Field, schema: Schema, *columns: str) -> Expr:
    """A place from the columns that hold it; without any, from the field as it is."""
    parts = tuple(replace(field, name=column) for column in columns) or (field,)
    return Call(on_earth(LOCATION) if schema.space == "earth" else LOCATION, parts, field.span)


def refuse_list(expr: Expr) -> None:
    """Raises a QueryError for `RETURN a[].location`."""
    match expr:
        case Call(function=function, arguments=(Field(at=At.ALL) as field, *_)):
            if function in (LOCATION, EARTH_LOCATION):
                raise QueryError(
                    "a list of places cannot be returned",
                    hint=f"return the columns: {field.variable}[].{field.name}",
                    span=expr.span,
                )
        case _:
            pass
