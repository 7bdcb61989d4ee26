"""Builds the join tree of a pattern for a shape."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

from ensue.errors import QueryError
from ensue.ir import traits
from ensue.ir.expression import Expr
from ensue.ir.pattern import OperatorCall, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.traversal import (
    get_kleene_variables,
    get_variables,
    iterate_atoms,
    iterate_negations,
    iterate_operator_calls,
    iterate_positive_atoms,
)
from ensue.planner.capabilities import BY_START, TREE, get_leaf_variable, is_leaf, why_unsupported
from ensue.planner.join_operators import CONJUNCTION, SEQUENCE, JoinOperator, describe_operator
from ensue.planner.physical_plan import ApplyNode, ConditionCheck, JoinNode, JoinTree, LeafNode, NegationCheck, TreeNode
from ensue.planner.planner_options import Shape
from ensue.printing.expression_printer import format_name
from ensue.printing.pattern_printer import format_pattern


def why_no_tree(query: Query, between: tuple[Expr, ...], absent: tuple[Expr, ...]) -> str | None:
    """Why a query cannot run on a join tree, if it cannot.

    `between` are its conditions on several events of the match, `absent` those that compare a
    negated event with others.
    """
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides at each event whether a match takes it"
    if query.after is not None and query.after.by_start:
        return BY_START
    applied = any(iterate_operator_calls(query.pattern))
    if len(list(iterate_positive_atoms(query.pattern))) < 2 and not applied:
        return "the pattern has only one event"
    repeated = get_kleene_variables(query.pattern)
    if any(get_variables(c) & set(repeated) for c in (*between, *absent)):
        return "a condition compares the events of a Kleene variable"
    if applied and any(iterate_negations(query.pattern)):
        return "a negation is next to the results of operators"
    return _why_not(query.pattern) or why_unsupported(query.pattern, TREE)


def _why_not(pattern: Pattern) -> str | None:
    match traits.get_form(pattern):
        case traits.NodeForm.EVENT | traits.NodeForm.LIST:
            return None
        case traits.NodeForm.LOOP:
            return "a group is repeated"
        case traits.NodeForm.OPTION | traits.NodeForm.CHOICE:
            return "the pattern has optional parts or alternatives"
        case traits.NodeForm.ABSENCE:
            return "a negation inside AND"
        case traits.NodeForm.TOGETHER | traits.NodeForm.RESULT:
            if any(iterate_negations(pattern)):
                return "a negation inside AND"
            return next((why for p in traits.get_parts(pattern) if (why := _why_not(p))), None)
        case traits.NodeForm.SEQUENCE:
            inner = traits.get_parts(pattern)
            for k, part in enumerate(inner):
                if traits.is_negation(part):
                    if not traits.is_event(part.part):
                        return "the negation of a nested pattern"
                    if not any(_certain(p) for p in inner[k + 1 :]):
                        return "a negation at the end waits for time to pass"
                    previous = [p for p in inner[:k] if not traits.is_negation(p)]
                    if previous and not any(map(_certain, previous)):
                        return "a negation follows optional events"
                elif (why := _why_not(part)) is not None:
                    return why
            return None


def _certain(part: Pattern) -> bool:
    return not traits.is_negation(part) and not traits.is_optional(part)


def get_leaves(shape: Shape) -> tuple[str, ...]:
    """The variables of a shape, from left to right."""
    return (shape,) if isinstance(shape, str) else get_leaves(shape[0]) + get_leaves(shape[1])


def build_left_deep(query: Query) -> Shape:
    """The shape that joins the parts from left to right."""

    def deep(pattern: Pattern) -> Shape:
        if is_leaf(pattern):
            return get_leaf_variable(pattern)
        return join_from_left([deep(p) for p in traits.get_positive_parts(pattern)])

    return deep(query.pattern)


def join_from_left(shapes: Iterable[Shape]) -> Shape:
    return reduce(lambda left, right: (left, right), shapes)


def build_tree(
    query: Query,
    between: tuple[Expr, ...],
    absent: tuple[Expr, ...],
    shape: Shape | None = None,
    *,
    push: bool = True,
    python: Collection[str] = (),
) -> JoinTree | None:
    """Builds the join tree of a shape, left-deep by default; None if the query cannot have one.

    Conditions are evaluated at the lowest node that has all their variables (rule 2), in the given
    order; without `push` at the root. A shape may name negated variables too: a negation is
    evaluated at the lowest node that also has its neighbours. `python` names the user-defined
    operators whose functions are not compiled.
    """
    if why_no_tree(query, between, absent) is not None:
        return None
    negated = frozenset(a.variable for n in iterate_negations(query.pattern) for a in iterate_atoms(n))
    positive = build_left_deep(query) if shape is None else _drop_negated(shape, negated)
    if positive is None:
        raise _misfit(shape, query.pattern)
    calls = enumerate(iterate_operator_calls(query.pattern))  # a kernel is compiled as a whole, or not at all
    users = {call.variable: describe_operator(call, number, python=bool(python)) for number, call in calls}
    root = _build(positive, users, query.pattern)
    for condition in between:
        names = get_variables(condition) if push else frozenset(_names(root))
        root = _attach(root, names, check=ConditionCheck(condition))
    for absence, names in _absences(query.pattern, absent, frozenset(_names(root))):
        root = _attach(root, names, absence=absence)
    return JoinTree(root)


def _drop_negated(shape: Shape, negated: frozenset[str]) -> Shape | None:
    if isinstance(shape, str):
        return None if shape in negated else shape
    left, right = (_drop_negated(side, negated) for side in shape)
    if left is None or right is None:
        return right if left is None else left
    return (left, right)


def _build(shape: Shape, users: dict[str, JoinOperator], pattern: Pattern) -> TreeNode:
    """Builds the nodes of a shape, without conditions."""
    if traits.is_operator_call(pattern):
        return _build_user_operator(shape, users, pattern)
    if not is_leaf(pattern):
        return _build_joins(shape, users, pattern, traits.get_positive_parts(pattern))
    if shape != get_leaf_variable(pattern):
        raise _misfit(shape, pattern)
    return LeafNode(str(shape))


def _build_user_operator(shape: Shape, users: dict[str, JoinOperator], applied: OperatorCall) -> TreeNode:
    operator, name = users[applied.variable], applied.variable
    match applied.inputs:
        case (part,):
            return ApplyNode(operator, _build(shape, users, part), variable=name)
        case (left, right) if not isinstance(shape, str):
            sides = _build(shape[0], users, left), _build(shape[1], users, right)
            return JoinNode(operator, *sides, variable=name)
        case _:
            raise _misfit(shape, applied)


def _build_joins(shape: Shape, users: dict[str, JoinOperator], pattern: Pattern, parts: list[Pattern]) -> TreeNode:
    if len(parts) == 1:
        return _build(shape, users, parts[0])
    in_order = traits.is_sequence(pattern)
    if not isinstance(shape, str):
        side = set(get_leaves(shape[0]))
        inside = [{a.variable for a in iterate_positive_atoms(p)} for p in parts]
        left = [p for p, names in zip(parts, inside, strict=True) if names <= side]
        right = [p for p, names in zip(parts, inside, strict=True) if not names & side]
        complete = left and right and len(left) + len(right) == len(parts)
        if complete and (not in_order or parts == left + right):
            return JoinNode(
                SEQUENCE if in_order else CONJUNCTION,
                _build_joins(shape[0], users, pattern, left),
                _build_joins(shape[1], users, pattern, right),
            )
    raise _misfit(shape, pattern)


def _misfit(shape: Shape | None, pattern: Pattern) -> QueryError:
    return QueryError(
        f"the shape {shape} does not fit {format_pattern(pattern)}",
        hint="a shape is a pair of shapes or a variable; parts of a sequence stay in their order",
    )


def _names(node: TreeNode) -> list[str]:
    """The variables and results of a node, from left to right."""
    names = [name for child in node.children for name in _names(child)]
    return names if node.variable is None else [*names, node.variable]


def get_leaf_names(node: TreeNode) -> list[str]:
    """The variables of the events under a node, from left to right."""
    return list(get_leaves(get_shape(node)))


def walk_joins(node: TreeNode) -> Iterator[JoinNode | ApplyNode]:
    """The inner nodes, from the root downwards."""
    if not isinstance(node, LeafNode):
        yield node
    for child in node.children:
        yield from walk_joins(child)


def rewrite_joins(node: TreeNode, rewrite: Callable[[JoinNode | ApplyNode], JoinNode | ApplyNode]) -> TreeNode:
    """Rewrites the inner nodes, from the leaves upwards."""
    match node:
        case LeafNode():
            return node
        case JoinNode(left=left, right=right):
            left, right = rewrite_joins(left, rewrite), rewrite_joins(right, rewrite)
            return rewrite(replace(node, left=left, right=right))
        case ApplyNode(part=part):
            return rewrite(replace(node, part=rewrite_joins(part, rewrite)))


def get_shape(node: TreeNode) -> Shape:
    """The shape of a tree; unary operators do not appear in it."""
    if isinstance(node, LeafNode):
        return node.variable
    return join_from_left(map(get_shape, node.children))


def format_tree(node: TreeNode) -> str:
    """Formats a tree in one line."""
    match node:
        case LeafNode(variable=variable):
            return format_name(variable)
        case JoinNode(left=left, right=right):
            return f"({format_tree(left)} {get_operator_symbol(node)} {format_tree(right)})"
        case ApplyNode(part=part):
            return f"{get_operator_symbol(node)}({format_tree(part)})"


def get_operator_symbol(node: JoinNode | ApplyNode) -> str:
    """The operator of a node in `format_tree`."""
    name = node.operator.name
    return {"sequence": "->", "conjunction": "&"}.get(name, name)


def _attach(
    node: TreeNode, names: frozenset[str], *, check: ConditionCheck | None = None, absence: NegationCheck | None = None
) -> TreeNode:
    """Adds a check or a negation at the lowest node that has all of these variables."""
    assert not isinstance(node, LeafNode)
    for side in ("left", "right") if isinstance(node, JoinNode) else ("part",):
        child = getattr(node, side)
        if not isinstance(child, LeafNode) and names <= set(_names(child)):
            lower: Any = {side: _attach(child, names, check=check, absence=absence)}
            return replace(node, **lower)
    if check is not None:
        node = replace(node, checks=(*node.checks, check))
    if absence is not None:
        node = replace(node, absences=(*node.absences, absence))
    return node


def _absences(
    pattern: Pattern, absent: tuple[Expr, ...], everything: frozenset[str]
) -> Iterator[tuple[NegationCheck, frozenset[str]]]:
    """The negations, with the variables that must be bound to evaluate them."""
    inner = traits.get_parts(pattern)
    for k, part in enumerate(inner):
        if not traits.is_negation(part):
            yield from _absences(part, absent, everything)
            continue
        assert traits.is_event(part.part)
        assert traits.is_sequence(pattern)  # `why_no_tree` refuses other patterns
        variable = part.part.variable
        conditions = tuple(c for c in absent if variable in get_variables(c))
        after, before = _next(inner[:k][::-1]), _next(inner[k + 1 :])
        names = {v for c in conditions for v in get_variables(c)} - {variable}
        names |= {*after, *before} if after else everything
        yield NegationCheck(variable, after, before, conditions), frozenset(names)


def _next(parts: tuple[Pattern, ...]) -> tuple[str, ...]:
    """The variables of the next mandatory part, and of the optional ones before it."""
    names: list[str] = []
    for part in parts:
        if not traits.is_negation(part):
            names += [a.variable for a in iterate_positive_atoms(part)]
            if _certain(part):
                break
    return tuple(names)


def find_predecessors(pattern: Pattern) -> dict[str, list[str]]:
    """For each positive variable, the variables that must have ended before it starts.

    >>> from ensue.ir.pattern import Atom, Kleene, Seq
    >>> find_predecessors(Seq((Atom("A", "a"), Kleene(Atom("B", "b"), 1, None))))
    {'a': [], 'b': ['a', 'b']}
    """
    earlier: dict[str, list[str]] = {a.variable: [] for a in iterate_positive_atoms(pattern)}

    def visit(node: Pattern) -> None:
        if traits.is_negation(node):
            return
        if traits.is_list(node):
            earlier[node.atom.variable].append(node.atom.variable)
        if traits.is_loop(node):  # all events it has taken so far
            inside = [a.variable for a in iterate_positive_atoms(node)]
            for variable in inside:
                earlier[variable] = [*inside, *(v for v in earlier[variable] if v not in inside)]
            return
        if traits.is_sequence(node):
            previous: list[str] = []
            for part in traits.get_parts(node):
                inside = [a.variable for a in iterate_positive_atoms(part)]
                for variable in inside:
                    earlier[variable] = [*previous, *earlier[variable]]
                previous += inside
        for part in traits.get_parts(node):
            visit(part)

    visit(pattern)
    return earlier
