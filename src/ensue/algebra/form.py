"""What a node of a pattern is, for all code that need not know which one it is.

A node has parts and a form: how a match of it is made of matches of its parts. Checks, rewrites,
drawings and planners ask for these; a new node answers here, once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Kleene,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.span import Span

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import TypeIs


class Form(Enum):
    """How a match of a node is made of matches of its parts."""

    EVENT = auto()  # one event; no parts
    LIST = auto()  # several events of its part, in order
    LOOP = auto()  # several of its part, each ends before the next begins
    RESULT = auto()  # one of each part, and what an operator makes of them
    OPTION = auto()  # one of its part, or nothing
    CHOICE = auto()  # one of one part
    SEQUENCE = auto()  # one of each part, each ends before the next begins
    TOGETHER = auto()  # one of each part, in any order
    ABSENCE = auto()  # nothing, where its part does not occur


def form(pattern: Pattern) -> Form:
    """The form of a node. EVENT, LIST, LOOP, RESULT and ABSENCE are of one node each.

    >>> form(Seq((Atom("A", "a"), Atom("B", "b")))).name
    'SEQUENCE'
    """
    match pattern:
        case Atom():
            return Form.EVENT
        case Seq() | Then():
            return Form.SEQUENCE
        case Not():
            return Form.ABSENCE
        case Kleene():
            return Form.LIST
        case Repeat():
            return Form.LOOP
        case And():
            return Form.TOGETHER
        case Or():
            return Form.CHOICE
        case Maybe():
            return Form.OPTION
        case Apply():
            return Form.RESULT


def plain(pattern: Pattern) -> bool:
    """Whether a node asks no more of its parts than its form says.

    Then some of its parts may be taken out, or others put in, and the rest keep their meaning.
    """
    match pattern:
        case Atom() | Kleene() | Repeat() | Maybe() | Or() | Seq() | And() | Not():
            return True
        case Apply():  # the operator has a say
            return False
        case Then():  # so has what lies between
            return False


def parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns directly inside this one."""
    match pattern:
        case Atom():
            return ()
        case Kleene(atom=atom):
            return (atom,)
        case Maybe(part=part) | Not(part=part) | Then(part=part):
            return (part,)
        case Repeat(part=part, begun=begun):
            return (part,) if begun is None else (begun, part)
        case Seq(parts=inner) | And(parts=inner) | Or(parts=inner):
            return inner
        case Apply(inputs=inputs):
            return inputs


def with_parts(pattern: Pattern, new: tuple[Pattern, ...]) -> Pattern:
    """The same pattern around other parts."""
    match pattern:
        case Atom():
            return pattern
        case Kleene():
            (atom,) = new
            assert is_event(atom)
            return replace(pattern, atom=atom)
        case Maybe() | Not() | Then():
            return replace(pattern, part=new[0])
        case Repeat():
            *begun, part = new
            return replace(pattern, part=part, begun=begun[0] if begun else None)
        case Seq() | And() | Or():
            return replace(pattern, parts=new)
        case Apply():
            return replace(pattern, inputs=new)


def grouped(
    kind: type[Seq] | type[And] | type[Or], inside: Iterable[Pattern], span: Span | None = None
) -> Pattern:
    """The parts together; a group directly inside one of its kind is spliced into it.

    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> grouped(Seq, (a, Seq((b, c)))) == Seq((a, b, c)), grouped(Or, (a,)) == a
    (True, True)
    """
    parts: list[Pattern] = []
    for part in inside:
        parts += part.parts if isinstance(part, kind) else [part]
    return kind(tuple(parts), span) if len(parts) > 1 else parts[0]


# --------------------------------------------------------------------------- what follows


def is_event(pattern: Pattern) -> "TypeIs[Atom]":
    """Whether it is one event."""
    return isinstance(pattern, Atom)


def is_list(pattern: Pattern) -> "TypeIs[Kleene]":
    """Whether it is several events under one variable."""
    return isinstance(pattern, Kleene)


def is_loop(pattern: Pattern) -> "TypeIs[Repeat]":
    """Whether it is a part several times, one after the other."""
    return isinstance(pattern, Repeat)


def is_result(pattern: Pattern) -> "TypeIs[Apply]":
    """Whether it is the result of an operator."""
    return isinstance(pattern, Apply)


def is_input(pattern: Pattern) -> "TypeIs[Atom | Apply]":
    """Whether it has one event or result under a variable of its own, as operators take them."""
    return isinstance(pattern, Atom | Apply)


def is_absence(pattern: Pattern) -> "TypeIs[Not]":
    """Whether it says what must not occur."""
    return isinstance(pattern, Not)


def is_lapse(pattern: Pattern) -> "TypeGuard[Not]":
    """Whether it says what must not occur in an interval of its own, wherever it stands."""
    return isinstance(pattern, Not) and pattern.interval is not None


def stands(pattern: Pattern) -> "TypeGuard[Not]":
    """Whether it says what must not occur between the parts around it."""
    return isinstance(pattern, Not) and pattern.interval is None


def is_entry(pattern: Pattern) -> "TypeIs[Then]":
    """Whether it says how it follows the part before it."""
    return isinstance(pattern, Then)


def bars_next(pattern: Pattern) -> "TypeGuard[Then]":
    """Whether it says what the very next event must not be: `THEN !B b`."""
    return isinstance(pattern, Then) and isinstance(pattern.part, Not)


def guards_entry(behind: Sequence[Pattern]) -> bool:
    """Whether a negation with these parts behind it belongs to a part that says how it follows.

    Then it counts only where one of them is bound: `A a -> !C c THEN NEXT B? b`.
    """
    following = next((part for part in behind if not is_absence(part)), None)
    return following is not None and is_entry(following) and not bars_next(following)


def is_sequence(pattern: Pattern) -> bool:
    """Whether its parts come one after the other."""
    return form(pattern) is Form.SEQUENCE


def present(pattern: Pattern) -> list[Pattern]:
    """The parts that are not absences.

    >>> a = Atom("A", "a")
    >>> present(Seq((a, Not(Atom("B", "b"))))) == [a]
    True
    """
    return [part for part in parts(pattern) if not is_absence(part)]


def optional(pattern: Pattern) -> bool:
    """Whether a match may leave all of this part unbound.

    >>> optional(Seq((Maybe(Atom("A", "a")), Kleene(Atom("B", "b"), 0, None))))
    True
    """
    if is_list(pattern):
        return pattern.least == 0
    if is_loop(pattern):
        begun = pattern.begun is None or optional(pattern.begun)
        return begun and (pattern.least == 0 or optional(pattern.part))
    match form(pattern):
        case Form.EVENT | Form.LIST | Form.LOOP | Form.RESULT:
            return False
        case Form.OPTION | Form.ABSENCE:
            return True
        case Form.SEQUENCE | Form.TOGETHER:
            return all(map(optional, parts(pattern)))
        case Form.CHOICE:
            return any(map(optional, parts(pattern)))
