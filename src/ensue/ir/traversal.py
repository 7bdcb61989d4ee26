"""Traversals of patterns and expressions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import TypeVar

from ensue.ir import expression, traits
from ensue.ir.expression import Expr
from ensue.ir.pattern import Atom, Kleene, LoopExit, MaxGap, Not, OperatorCall, Pattern, Repeat
from ensue.ir.selection import Strategy

Item = TypeVar("Item")


def cache_on_node(find: Callable[[Pattern], Iterable[Item]]) -> Callable[[Pattern], Iterator[Item]]:
    """Caches the items of a traversal on the node; they are neither compared nor pickled."""
    name = find.__name__

    @wraps(find)
    def walk(pattern: Pattern) -> Iterator[Item]:
        cached = pattern.__dict__
        if name not in cached:
            cached[name] = tuple(find(pattern))
        return iter(cached[name])

    return walk


def rewrite_pattern(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """Applies `change` to every node, the inner ones first. Unchanged nodes keep their cached facts."""
    parts = traits.get_parts(pattern)
    changed = tuple(rewrite_pattern(part, change) for part in parts)
    if any(new is not old for new, old in zip(changed, parts, strict=True)):
        pattern = traits.replace_parts(pattern, changed)
    if traits.is_repetition(pattern) and pattern.until is not None:
        until = rewrite_pattern(pattern.until, change)
        assert traits.is_negation(until)
        pattern = pattern if until is pattern.until else replace(pattern, until=until)
    return change(pattern)


@cache_on_node
def iterate_atoms(pattern: Pattern) -> Iterator[Atom]:
    """Yields every atom in the order of the text, including negated ones and UNTIL."""
    if traits.is_event(pattern):
        yield pattern
        return
    for part in traits.get_parts(pattern):
        yield from iterate_atoms(part)
    if traits.is_repetition(pattern) and pattern.until is not None:
        yield from iterate_atoms(pattern.until)


@cache_on_node
def iterate_positive_atoms(pattern: Pattern) -> Iterator[Atom]:
    """Yields the atoms that a match binds, in the order of the text.

    >>> from ensue.ir.pattern import Seq
    >>> [a.variable for a in iterate_positive_atoms(Seq((Atom("A", "a"), Not(Atom("B", "b")))))]
    ['a']
    """
    if traits.is_event(pattern):
        yield pattern
    elif not traits.is_negation(pattern):
        for part in traits.get_parts(pattern):
            yield from iterate_positive_atoms(part)


@cache_on_node
def iterate_negations(pattern: Pattern) -> Iterator[Not]:
    """Yields every outermost negation."""
    if traits.is_negation(pattern):
        yield pattern
        return
    for part in traits.get_parts(pattern):
        yield from iterate_negations(part)


def get_kleene_variables(pattern: Pattern) -> dict[str, Kleene]:
    """Returns the variables that stand for several events, including those of repeated groups.

    The event that starts each iteration occurs as often as the group; the others occur at least
    once if every iteration binds them, else any number of times.

    >>> from ensue.ir.pattern import Maybe, Repeat, Seq
    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> lists = get_kleene_variables(Repeat(Seq((a, Maybe(b))), 2, None))
    >>> lists["a"] == Kleene(a, 2, None), lists["b"] == Kleene(b, 0, None)
    (True, True)
    """
    return dict(_iterate_kleenes(pattern))


@cache_on_node
def _iterate_kleenes(pattern: Pattern) -> Iterable[tuple[str, Kleene]]:
    if traits.is_loop(pattern):
        always = () if pattern.least == 0 else {*_iterate_once(pattern.part)}
        inside = {
            atom.variable: Kleene(atom, int(atom.variable in always), None) for atom in iterate_positive_atoms(pattern)
        }
        first = get_first_atom(pattern)
        if first is not None:
            inside[first.variable] = Kleene(first, pattern.least, pattern.most)
        return inside.items()
    lists = {pattern.atom.variable: pattern} if traits.is_list(pattern) else {}
    for part in traits.get_parts(pattern):
        lists |= get_kleene_variables(part)
    return lists.items()


def get_first_atom(loop: Repeat) -> Atom | None:
    """Returns the atom that starts every iteration of a repeated group, if there is one."""
    first = loop.part
    while traits.get_form(first) is traits.NodeForm.SEQUENCE:
        first = traits.get_parts(first)[0]
    return first if traits.is_event(first) else None


@cache_on_node
def iterate_subpatterns(pattern: Pattern) -> Iterator[Pattern]:
    """Yields a pattern and all parts in it, outer ones first."""
    yield pattern
    for part in traits.get_parts(pattern):
        yield from iterate_subpatterns(part)


def iterate_loop_exits(pattern: Pattern) -> Iterator[LoopExit]:
    """Yields the exit rules of Kleene variables and repeated groups."""
    return (node.leave for node in iterate_subpatterns(pattern) if traits.is_repetition(node))


@cache_on_node
def iterate_loops(pattern: Pattern) -> Iterator[Repeat]:
    """Yields the repeated groups, outer ones first."""
    return filter(traits.is_loop, iterate_subpatterns(pattern))


def ends_greedily(pattern: Pattern, bound: Collection[str] | None = None) -> bool:
    """Whether a match may end with a greedy loop, which only a later event ends.

    `bound` are the variables of the match; None: of any match.

    >>> from ensue.ir.pattern import Maybe, Seq
    >>> a, b = Atom("A", "a"), Kleene(Atom("B", "b"), 1, None, leave=LoopExit.GREEDY)
    >>> ends_greedily(Seq((a, b))), ends_greedily(Seq((b, Maybe(a)))), ends_greedily(Seq((b, a)))
    (True, True, False)
    """
    if traits.is_negation(pattern):
        return False
    if traits.is_repetition(pattern) and pattern.leave is LoopExit.GREEDY:
        return True

    def is_bound(part: Pattern) -> bool:
        return any(bound is None or atom.variable in bound for atom in iterate_positive_atoms(part))

    if traits.get_form(pattern) is not traits.NodeForm.SEQUENCE:
        inner = traits.get_parts(pattern)
        if traits.get_form(pattern) is traits.NodeForm.CHOICE and any(map(is_bound, inner)):
            inner = tuple(filter(is_bound, inner))
        return any(
            (is_bound(part) or traits.is_optional(part) or traits.is_repetition(part)) and ends_greedily(part, bound)
            for part in inner
        )
    for part in reversed(traits.get_parts(pattern)):
        if ends_greedily(part, bound):
            return True
        if not traits.is_optional(part) if bound is None else is_bound(part):
            break
    return False


@cache_on_node
def iterate_strategies(pattern: Pattern) -> Iterator[Strategy]:
    """Yields the strategies that parts of a pattern declare themselves."""
    for node in iterate_subpatterns(pattern):
        if traits.is_then(node):
            yield node.how
        elif traits.is_repetition(node) and node.inner is not None:
            yield node.inner


def find_subset_variables(pattern: Pattern, strategy: Strategy) -> tuple[str, ...]:
    """Returns the variables of unbounded loops under skip-till-any-match.

    Every subset of their candidate events may be part of a match.

    >>> a = Atom("A", "a")
    >>> find_subset_variables(Kleene(a, 1, None), Strategy.ANY)
    ('a',)
    >>> find_subset_variables(Kleene(a, 1, None, inner=Strategy.PARTITION), Strategy.ANY)
    ()
    """
    if traits.is_repetition(pattern):
        first = pattern.atom if traits.is_list(pattern) else get_first_atom(pattern)
        if pattern.most is None and (pattern.inner or strategy) is Strategy.ANY and first:
            return (first.variable,)
    return tuple(v for part in traits.get_parts(pattern) for v in find_subset_variables(part, strategy))


@cache_on_node
def iterate_untils(pattern: Pattern) -> Iterator[Not]:
    """Yields the UNTIL negations of loops."""
    loops = filter(traits.is_repetition, iterate_subpatterns(pattern))
    return (loop.until for loop in loops if loop.until is not None)


def iterate_max_gaps(pattern: Pattern) -> Iterator[MaxGap]:
    """Yields the maximum gaps that parts of a pattern declare."""
    for node in iterate_subpatterns(pattern):
        if (traits.is_then(node) or traits.is_repetition(node)) and node.pause is not None:
            yield node.pause


@cache_on_node
def iterate_aligned_variables(pattern: Pattern) -> Iterator[frozenset[str]]:
    """Yields, by repeated group, the variables that each iteration binds exactly once.

    The same index `[i]` of these variables refers to the same iteration.

    >>> from ensue.ir.pattern import Maybe, Seq
    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> sorted(*iterate_aligned_variables(Repeat(Seq((a, b, Maybe(c))), 1, None)))
    ['a', 'b']
    """
    for loop in iterate_loops(pattern):
        yield frozenset(_iterate_once(loop.part))


def _iterate_once(pattern: Pattern) -> Iterator[str]:
    if traits.is_event(pattern):
        yield pattern.variable
    elif traits.get_form(pattern) in (traits.NodeForm.SEQUENCE, traits.NodeForm.TOGETHER):
        for part in traits.get_parts(pattern):
            yield from _iterate_once(part)


@cache_on_node
def iterate_certain_variables(pattern: Pattern) -> Iterator[str]:
    """Yields the variables of events and results that every match binds, a result after its inputs."""
    if traits.is_optional(pattern):
        return
    match traits.get_form(pattern):
        case traits.NodeForm.EVENT | traits.NodeForm.LIST:
            yield from (atom.variable for atom in iterate_positive_atoms(pattern))
        case traits.NodeForm.SEQUENCE | traits.NodeForm.TOGETHER | traits.NodeForm.RESULT | traits.NodeForm.LOOP:
            for part in traits.get_parts(pattern):
                yield from iterate_certain_variables(part)
            if traits.is_operator_call(pattern):
                yield pattern.variable
        case traits.NodeForm.CHOICE | traits.NodeForm.OPTION | traits.NodeForm.ABSENCE:
            return


def get_first_field(pattern: Pattern, variable: str, name: str) -> expression.FieldRef:
    """Returns the field of a variable's only or first event."""
    several = variable in get_kleene_variables(pattern)
    return expression.FieldRef(
        variable, name, expression.EventPosition.NTH if several else expression.EventPosition.ONLY
    )


@cache_on_node
def iterate_operator_calls(pattern: Pattern) -> Iterator[OperatorCall]:
    """Yields the calls of user-defined operators, inputs first."""
    for part in traits.get_parts(pattern):
        yield from iterate_operator_calls(part)
    if traits.is_operator_call(pattern):
        yield pattern


@cache_on_node
def iterate_bound_variables(pattern: Pattern) -> Iterator[str]:
    """Yields the variables of a match, events and results, in the order of the text."""
    if traits.is_event(pattern):
        yield pattern.variable
    elif not traits.is_negation(pattern):
        for part in traits.get_parts(pattern):
            yield from iterate_bound_variables(part)
        if traits.is_operator_call(pattern):
            yield pattern.variable


def map_results_to_events(pattern: Pattern) -> dict[str, str]:
    """Maps results with a single input to their operand event, whose fields they inherit."""
    sources: dict[str, str] = {}
    for call in iterate_operator_calls(pattern):
        if len(call.inputs) == 1:
            operand = call.inputs[0]
            assert traits.is_input(operand)
            if traits.is_event(operand) or operand.variable in sources:
                sources[call.variable] = sources.get(operand.variable, operand.variable)
    return sources


def get_operands(expr: Expr) -> tuple[Expr, ...]:
    """Returns the direct operands of an expression."""
    match expr:
        case expression.Literal() | expression.FieldRef():
            return ()
        case expression.Aggregate(argument=argument):
            return () if argument is None else (argument,)
        case expression.Unary(operand=operand) | expression.IsNull(operand=operand) | expression.Like(operand=operand):
            return (operand,)
        case expression.Binary(left=left, right=right):
            return (left, right)
        case expression.In(operand=operand, options=options):
            return (operand, *options)
        case expression.Between(operand=operand, low=low, high=high):
            return (operand, low, high)
        case expression.FunctionCall(arguments=arguments):
            return arguments


def replace_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """Returns the same expression with other operands."""
    match expr:
        case expression.Literal() | expression.FieldRef():
            return expr
        case expression.Aggregate():
            return replace(expr, argument=new[0] if new else None)
        case expression.Unary() | expression.IsNull() | expression.Like():
            return replace(expr, operand=new[0])
        case expression.Binary():
            return replace(expr, left=new[0], right=new[1])
        case expression.In():
            return replace(expr, operand=new[0], options=new[1:])
        case expression.Between():
            return replace(expr, operand=new[0], low=new[1], high=new[2])
        case expression.FunctionCall():
            return replace(expr, arguments=new)


def rewrite_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Applies `change` to every node, the inner ones first."""
    return change(replace_operands(expr, tuple(rewrite_expr(e, change) for e in get_operands(expr))))


def iterate_nodes(expr: Expr) -> Iterator[Expr]:
    """Yields an expression and all expressions in it."""
    yield expr
    for operand in get_operands(expr):
        yield from iterate_nodes(operand)


def iterate_references(expr: Expr) -> Iterator[expression.FieldRef | expression.Aggregate]:
    """Yields the aggregates, and the fields outside aggregates."""
    if isinstance(expr, expression.FieldRef | expression.Aggregate):
        yield expr
        return
    for operand in get_operands(expr):
        yield from iterate_references(operand)


def get_variables(expr: Expr) -> frozenset[str]:
    """Returns the variables of an expression."""
    return frozenset(r.variable for r in iterate_references(expr))


def get_conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Returns the operands of a conjunction."""
    return tuple(flatten_chain("and", expr))


# --- chains of `and` and `or`, as trees that are shallow enough for recursion

_STRAIGHT = 16  # longer chains are balanced trees


def build_chain(operator: str, operands: Sequence[Expr]) -> Expr:
    """Combines the operands: left-deep if there are few, as a balanced tree if there are many.

    >>> a, b, c = expression.Literal(True), expression.Literal(False), expression.Literal(None)
    >>> build_chain("or", [a, b, c]) == expression.Binary("or", expression.Binary("or", a, b), c)
    True
    """
    if len(operands) > _STRAIGHT:
        half = len(operands) // 2
        left, right = operands[:half], operands[half:]
        return _combine(operator, build_chain(operator, left), build_chain(operator, right))
    joined = operands[0]
    for operand in operands[1:]:
        joined = _combine(operator, joined, operand)
    return joined


def flatten_chain(operator: str, expr: Expr) -> list[Expr]:
    """Returns the operands of a chain, regardless of its shape.

    >>> len(flatten_chain("or", build_chain("or", [expression.Literal(n) for n in range(40)])))
    40
    """
    if isinstance(expr, expression.Binary) and expr.operator == operator:
        return flatten_chain(operator, expr.left) + flatten_chain(operator, expr.right)
    return [expr]


def _combine(operator: str, left: Expr, right: Expr) -> expression.Binary:
    return expression.Binary(operator, left, right, left.span.to(right.span) if left.span else None)
