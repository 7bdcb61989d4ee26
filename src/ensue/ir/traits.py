"""Traits of pattern nodes: their parts and form, for code that handles all node types alike.

Checks, rewrites, pictures and planners use these traits; a new node type defines them here only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from ensue.errors import Span
from ensue.ir.pattern import And, Atom, Kleene, Maybe, Not, OperatorCall, Or, Pattern, Repeat, Seq, Then

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import TypeIs

Fact = TypeVar("Fact")


class NodeForm(Enum):
    """How a match of a node is composed of matches of its parts."""

    EVENT = auto()  # one event; no parts
    LIST = auto()  # several events, in order
    LOOP = auto()  # several iterations of its part, one after the other
    RESULT = auto()  # a match of each part, and the result of an operator over them
    OPTION = auto()  # a match of its part, or nothing
    CHOICE = auto()  # a match of one part
    SEQUENCE = auto()  # a match of each part, one after the other
    TOGETHER = auto()  # a match of each part, in any order
    ABSENCE = auto()  # nothing, if its part does not occur


def get_form(pattern: Pattern) -> NodeForm:
    """Returns the form of a node. EVENT, LIST, LOOP, RESULT and ABSENCE have one node type each.

    >>> get_form(Seq((Atom("A", "a"), Atom("B", "b")))).name
    'SEQUENCE'
    """
    match pattern:
        case Atom():
            return NodeForm.EVENT
        case Seq() | Then():
            return NodeForm.SEQUENCE
        case Not():
            return NodeForm.ABSENCE
        case Kleene():
            return NodeForm.LIST
        case Repeat():
            return NodeForm.LOOP
        case And():
            return NodeForm.TOGETHER
        case Or():
            return NodeForm.CHOICE
        case Maybe():
            return NodeForm.OPTION
        case OperatorCall():
            return NodeForm.RESULT


def cache_fact(find: Callable[[Pattern], Fact]) -> Callable[[Pattern], Fact]:
    """Caches a fact about a pattern on the node; it is neither compared nor pickled."""
    name = find.__name__

    @wraps(find)
    def get(pattern: Pattern) -> Fact:
        cached = pattern.__dict__
        if name not in cached:
            cached[name] = find(pattern)
        fact: Fact = cached[name]
        return fact

    return get


def is_plain(pattern: Pattern) -> bool:
    """Whether parts of a node can be removed or added without changing the others' meaning."""
    match pattern:
        case Atom() | Kleene() | Repeat() | Maybe() | Or() | Seq() | And() | Not():
            return True
        case OperatorCall() | Then():  # the operator, or the gap before the part, adds conditions
            return False


def get_parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """Returns the direct parts of a pattern."""
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
        case OperatorCall(inputs=inputs):
            return inputs


def replace_parts(pattern: Pattern, new: tuple[Pattern, ...]) -> Pattern:
    """Returns the same pattern with other parts."""
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
        case OperatorCall():
            return replace(pattern, inputs=new)


def build_group(kind: type[Seq] | type[And] | type[Or], inside: Iterable[Pattern], span: Span | None = None) -> Pattern:
    """Builds a group; a direct part of the same type is spliced into it, a single part returned.

    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> build_group(Seq, (a, Seq((b, c)))) == Seq((a, b, c)), build_group(Or, (a,)) == a
    (True, True)
    """
    parts: list[Pattern] = []
    for part in inside:
        parts += part.parts if isinstance(part, kind) else [part]
    return kind(tuple(parts), span) if len(parts) > 1 else parts[0]


def is_event(pattern: Pattern) -> "TypeIs[Atom]":
    return isinstance(pattern, Atom)


def is_list(pattern: Pattern) -> "TypeIs[Kleene]":
    return isinstance(pattern, Kleene)


def is_loop(pattern: Pattern) -> "TypeIs[Repeat]":
    return isinstance(pattern, Repeat)


def is_repetition(pattern: Pattern) -> "TypeIs[Kleene | Repeat]":
    return isinstance(pattern, Kleene | Repeat)


def is_operator_call(pattern: Pattern) -> "TypeIs[OperatorCall]":
    return isinstance(pattern, OperatorCall)


def is_input(pattern: Pattern) -> "TypeIs[Atom | OperatorCall]":
    """Whether it is an event or a result under a variable, which operators take as inputs."""
    return isinstance(pattern, Atom | OperatorCall)


def is_negation(pattern: Pattern) -> "TypeIs[Not]":
    return isinstance(pattern, Not)


def is_interval_negation(pattern: Pattern) -> "TypeGuard[Not]":
    """Whether it is a negation with an explicit interval; its position does not matter."""
    return isinstance(pattern, Not) and pattern.interval is not None


def is_positional_negation(pattern: Pattern) -> "TypeGuard[Not]":
    """Whether it is a negation between the parts around it."""
    return isinstance(pattern, Not) and pattern.interval is None


def is_then(pattern: Pattern) -> "TypeIs[Then]":
    return isinstance(pattern, Then)


def forbids_next_event(pattern: Pattern) -> "TypeGuard[Then]":
    """Whether it forbids the very next event: `THEN !B b`."""
    return isinstance(pattern, Then) and isinstance(pattern.part, Not)


def precedes_then(later_parts: Sequence[Pattern]) -> bool:
    """Whether a negation, followed by these parts, stands before a THEN part.

    Then it only applies if that part is bound: `A a -> !C c THEN NEXT B? b`.
    """
    following = next((part for part in later_parts if not is_negation(part)), None)
    return following is not None and is_then(following) and not forbids_next_event(following)


def is_sequence(pattern: Pattern) -> bool:
    return get_form(pattern) is NodeForm.SEQUENCE


def get_positive_parts(pattern: Pattern) -> list[Pattern]:
    """Returns the parts that are no negations.

    >>> a = Atom("A", "a")
    >>> get_positive_parts(Seq((a, Not(Atom("B", "b"))))) == [a]
    True
    """
    return [part for part in get_parts(pattern) if not is_negation(part)]


@cache_fact
def is_optional(pattern: Pattern) -> bool:
    """Whether a match may bind nothing of this part.

    >>> is_optional(Seq((Maybe(Atom("A", "a")), Kleene(Atom("B", "b"), 0, None))))
    True
    """
    if is_list(pattern):
        return pattern.least == 0
    if is_loop(pattern):
        begun = pattern.begun is None or is_optional(pattern.begun)
        return begun and (pattern.least == 0 or is_optional(pattern.part))
    match get_form(pattern):
        case NodeForm.EVENT | NodeForm.LIST | NodeForm.LOOP | NodeForm.RESULT:
            return False
        case NodeForm.OPTION | NodeForm.ABSENCE:
            return True
        case NodeForm.SEQUENCE | NodeForm.TOGETHER:
            return all(map(is_optional, get_parts(pattern)))
        case NodeForm.CHOICE:
            return any(map(is_optional, get_parts(pattern)))
