"""Which variables every match binds."""

from ensue.algebra.form import Form, form, is_input, is_list, optional, parts
from ensue.algebra.pattern import Pattern


def always_bound(pattern: Pattern, *, kleene: bool = True) -> set[str]:
    """The variables that no match leaves out; with `kleene=False` only plain ones.

    >>> from ensue.algebra.pattern import Atom, Maybe, Seq
    >>> sorted(always_bound(Seq((Atom("A", "a"), Maybe(Atom("B", "b"))))))
    ['a']
    """
    if is_list(pattern):
        return {pattern.atom.variable} if kleene and not optional(pattern) else set()
    match form(pattern):
        case Form.EVENT | Form.LIST | Form.RESULT | Form.SEQUENCE | Form.TOGETHER:
            inside = {v for p in parts(pattern) for v in always_bound(p, kleene=kleene)}
            return {pattern.variable, *inside} if is_input(pattern) else inside
        case Form.LOOP:
            if not kleene or optional(pattern):
                return set()
            return {v for p in parts(pattern) for v in always_bound(p)}
        case Form.OPTION | Form.CHOICE | Form.ABSENCE:
            return set()
