"""Resolution and checks of locations in queries: their columns, and plane or earth."""

from collections.abc import Mapping
from dataclasses import replace

from ensue.errors import QueryError
from ensue.functions import CIRCLE, EARTH_LOCATION, FUNCTIONS, LOCATION, WKT
from ensue.functions.record import ArgumentType
from ensue.ir.expression import EventPosition, Expr, FieldRef, FunctionCall, Literal
from ensue.schema import EventType, Schema

LOCATION_FIELD = "location"  # the field a.location


def check_constant_location(call: FunctionCall) -> None:
    """Raises a QueryError for an invalid constant location or region."""
    if call.function not in (WKT, CIRCLE):
        return
    from ensue.geo.wkt import Circle, check_geometry, read_wkt

    match call:
        case FunctionCall(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            try:
                check_geometry(read_wkt(text))
            except QueryError as error:
                raise error.at(call.arguments[0].span or call.span, None) from None
        case FunctionCall(function=function) if function == WKT:
            raise QueryError(
                "WKT is followed by a text in quotes",
                hint="as in WKT 'POINT (8.5 47.4)'; location= names the columns of events",
                span=call.span,
            )
        case FunctionCall(function=function, arguments=arguments) if function == CIRCLE:
            numbers = [float(v) for v in map(_get_number, arguments) if v is not None]
            if len(numbers) < len(arguments):
                raise QueryError(
                    "the centre and the radius of a circle must be numbers",
                    hint="CIRCLE(8.5, 47.4, 300); around an event: distance(a.location, b.location) <= 300",
                    span=call.span,
                )
            try:
                check_geometry(Circle(*numbers))
            except QueryError as error:
                raise error.at(call.span, None) from None


def check_spatial_call(call: FunctionCall) -> None:
    """Raises a QueryError for an unsupported call over constant locations."""
    takes = FUNCTIONS[call.function].get_argument_types(len(call.arguments))
    places = [a for a, t in zip(call.arguments, takes, strict=True) if t is ArgumentType.PLACE]
    if not places:
        return
    circles = [a for a in places if _is_circle(a)]
    if all(isinstance(a, FunctionCall) and a.function in (CIRCLE, WKT) for a in places):
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
    if circles and call.function.endswith("inside") and circles[0] is places[0]:
        raise QueryError(
            "a circle inside the place of an event is not supported",
            hint="inside(a.location, CIRCLE(...)) tests the other direction",
            span=circles[0].span,
        )


def _is_circle(expr: Expr) -> bool:
    match expr:
        case FunctionCall(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            from ensue.geo.wkt import Circle, read_wkt

            return isinstance(read_wkt(text), Circle)
        case FunctionCall(function=function):
            return function == CIRCLE
        case _:
            return False


def _get_number(expr: Expr) -> int | float | None:
    """Returns the number of a literal, or None."""
    match expr:
        case Literal(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case _:
            return None


def resolve_location(expr: Expr, types: Mapping[str, EventType], schemas: Mapping[str, Schema], space: str) -> Expr:
    """Resolves `a.location` to its columns, and functions to their variants for the space.

    A field named `location` or the location column itself is read as a location only as an
    argument that must be one.
    """
    match expr:
        case FieldRef(name=name) if name == LOCATION_FIELD and name not in types[expr.variable].fields:
            return _locate_event(expr, types[expr.variable], schemas[expr.variable])
        case FunctionCall(function=function, arguments=arguments):
            takes = FUNCTIONS[function].get_argument_types(len(arguments))
            resolved = tuple(
                _as_place(argument, types, schemas) if type_ is ArgumentType.PLACE else argument
                for argument, type_ in zip(arguments, takes, strict=True)
            )
            if space == "earth":
                from ensue.functions.spatial import get_earth_variant

                function = get_earth_variant(function)
            return replace(expr, function=function, arguments=resolved)
        case _:
            return expr


def _as_place(expr: Expr, types: Mapping[str, EventType], schemas: Mapping[str, Schema]) -> Expr:
    """Resolves the location column by its own name."""
    match expr:
        case FieldRef(variable=owner, name=str(name)) if name == schemas[owner].location:
            return _locate_event(expr, types[owner], schemas[owner])
        case FieldRef(name=str(name)) if name.endswith(f".{LOCATION_FIELD}"):  # of a member, a layer below
            return _locate(expr, schemas[expr.variable])
        case _:
            return expr


def _locate_event(field: FieldRef, event: EventType, schema: Schema) -> Expr:
    owner = field.variable
    if schema.location is None:
        raise QueryError(
            f"{owner}.{LOCATION_FIELD}: the events have no location column",
            hint="name them: location=('x', 'y'), or location='place' for WKT or WKB; "
            f"or build a place from two fields: point({owner}.x, {owner}.y)",
            span=field.span,
        )
    columns = (schema.location,) if isinstance(schema.location, str) else schema.location
    for column in columns:
        if column not in event.fields:
            raise QueryError(f"{owner} ({event.name}) has no place: it has no field '{column}'", span=field.span)
    return _locate(field, schema, *columns)


def _locate(field: FieldRef, schema: Schema, *columns: str) -> Expr:
    """Builds a location from its columns, or from the field itself without columns."""
    parts = tuple(replace(field, name=column) for column in columns) or (field,)
    name = EARTH_LOCATION if schema.space == "earth" else LOCATION
    return FunctionCall(name, parts, field.span)


def reject_location_list(expr: Expr) -> None:
    """Raises a QueryError for `RETURN a[].location`."""
    match expr:
        case FunctionCall(function=function, arguments=(FieldRef(at=EventPosition.ALL) as field, *_)):
            if function in (LOCATION, EARTH_LOCATION):
                raise QueryError(
                    "a list of places cannot be returned",
                    hint=f"return the columns: {field.variable}[].{field.name}",
                    span=expr.span,
                )
        case _:
            pass
