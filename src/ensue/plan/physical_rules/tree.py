"""Join trees of a pattern: which shapes there are, and the tree of a shape."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations, product

from ensue.algebra.form import (
    Form,
    form,
    is_absence,
    is_event,
    is_result,
    is_sequence,
    optional,
    present,
)
from ensue.algebra.form import parts as parts_of
from ensue.algebra.pattern import Apply, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.algebra.text import show_name, show_pattern
from ensue.algebra.walk import atoms, kleenes, negations, positives, results, variables
from ensue.errors import QueryError
from ensue.plan import physical
from ensue.plan.physical import Absence, Check, Join, Leaf, Node, Tree
from ensue.plan.physical_rules.fitting import BY_START, TREE, is_leaf, leaf_of, why_unknown
from ensue.plan.physical_rules.operators import CONJUNCTION, SEQUENCE, Operator
from ensue.plan.physical_rules.user_operators import operator_of
from ensue.plan.planning import Shape


def why_no_tree(query: Query, between: tuple[Expr, ...], absent: tuple[Expr, ...]) -> str | None:
    """Why a query cannot be run on a join tree, if it cannot.

    `between` are its conditions on several events of the match, `absent` those that tie a negated
    event to others.
    """
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides event by event what a match takes"
    if query.after is not None and query.after.by_start:
        return BY_START
    applied = any(results(query.pattern))
    if len(list(positives(query.pattern))) < 2 and not applied:
        return "there is only one event to wait for"
    chains = kleenes(query.pattern)
    if any(variables(c) & set(chains) for c in (*between, *absent)):
        return "a condition compares the events of a Kleene variable"
    if applied and any(negations(query.pattern)):
        return "a negation is next to the results of operators"
    return _why_not(query.pattern) or why_unknown(query.pattern, TREE)


def _why_not(pattern: Pattern) -> str | None:
    parts = parts_of(pattern)
    match form(pattern):
        case Form.EVENT | Form.LIST:
            return None
        case Form.LOOP:
            return "a group is repeated"
        case Form.OPTION | Form.CHOICE:
            return "the pattern has optional parts or alternatives"
        case Form.ABSENCE:
            return "a negation inside AND"
        case Form.TOGETHER | Form.RESULT:
            if any(negations(pattern)):
                return "a negation inside AND"
            return next((why for p in parts if (why := _why_not(p))), None)
        case Form.SEQUENCE:
            for k, part in enumerate(parts):
                if is_absence(part):
                    if not is_event(part.part):
                        return "the negation of a complex event"
                    if not any(_certain(p) for p in parts[k + 1 :]):
                        return "a negation at the end waits for time to pass"
                    front = [p for p in parts[:k] if not is_absence(p)]
                    if front and not any(map(_certain, front)):
                        return "a negation follows optional events"
                elif (why := _why_not(part)) is not None:
                    return why
            return None


def _certain(part: Pattern) -> bool:
    return not is_absence(part) and not optional(part)


# --------------------------------------------------------------------------------------- shapes


def shapes(query: Query) -> Iterator[Shape]:
    """Every shape of a join tree for a query's pattern: neighbours of a sequence, any of an AND.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> abc = Seq((Atom("A", "a"), Atom("B", "b"), Atom("C", "c")))
    >>> list(shapes(Query(abc)))
    [('a', ('b', 'c')), (('a', 'b'), 'c')]
    """
    return _shapes(query.pattern)


def left_deep(query: Query) -> Shape:
    """The shape that joins one part after the other, from the left.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> left_deep(Query(Seq((Atom("A", "a"), Atom("B", "b"), Atom("C", "c")))))
    (('a', 'b'), 'c')
    """

    def deep(pattern: Pattern) -> Shape:
        if is_leaf(pattern):
            return leaf_of(pattern)
        first, *others = [deep(p) for p in present(pattern)]
        for other in others:
            first = (first, other)
        return first

    return deep(query.pattern)


def _shapes(pattern: Pattern) -> Iterator[Shape]:
    if is_leaf(pattern):
        yield leaf_of(pattern)
    else:
        # the inputs of an operator stay in their order
        in_order = form(pattern) is not Form.TOGETHER
        yield from _over(present(pattern), in_order=in_order)


def _over(parts: list[Pattern], *, in_order: bool) -> Iterator[Shape]:
    if len(parts) == 1:
        yield from _shapes(parts[0])
        return
    for left, right in _splits(parts, in_order):
        lefts, rights = (list(_over(side, in_order=in_order)) for side in (left, right))
        yield from product(lefts, rights)


def _splits(parts: list[Pattern], in_order: bool) -> Iterator[tuple[list[Pattern], list[Pattern]]]:
    places = range(len(parts))
    if in_order:
        yield from ((parts[:k], parts[k:]) for k in places[1:])
        return
    for size in range(len(parts) - 1):
        for others in combinations(places[1:], size):  # the first part stays on the left
            left = [parts[0], *(parts[k] for k in others)]
            yield left, [parts[k] for k in places[1:] if k not in others]


# ----------------------------------------------------------------------------------------- tree


def tree_of(
    query: Query,
    between: tuple[Expr, ...],
    absent: tuple[Expr, ...],
    shape: Shape | None = None,
    *,
    push: bool = True,
    python: Collection[str] = (),
) -> Tree | None:
    """The join tree of a shape, left-deep without one; None where there is none.

    Conditions are tried at the lowest node that sees all their variables (rule 2), in the order
    they come in; without `push` at the root. A shape may name negated variables too: a negation
    is tried at the lowest node that also has its neighbours. `python` names the operators of
    users whose functions are not compiled.
    """
    if why_no_tree(query, between, absent) is not None:
        return None
    negated = frozenset(a.variable for n in negations(query.pattern) for a in atoms(n))
    plain = left_deep(query) if shape is None else _without(shape, negated)
    if plain is None:
        raise _misfit(shape, query.pattern)
    root = _joined(plain, _Numbered(query.pattern, python), query.pattern)
    for condition in between:
        wanted = variables(condition) if push else frozenset(_names(root))
        root = _with(root, wanted, check=Check(condition))
    for absence, wanted in _absences(query.pattern, absent, frozenset(_names(root))):
        root = _with(root, wanted, absence=absence)
    return Tree(root)


def _without(shape: Shape, negated: frozenset[str]) -> Shape | None:
    if isinstance(shape, str):
        return None if shape in negated else shape
    left, right = (_without(side, negated) for side in shape)
    if left is None or right is None:
        return right if left is None else left
    return (left, right)


class _Numbered:
    """The operators of users in a pattern, each with its functions' names."""

    def __init__(self, pattern: Pattern, python: Collection[str]) -> None:
        self.number = {a.variable: k for k, a in enumerate(results(pattern))}
        self.python = python

    def operator(self, applied: Apply) -> Operator:
        python = bool(self.python)  # a kernel is compiled as a whole, or not at all
        return operator_of(applied, self.number[applied.variable], python=python)


def _joined(shape: Shape, users: _Numbered, pattern: Pattern) -> Node:
    """The nodes of a shape, without conditions."""
    if is_result(pattern):
        return _applied(shape, users, pattern)
    if not is_leaf(pattern):
        return _split(shape, users, pattern, present(pattern))
    if shape != leaf_of(pattern):
        raise _misfit(shape, pattern)
    return Leaf(str(shape))


def _applied(shape: Shape, users: _Numbered, applied: Apply) -> Node:
    operator, name = users.operator(applied), applied.variable
    match applied.inputs:
        case (part,):
            return physical.Apply(operator, _joined(shape, users, part), variable=name)
        case (left, right) if not isinstance(shape, str):
            sides = _joined(shape[0], users, left), _joined(shape[1], users, right)
            return Join(operator, *sides, variable=name)
        case _:
            raise _misfit(shape, applied)


def _split(shape: Shape, users: _Numbered, pattern: Pattern, parts: list[Pattern]) -> Node:
    if len(parts) == 1:
        return _joined(shape, users, parts[0])
    in_order = is_sequence(pattern)
    if not isinstance(shape, str):
        mine = set(_variables(shape[0]))
        inside = [{a.variable for a in positives(p)} for p in parts]
        left = [p for p, names in zip(parts, inside, strict=True) if names <= mine]
        right = [p for p, names in zip(parts, inside, strict=True) if not names & mine]
        whole = left and right and len(left) + len(right) == len(parts)
        if whole and (not in_order or parts == left + right):
            return Join(
                SEQUENCE if in_order else CONJUNCTION,
                _split(shape[0], users, pattern, left),
                _split(shape[1], users, pattern, right),
            )
    raise _misfit(shape, pattern)


def _misfit(shape: Shape | None, pattern: Pattern) -> QueryError:
    return QueryError(
        f"the shape {shape} does not fit {show_pattern(pattern)}",
        hint="a shape is a pair of shapes or a variable; parts of a sequence stay in their order",
    )


def _variables(shape: Shape) -> list[str]:
    return [shape] if isinstance(shape, str) else [v for side in shape for v in _variables(side)]


def _names(node: Node) -> list[str]:
    """The variables of a node, from left to right."""
    match node:
        case Leaf(variable=variable):
            return [variable]
        case Join(left=left, right=right, variable=variable):
            return _names(left) + _names(right) + _named(variable)
        case _:
            return _names(node.part) + _named(node.variable)


def _named(variable: str | None) -> list[str]:
    return [] if variable is None else [variable]


def leaf_names(node: Node) -> list[str]:
    """The variables of the events under a node, from left to right."""
    match node:
        case Leaf(variable=variable):
            return [variable]
        case Join(left=left, right=right):
            return leaf_names(left) + leaf_names(right)
        case physical.Apply(part=part):
            return leaf_names(part)


def joins_of(node: Node) -> Iterator[Join | physical.Apply]:
    """The inner nodes, from the root downwards."""
    match node:
        case Join(left=left, right=right):
            yield node
            yield from joins_of(left)
            yield from joins_of(right)
        case physical.Apply(part=part):
            yield node
            yield from joins_of(part)
        case Leaf():
            return


def shape_of(node: Node) -> Shape:
    """The shape of a tree; operators on one part leave no trace in it."""
    match node:
        case Leaf(variable=variable):
            return variable
        case Join(left=left, right=right):
            return (shape_of(left), shape_of(right))
        case physical.Apply(part=part):
            return shape_of(part)


def tree_text(node: Node) -> str:
    """A tree in one line.

    >>> tree_text(Join(CONJUNCTION, Join(SEQUENCE, Leaf("a"), Leaf("b")), Leaf("c")))
    '((a -> b) & c)'
    """
    match node:
        case Leaf(variable=variable):
            return show_name(variable)
        case Join(left=left, right=right):
            return f"({tree_text(left)} {node_name(node)} {tree_text(right)})"
        case physical.Apply(part=part):
            return f"{node_name(node)}({tree_text(part)})"


def node_name(node: Join | physical.Apply) -> str:
    """An operator as the shape of a tree shows it."""
    name = node.operator.name
    return {"sequence": "->", "conjunction": "&"}.get(name, name)


def _with(
    node: Node,
    wanted: frozenset[str],
    *,
    check: Check | None = None,
    absence: Absence | None = None,
) -> Node:
    """The tree with something to try at the lowest node that has all of these variables."""
    assert not isinstance(node, Leaf)
    if isinstance(node, Join):
        if not isinstance(node.left, Leaf) and wanted <= set(_names(node.left)):
            return replace(node, left=_with(node.left, wanted, check=check, absence=absence))
        if not isinstance(node.right, Leaf) and wanted <= set(_names(node.right)):
            return replace(node, right=_with(node.right, wanted, check=check, absence=absence))
    elif not isinstance(node.part, Leaf) and wanted <= set(_names(node.part)):
        return replace(node, part=_with(node.part, wanted, check=check, absence=absence))
    if check is not None:
        node = replace(node, checks=(*node.checks, check))
    if absence is not None:
        node = replace(node, absences=(*node.absences, absence))
    return node


def _absences(
    pattern: Pattern, absent: tuple[Expr, ...], everything: frozenset[str]
) -> Iterator[tuple[Absence, frozenset[str]]]:
    """The negations, with the variables that must be there to try them."""
    parts = parts_of(pattern)
    for k, part in enumerate(parts):
        if not is_absence(part):
            yield from _absences(part, absent, everything)
            continue
        assert is_event(part.part)
        assert is_sequence(pattern)  # elsewhere it is refused
        variable = part.part.variable
        conditions = tuple(c for c in absent if variable in variables(c))
        after, before = _next(parts[:k][::-1]), _next(parts[k + 1 :])
        wanted = {v for c in conditions for v in variables(c)} - {variable}
        wanted |= {*after, *before} if after else everything
        yield Absence(variable, after, before, conditions), frozenset(wanted)


def _next(parts: tuple[Pattern, ...]) -> tuple[str, ...]:
    """The variables of the next part that is always there, and of those that may be on the way."""
    found: list[str] = []
    for part in parts:
        if not is_absence(part):
            found += [a.variable for a in positives(part)]
            if _certain(part):
                break
    return tuple(found)
