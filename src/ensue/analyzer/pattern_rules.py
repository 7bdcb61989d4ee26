"""Well-formedness rules of patterns."""

from collections.abc import Iterable, Iterator, Sequence

from ensue.errors import QueryError
from ensue.ir import traits
from ensue.ir.expression import Expr
from ensue.ir.pattern import Atom, Kleene, Not, OperatorCall, Pattern, Repeat, Then
from ensue.ir.selection import Strategy
from ensue.ir.traversal import (
    get_variables,
    iterate_atoms,
    iterate_operator_calls,
    iterate_positive_atoms,
    iterate_strategies,
    iterate_subpatterns,
)
from ensue.ir.user_operator import OperatorInputs
from ensue.printing.pattern_printer import format_separator, format_types


@traits.cache_fact
def check_pattern(pattern: Pattern) -> None:
    """Raises a QueryError for a pattern that is contradictory, empty or unsupported."""
    _check_variables(pattern)
    if not any(iterate_positive_atoms(pattern)) and not traits.is_interval_negation(pattern):
        raise QueryError(
            "the pattern only says what must not happen",
            hint="add an event that must occur, as in SEQ(A a, !B b), or give an interval: !B b FROM ... TO ...",
            span=pattern.span,
        )
    _check_then(pattern)
    _check_part(pattern)
    if traits.is_interval_negation(pattern):
        return
    if traits.is_optional(pattern):
        raise QueryError(
            "the pattern can match nothing at all",
            hint="make one part required: + in place of *, or leave out the ?",
            span=pattern.span,
        )


def iterate_trailing_negations(pattern: Pattern, *, last: bool = True) -> Iterator[Not]:
    """Yields the negations after which nothing is bound: only the end of the window decides them.

    `last` tells whether a match may end with this part. Inside a repeated group a negation ends
    with the next event.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> list(iterate_trailing_negations(Seq((Atom("A", "a"), Not(Atom("B", "b"))))))
    [Not(part=Atom(type='B', variable='b'), interval=None)]
    """
    if traits.is_negation(pattern) or traits.forbids_next_event(pattern) or (traits.is_loop(pattern) and not last):
        return
    inner = traits.get_parts(pattern)
    for position, part in enumerate(inner):
        later = inner[position + 1 :] if traits.is_sequence(pattern) else ()
        ends = all(map(traits.is_optional, later))
        if (
            traits.is_sequence(pattern)
            and traits.is_positional_negation(part)
            and ends
            and not traits.precedes_then(later)
        ):
            yield part
        yield from iterate_trailing_negations(part, last=last and ends)


def check_guard_conditions(pattern: Pattern, conditions: Iterable[Expr]) -> None:
    """Checks that conditions on UNTIL and THEN ! events read only earlier events of the match."""
    known = [a.variable for a in iterate_positive_atoms(pattern)]
    negated = {a.variable for a in iterate_atoms(pattern)} - {*known}
    conditions = [c for c in conditions if get_variables(c) & negated]
    if not conditions:
        return
    later = {a.variable: names for a, names in _iterate_guards(pattern, (), known)}
    for condition in conditions:
        for name in get_variables(condition) & later.keys():
            if unknown := sorted(get_variables(condition) & {*later[name]}):
                raise QueryError(
                    f"'{unknown[0]}' comes after '{name}', which is tested when it arrives",
                    hint="compare it with events before it",
                    span=condition.span,
                )


def _iterate_guards(
    pattern: Pattern, inside: tuple[str, ...], unbound: Sequence[str]
) -> Iterator[tuple[Atom, tuple[str, ...]]]:
    """Yields the events of UNTIL, THEN ! and negations in loops, each with the later variables.

    `inside` are the variables of the loops around it, `unbound` those that are not bound before.
    """
    repeated = pattern if traits.is_repetition(pattern) else None
    loop_variables = [a.variable for a in iterate_positive_atoms(repeated)] if repeated is not None else []
    if traits.is_negation(pattern):
        for atom in iterate_atoms(pattern) if inside else ():
            yield atom, tuple(v for v in unbound if v not in inside)
    elif traits.forbids_next_event(pattern):
        for atom in iterate_atoms(pattern):
            yield atom, tuple(v for v in unbound if v not in inside)
    elif traits.is_loop(pattern):
        yield from _iterate_guards(pattern.part, (*inside, *loop_variables), unbound)
    else:
        remaining = list(unbound)
        for part in traits.get_parts(pattern):
            yield from _iterate_guards(part, inside, remaining)
            if traits.is_sequence(pattern):
                now_bound = {a.variable for a in iterate_positive_atoms(part)}
                remaining = [v for v in remaining if v not in now_bound]
    if repeated is not None and repeated.until is not None:
        for atom in iterate_atoms(repeated.until):
            yield atom, tuple(v for v in unbound if v not in (*loop_variables, *inside))


def has_bounded_gaps(pattern: Pattern, *, first: bool = True) -> bool:
    """Whether the pattern limits every gap of a match."""
    if traits.is_event(pattern):
        return first
    if traits.is_then(pattern):
        inner = pattern.part
        return pattern.pause is not None and has_bounded_gaps(inner, first=True)
    match traits.get_form(pattern):
        case traits.NodeForm.LIST | traits.NodeForm.LOOP:
            assert traits.is_repetition(pattern)
            once = traits.is_list(pattern) or has_bounded_gaps(pattern.part)
            return first and once and pattern.pause is not None
        case traits.NodeForm.SEQUENCE:
            inner_parts = traits.get_parts(pattern)
            return all(
                traits.is_positional_negation(part)
                or has_bounded_gaps(part, first=first and all(map(traits.is_optional, before)))
                for k, part in enumerate(inner_parts)
                for before in [inner_parts[:k]]
            )
        case traits.NodeForm.OPTION | traits.NodeForm.CHOICE:
            return all(has_bounded_gaps(part, first=first) for part in traits.get_parts(pattern))
        case traits.NodeForm.EVENT | traits.NodeForm.TOGETHER | traits.NodeForm.RESULT | traits.NodeForm.ABSENCE:
            return False


def _check_variables(pattern: Pattern) -> None:
    seen: set[str] = set()
    for atom in iterate_atoms(pattern):
        if atom.variable in seen:
            raise QueryError(
                f"two events are called '{atom.variable}'",
                hint=f"give this {format_types(atom.type)} another name: {format_types(atom.type)} {atom.variable}2",
                span=atom.span,
            )
        seen.add(atom.variable)
    for applied in iterate_operator_calls(pattern):
        if applied.variable in seen:
            raise QueryError(
                f"a result and something else are both called '{applied.variable}'",
                hint=f"give the result another name: {applied.variable}2",
                span=applied.span,
            )
        seen.add(applied.variable)


def _check_part(pattern: Pattern) -> None:
    inner = traits.get_parts(pattern)
    match traits.get_form(pattern):
        case traits.NodeForm.LIST:
            assert traits.is_list(pattern)
            _check_bounds(pattern)
        case traits.NodeForm.LOOP:
            assert traits.is_loop(pattern)
            _check_loop(pattern)
        case traits.NodeForm.ABSENCE:
            _check_negated(*inner)
            if traits.is_interval_negation(pattern) and not traits.is_event(inner[0]):
                raise QueryError(
                    "an absence with an explicit interval is of one event type",
                    hint="as in !C c FROM a.end TO a.end + 5",
                    span=pattern.span,
                )
            return
        case traits.NodeForm.OPTION:
            if any(map(traits.is_negation, inner)):
                raise QueryError("an absence cannot be optional", hint="leave out the ?", span=pattern.span)
        case traits.NodeForm.CHOICE:
            for alternative in filter(traits.is_negation, inner):
                raise QueryError(
                    "a negation cannot be an alternative by itself",
                    hint="put it between events: OR(SEQ(A a, !B b, C c), D d)",
                    span=alternative.span,
                )
        case traits.NodeForm.SEQUENCE:
            if all(map(traits.is_negation, inner)) and not traits.is_then(pattern):
                raise QueryError(
                    "this sequence only says what must not happen",
                    hint="put the negation between events that must occur: SEQ(A a, !B b, C c)",
                    span=pattern.span,
                )
        case traits.NodeForm.TOGETHER:
            _check_and(pattern)
        case traits.NodeForm.RESULT:
            assert traits.is_operator_call(pattern)
            _check_operator_call(pattern)
        case traits.NodeForm.EVENT:
            pass
    for part in inner:
        _check_part(part)


_WITHOUT_THEN = {
    traits.NodeForm.ABSENCE: ("inside a negation", "join the parts with commas: !SEQ(A a, B b)"),
    traits.NodeForm.TOGETHER: ("inside AND", "join the parts with commas: AND(SEQ(A a, B b), C c)"),
    traits.NodeForm.RESULT: ("inside an operator", "apply the operator to events"),
}


def _check_then(pattern: Pattern, refused: tuple[str, str] | None = None) -> None:
    """Rejects THEN inside negations, AND and operators.

    `refused` describes the unsupported context and a hint.
    """
    strategy = next(iterate_strategies(pattern), None)
    if refused is not None and strategy is not None:
        raise QueryError(
            f"{format_separator(strategy)} {refused[0]} is not supported yet", hint=refused[1], span=pattern.span
        )
    if traits.forbids_next_event(pattern):
        _check_not_next(pattern, pattern.part)
    refused = _WITHOUT_THEN.get(traits.get_form(pattern), refused)
    for part in traits.get_parts(pattern):
        _check_then(part, refused)


def _check_not_next(entry: Then, absence: Pattern) -> None:
    """Checks `THEN !B b`: the very next event is not a B."""
    if entry.how is not Strategy.PARTITION or entry.pause is not None:
        raise QueryError(
            f"{format_separator(entry.how, entry.pause)} tells how an event follows, but a negated event "
            "does not occur",
            hint="THEN !B b: the very next event is not a B; for no B at all up to the next part: "
            "A a -> !B b THEN NEXT C c",
            span=entry.span,
        )
    if not all(map(traits.is_event, traits.get_parts(absence))) or traits.is_interval_negation(absence):
        raise QueryError(
            "the very next event is one event",
            hint="as in A a THEN !B b; negate several events without THEN: A a -> !SEQ(B b, C c) -> D d",
            span=entry.span,
        )


def _check_bounds(loop: Kleene | Repeat) -> None:
    least, most = loop.least, loop.most
    if most is not None and most < least:
        raise QueryError(
            f"at least {least} but at most {most} {'events' if traits.is_list(loop) else 'times'}",
            hint=f"write {{{most},{least}}}",
            span=loop.span,
        )
    if most == 0:
        raise QueryError(
            "a part that occurs zero times",
            hint=f"for its absence write !{format_types(loop.atom.type)} {loop.atom.variable}"
            if traits.is_list(loop)
            else "leave it out, or negate it: !SEQ(A a, B b)",
            span=loop.span,
        )


def _check_loop(loop: Repeat) -> None:
    _check_bounds(loop)
    last = traits.get_parts(loop.part)[-1] if traits.is_sequence(loop.part) else loop.part
    if traits.is_negation(last) or traits.forbids_next_event(last):
        raise QueryError(
            "a repeated group cannot end with a negation: its end is not determined",
            hint="put it before an event of the group: (!C c, A a, B b)+, or after the group",
            span=last.span,
        )
    for inside in iterate_subpatterns(loop.part):
        match traits.get_form(inside):
            case traits.NodeForm.TOGETHER:
                what, hint = "AND", "write in which orders: (SEQ(A a, B b) | SEQ(B b2, A a2))+"
            case traits.NodeForm.RESULT:
                what, hint = "an operator", "repeat events: (A a, B b)+"
            case traits.NodeForm.ABSENCE if traits.is_interval_negation(inside):
                what, hint = "an absence with an explicit interval", "put it after the group"
            case _:
                continue
        raise QueryError(f"{what} inside a repeated group is not supported yet", hint=hint, span=inside.span)


def _check_negated(pattern: Pattern) -> None:
    match traits.get_form(pattern):
        case traits.NodeForm.ABSENCE:
            raise QueryError(
                "a negation inside a negation", hint="write what must occur, without the inner !", span=pattern.span
            )
        case traits.NodeForm.LIST | traits.NodeForm.LOOP | traits.NodeForm.OPTION:
            (part,) = traits.get_parts(pattern)
            raise QueryError(
                "a negated part cannot have a quantifier",
                hint=f"!{format_types(part.type)} {part.variable} means that there is none at all"
                if traits.is_event(part)
                else "leave out the quantifier",
                span=pattern.span,
            )
        case traits.NodeForm.RESULT:
            assert traits.is_operator_call(pattern)
            raise QueryError(
                f"the absence of a result of {pattern.operator.name}", hint="negate an event: !B b", span=pattern.span
            )
        case traits.NodeForm.EVENT | traits.NodeForm.CHOICE | traits.NodeForm.SEQUENCE | traits.NodeForm.TOGETHER:
            for part in traits.get_parts(pattern):
                _check_negated(part)


def _check_and(pattern: Pattern) -> None:
    bound = len(traits.get_positive_parts(pattern))
    if any(map(traits.is_positional_negation, traits.get_parts(pattern))) and bound < 2:
        raise QueryError(
            "a negation in AND applies between the first and the last of its events, and here are fewer than two",
            hint="add an event, or use a sequence: SEQ(A a, !B b)",
            span=pattern.span,
        )


def _check_operator_call(applied: OperatorCall) -> None:
    operator, count = applied.operator, len(applied.inputs)
    example = ", ".join(["A a", "B b"][: operator.over.inputs])
    if count != operator.over.inputs:
        raise QueryError(
            f"{operator.name} takes {_format_count(operator.over.inputs, 'event')}, not {count}",
            hint=f"as in {operator.name}({example}) {applied.variable}",
            span=applied.span,
        )
    for part in applied.inputs:
        if traits.is_event(part) or (traits.is_operator_call(part) and operator.over is not OperatorInputs.REPEAT):
            continue
        repeats = operator.over is OperatorInputs.REPEAT
        others = " of the stream" if repeats else ", or results of operators"
        raise QueryError(
            f"{operator.name} takes single events{others}", hint=f"as in {operator.name}({example})", span=part.span
        )
    most, fewest = len(operator.parameters), operator.required
    if not fewest <= len(applied.parameters) <= most:
        expected = _format_count(most, "constant") if fewest == most else f"{fewest} to {most} constants"
        names = f" ({', '.join(operator.parameters)})" if most else ""
        raise QueryError(
            f"{operator.name} takes {expected} after its events{names}, not {len(applied.parameters)}",
            hint=None if not most else f"as in {operator.name}(A a, 10 minutes)",
            span=applied.span,
        )


def _format_count(count: int, what: str) -> str:
    numbers = ("no", "one", "two")
    number = numbers[count] if count < len(numbers) else str(count)
    return f"{number} {what}{'' if count == 1 else 's'}"
