"""Whether a pattern makes sense as an arrangement of events."""

from collections.abc import Iterable, Iterator, Sequence

from ensue.algebra.form import (
    Form,
    bars_next,
    form,
    guards_entry,
    is_absence,
    is_entry,
    is_event,
    is_lapse,
    is_list,
    is_loop,
    is_result,
    is_sequence,
    optional,
    parts,
    present,
    stands,
)
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Apply, Atom, Kleene, Not, Pattern, Repeat, Then
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Expr
from ensue.algebra.text import show_types, show_word
from ensue.algebra.walk import atoms, entries, positives, results, variables
from ensue.errors import QueryError


def check_arrangement(pattern: Pattern) -> None:
    """Raises a QueryError for a pattern that no stream could match, or that says nothing."""
    _check_variables(pattern)
    if not any(positives(pattern)) and not is_lapse(pattern):
        raise QueryError(
            "the pattern only says what must not happen",
            hint="add an event that must occur, as in SEQ(A a, !B b), or say when: "
            "!B b FROM ... TO ...",
            span=pattern.span,
        )
    _check_entries(pattern)
    _check_part(pattern)
    if is_lapse(pattern):
        return
    if optional(pattern):
        raise QueryError(
            "the pattern can match nothing at all",
            hint="make one part required: + in place of *, or leave out the ?",
            span=pattern.span,
        )


def open_ended(pattern: Pattern, *, last: bool = True) -> Iterator[Not]:
    """The negations with nothing bound behind them: only the window's end decides them.

    `last`: a match may end with this part. Inside a repeated group a negation ends with the next
    event, wherever that is.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> list(open_ended(Seq((Atom("A", "a"), Not(Atom("B", "b"))))))
    [Not(part=Atom(type='B', variable='b'), interval=None)]
    """
    if is_absence(pattern) or bars_next(pattern) or (is_loop(pattern) and not last):
        return
    inner = parts(pattern)
    for place, part in enumerate(inner):
        behind = inner[place + 1 :] if is_sequence(pattern) else ()
        ends = all(map(optional, behind))
        if is_sequence(pattern) and stands(part) and ends and not guards_entry(behind):
            yield part
        yield from open_ended(part, last=last and ends)


def check_guards(pattern: Pattern, conditions: Iterable[Expr]) -> None:
    """What closes a gap is judged when it comes: by events of the match that came before."""
    known = [a.variable for a in positives(pattern)]
    negated = {a.variable for a in atoms(pattern)} - {*known}
    conditions = [c for c in conditions if variables(c) & negated]
    if not conditions:
        return
    later = {a.variable: names for a, names in _guards(pattern, (), known)}
    for condition in conditions:
        for name in variables(condition) & later.keys():
            if unknown := sorted(variables(condition) & {*later[name]}):
                raise QueryError(
                    f"'{unknown[0]}' comes after '{name}', which is tested when it comes",
                    hint="compare it with events that come before it",
                    span=condition.span,
                )


def _guards(
    pattern: Pattern, inside: tuple[str, ...], behind: Sequence[str]
) -> Iterator[tuple[Atom, tuple[str, ...]]]:
    """The events that close gaps, each with the variables that come later.

    `inside`: the variables of the loop around it, `behind`: those that have not come before it.
    """
    repeated = pattern if is_list(pattern) or is_loop(pattern) else None
    mine = [a.variable for a in positives(repeated)] if repeated is not None else []
    if is_absence(pattern):
        for atom in atoms(pattern) if inside else ():
            yield atom, tuple(v for v in behind if v not in inside)
    elif bars_next(pattern):
        for atom in atoms(pattern):
            yield atom, tuple(v for v in behind if v not in inside)
    elif is_loop(pattern):
        yield from _guards(pattern.part, (*inside, *mine), behind)
    else:
        left = list(behind)
        for part in parts(pattern):
            yield from _guards(part, inside, left)
            if is_sequence(pattern):
                come = {a.variable for a in positives(part)}
                left = [v for v in left if v not in come]
    if repeated is not None and repeated.until is not None:
        for atom in atoms(repeated.until):
            yield atom, tuple(v for v in behind if v not in (*mine, *inside))


def always_paused(pattern: Pattern, *, first: bool = True) -> bool:
    """Whether the pattern says for every gap of a match how long it takes at most."""
    if is_event(pattern):
        return first
    if is_entry(pattern):
        inner = pattern.part
        return pattern.pause is not None and always_paused(inner, first=True)
    match form(pattern):
        case Form.LIST | Form.LOOP:
            assert is_list(pattern) or is_loop(pattern)
            once = is_list(pattern) or always_paused(pattern.part)
            return first and once and pattern.pause is not None
        case Form.SEQUENCE:
            inner_parts = parts(pattern)
            return all(
                stands(part) or always_paused(part, first=first and all(map(optional, before)))
                for k, part in enumerate(inner_parts)
                for before in [inner_parts[:k]]
            )
        case Form.OPTION | Form.CHOICE:
            return all(always_paused(part, first=first) for part in parts(pattern))
        case Form.EVENT | Form.TOGETHER | Form.RESULT | Form.ABSENCE:
            return False


def _check_variables(pattern: Pattern) -> None:
    seen: set[str] = set()
    for atom in atoms(pattern):
        if atom.variable in seen:
            raise QueryError(
                f"two events are called '{atom.variable}'",
                hint=f"give this {show_types(atom.type)} another name: "
                f"{show_types(atom.type)} {atom.variable}2",
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
    inner = parts(pattern)
    match form(pattern):
        case Form.LIST:
            assert is_list(pattern)
            _check_bounds(pattern)
        case Form.LOOP:
            assert is_loop(pattern)
            _check_loop(pattern)
        case Form.ABSENCE:
            _check_negated(*inner)
            if is_lapse(pattern) and not is_event(inner[0]):
                raise QueryError(
                    "an absence with an explicit interval is of one event type",
                    hint="as in !C c FROM a.end TO a.end + 5",
                    span=pattern.span,
                )
            return
        case Form.OPTION:
            if any(map(is_absence, inner)):
                raise QueryError(
                    "an absence cannot be optional",
                    hint="leave out the ?",
                    span=pattern.span,
                )
        case Form.CHOICE:
            for part in inner:
                _check_alternative(part)
        case Form.SEQUENCE:
            if all(map(is_absence, inner)) and not is_entry(pattern):
                raise QueryError(
                    "this sequence only says what must not happen",
                    hint="put the negation between events that must occur: SEQ(A a, !B b, C c)",
                    span=pattern.span,
                )
        case Form.TOGETHER:
            _check_together(pattern)
        case Form.RESULT:
            assert is_result(pattern)
            _check_applied(pattern)
        case Form.EVENT:
            pass
    for part in inner:
        _check_part(part)


def _check_entries(pattern: Pattern, refused: tuple[str, str] | None = None) -> None:
    """Only what must come, and comes behind something, says how it follows that.

    `refused`: what is around it that cannot be combined with it, and what to do instead.
    """
    said = next(entries(pattern), None)
    if refused is not None and said is not None:
        raise QueryError(
            f"{show_word(said)} {refused[0]} is not supported yet",
            hint=refused[1],
            span=pattern.span,
        )
    if bars_next(pattern):
        _check_not_next(pattern, pattern.part)
    match form(pattern):
        case Form.ABSENCE:
            refused = "inside a negation", "join the parts with commas: !SEQ(A a, B b)"
        case Form.TOGETHER:
            refused = "inside AND", "join the parts with commas: AND(SEQ(A a, B b), C c)"
        case Form.RESULT:
            refused = "inside an operator", "apply the operator to events"
        case Form.EVENT | Form.LIST | Form.LOOP | Form.OPTION | Form.CHOICE | Form.SEQUENCE:
            pass
    for part in parts(pattern):
        _check_entries(part, refused)


def _check_not_next(entry: Then, absence: Pattern) -> None:
    """`THEN !B b`: the very next event is no B."""
    if entry.how is not Strategy.PARTITION or entry.pause is not None:
        raise QueryError(
            f"{show_word(entry.how, entry.pause)} says how an event follows, but a negated event "
            "does not come",
            hint="THEN !B b: the very next event is not a B; for no B at all up to the next part: "
            "A a -> !B b THEN NEXT C c",
            span=entry.span,
        )
    if not all(map(is_event, parts(absence))) or is_lapse(absence):
        raise QueryError(
            "the very next event is one event",
            hint="as in A a THEN !B b; negate several events without THEN: "
            "A a -> !SEQ(B b, C c) -> D d",
            span=entry.span,
        )


def _check_bounds(loop: Kleene | Repeat) -> None:
    least, most = loop.least, loop.most
    if most is not None and most < least:
        raise QueryError(
            f"at least {least} but at most {most} {'events' if is_list(loop) else 'times'}",
            hint=f"write {{{most},{least}}}",
            span=loop.span,
        )
    if most == 0:
        raise QueryError(
            "a part that occurs zero times",
            hint=f"for its absence write !{show_types(loop.atom.type)} {loop.atom.variable}"
            if is_list(loop)
            else "leave it out, or negate it: !SEQ(A a, B b)",
            span=loop.span,
        )


def _check_loop(loop: Repeat) -> None:
    _check_bounds(loop)
    last = parts(loop.part)[-1] if is_sequence(loop.part) else loop.part
    if is_absence(last) or bars_next(last):
        raise QueryError(
            "a repeated group cannot end with a negation: nothing says how far it reaches",
            hint="put it before an event of the group: (!C c, A a, B b)+, or after the group",
            span=last.span,
        )
    for inside in _inside(loop.part):
        match form(inside):
            case Form.TOGETHER:
                what, hint = "AND", "say in which orders: (SEQ(A a, B b) | SEQ(B b2, A a2))+"
            case Form.RESULT:
                what, hint = "an operator", "repeat events: (A a, B b)+"
            case Form.ABSENCE if is_lapse(inside):
                what, hint = "an absence with an explicit interval", "put it after the group"
            case Form.EVENT | Form.LIST | Form.LOOP | Form.OPTION | Form.CHOICE | Form.SEQUENCE:
                continue
            case Form.ABSENCE:
                continue
        raise QueryError(
            f"{what} inside a repeated group is not supported yet", hint=hint, span=inside.span
        )


def _inside(pattern: Pattern) -> Iterator[Pattern]:
    yield pattern
    for part in parts(pattern):
        yield from _inside(part)


def _check_negated(pattern: Pattern) -> None:
    match form(pattern):
        case Form.ABSENCE:
            raise QueryError(
                "a negation inside a negation",
                hint="write what must occur, without the inner !",
                span=pattern.span,
            )
        case Form.LIST | Form.LOOP | Form.OPTION:
            (part,) = parts(pattern)
            raise QueryError(
                "a negated part cannot have a quantifier",
                hint=f"!{show_types(part.type)} {part.variable} means that there is none at all"
                if is_event(part)
                else "leave out the quantifier",
                span=pattern.span,
            )
        case Form.RESULT:
            assert is_result(pattern)
            raise QueryError(
                f"the absence of a result of {pattern.operator.name}",
                hint="negate an event: !B b",
                span=pattern.span,
            )
        case Form.EVENT | Form.CHOICE | Form.SEQUENCE | Form.TOGETHER:
            for part in parts(pattern):
                _check_negated(part)


def _check_alternative(part: Pattern) -> None:
    if is_absence(part):
        raise QueryError(
            "a negation cannot be an alternative by itself",
            hint="say between which events: OR(SEQ(A a, !B b, C c), D d)",
            span=part.span,
        )


def _check_together(pattern: Pattern) -> None:
    bound = len(present(pattern))
    if any(map(stands, parts(pattern))) and bound < 2:
        raise QueryError(
            "a negation in AND applies between the first and the last of its events, "
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
        if is_event(part) or (is_result(part) and operator.over is not Over.REPEAT):
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
