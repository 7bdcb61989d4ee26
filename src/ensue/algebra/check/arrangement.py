"""Whether a pattern makes sense as an arrangement of events."""

from collections.abc import Iterator

from ensue.algebra.operator import Over
from ensue.algebra.pattern import And, Apply, Atom, Kleene, Maybe, Not, Or, Pattern, Seq
from ensue.algebra.walk import atoms, parts, positives, results
from ensue.errors import QueryError


def check_arrangement(pattern: Pattern) -> None:
    """Raises a QueryError for a pattern that no stream could match, or that says nothing."""
    _check_variables(pattern)
    if not any(positives(pattern)):
        raise QueryError(
            "the pattern only says what must not happen",
            hint="add an event that must occur: SEQ(A a, !B b)",
            span=pattern.span,
        )
    _check_part(pattern)
    if optional(pattern):
        raise QueryError(
            "the pattern can match nothing at all",
            hint="make one part required: + in place of *, or leave out the ?",
            span=pattern.span,
        )


def optional(pattern: Pattern) -> bool:
    """Whether a match may leave all of this part unbound.

    >>> optional(Seq((Maybe(Atom("A", "a")), Kleene(Atom("B", "b"), 0, None))))
    True
    """
    match pattern:
        case Atom() | Apply():
            return False
        case Kleene(least=least):
            return least == 0
        case Maybe() | Not():
            return True
        case Seq(parts=inner) | And(parts=inner):
            return all(optional(part) for part in inner)
        case Or(parts=inner):
            return any(optional(part) for part in inner)


def open_ended(pattern: Pattern) -> Iterator[Not]:
    """The negations with nothing bound behind them: only the window's end decides them.

    >>> list(open_ended(Seq((Atom("A", "a"), Not(Atom("B", "b"))))))
    [Not(part=Atom(type='B', variable='b'))]
    """
    if isinstance(pattern, Not):
        return
    if isinstance(pattern, Seq):
        for place, part in enumerate(pattern.parts):
            if isinstance(part, Not) and all(optional(p) for p in pattern.parts[place:]):
                yield part
    for part in parts(pattern):
        yield from open_ended(part)


def _check_variables(pattern: Pattern) -> None:
    seen: set[str] = set()
    for atom in atoms(pattern):
        if atom.variable in seen:
            raise QueryError(
                f"two events are called '{atom.variable}'",
                hint=f"give this {atom.type} another name: {atom.type} {atom.variable}2",
                span=atom.span,
            )
        seen.add(atom.variable)
    for applied in results(pattern):
        if applied.variable in seen:
            raise QueryError(
                f"a result and something else are both called '{applied.variable}'",
                hint=f"give the result another name: {applied.variable}2",
                span=applied.span,
            )
        seen.add(applied.variable)


def _check_part(pattern: Pattern) -> None:
    match pattern:
        case Kleene():
            _check_bounds(pattern)
        case Not(part=part):
            _check_negated(part)
        case Maybe(part=Not()):
            raise QueryError(
                "an absence that may be missing says nothing",
                hint="leave out the ?",
                span=pattern.span,
            )
        case Or(parts=inner):
            for part in inner:
                _check_alternative(part)
        case Seq(parts=inner):
            if all(isinstance(part, Not) for part in inner):
                raise QueryError(
                    "this sequence only says what must not happen",
                    hint="put the negation between events that must occur: SEQ(A a, !B b, C c)",
                    span=pattern.span,
                )
        case And():
            _check_together(pattern)
        case Apply():
            _check_applied(pattern)
        case Atom() | Maybe():
            pass
    if not isinstance(pattern, Not):
        for part in parts(pattern):
            _check_part(part)


def _check_bounds(kleene: Kleene) -> None:
    least, most = kleene.least, kleene.most
    if most is not None and most < least:
        raise QueryError(
            f"at least {least} but at most {most} events",
            hint=f"write {{{most},{least}}}",
            span=kleene.span,
        )
    if most == 0:
        raise QueryError(
            "a part that occurs zero times",
            hint=f"for its absence write !{kleene.atom.type} {kleene.atom.variable}",
            span=kleene.span,
        )


def _check_negated(pattern: Pattern) -> None:
    match pattern:
        case Not():
            raise QueryError(
                "a negation inside a negation",
                hint="write what must occur without !",
                span=pattern.span,
            )
        case Kleene(atom=atom) | Maybe(part=Atom() as atom):
            raise QueryError(
                "a negated part takes no quantifier",
                hint=f"!{atom.type} {atom.variable} means that there is none at all",
                span=pattern.span,
            )
        case Maybe():
            raise QueryError(
                "a negated part takes no quantifier", hint="leave out the ?", span=pattern.span
            )
        case Apply(operator=operator):
            raise QueryError(
                f"the absence of a result of {operator.name}",
                hint="negate an event: !B b",
                span=pattern.span,
            )
        case _:
            for part in parts(pattern):
                _check_negated(part)


def _check_alternative(part: Pattern) -> None:
    if isinstance(part, Not):
        raise QueryError(
            "a negation cannot be an alternative of its own",
            hint="say between which events: OR(SEQ(A a, !B b, C c), D d)",
            span=part.span,
        )


def _check_together(pattern: And) -> None:
    bound = sum(not isinstance(part, Not) for part in pattern.parts)
    if bound < len(pattern.parts) and bound < 2:
        raise QueryError(
            "a negation in AND stands between the first and the last of its events, "
            "and here are fewer than two",
            hint="add an event, or say where the absence is: SEQ(A a, !B b)",
            span=pattern.span,
        )


def _check_applied(applied: Apply) -> None:
    operator, given = applied.operator, len(applied.inputs)
    if given != operator.over.inputs:
        example = ", ".join(["A a", "B b"][: operator.over.inputs])
        raise QueryError(
            f"{operator.name} takes {_number(operator.over.inputs, 'event')}, not {given}",
            hint=f"as in {operator.name}({example}) {applied.variable}",
            span=applied.span,
        )
    for part in applied.inputs:
        if isinstance(part, Atom) or (
            isinstance(part, Apply) and operator.over is not Over.REPEAT
        ):
            continue
        raise QueryError(
            f"{operator.name} takes single events"
            + (" of the stream" if operator.over is Over.REPEAT else ", or results of operators"),
            hint=f"as in {operator.name}(A a)"
            if operator.over.inputs == 1
            else f"as in {operator.name}(A a, B b)",
            span=part.span,
        )
    most, fewest = len(operator.parameters), operator.required
    if not fewest <= len(applied.parameters) <= most:
        wanted = _number(most, "constant") if fewest == most else f"{fewest} to {most} constants"
        names = f" ({', '.join(operator.parameters)})" if most else ""
        raise QueryError(
            f"{operator.name} takes {wanted} behind its events{names}, "
            f"not {len(applied.parameters)}",
            hint=None if not most else f"as in {operator.name}(A a, 10 minutes)",
            span=applied.span,
        )


def _number(count: int, what: str) -> str:
    numbers = ("no", "one", "two")
    number = numbers[count] if count < len(numbers) else str(count)
    return f"{number} {what}{'' if count == 1 else 's'}"
