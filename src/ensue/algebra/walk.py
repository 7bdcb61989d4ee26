"""Going through the nodes of patterns and expressions."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from ensue.algebra.form import (
    Form,
    form,
    is_absence,
    is_entry,
    is_event,
    is_input,
    is_list,
    is_loop,
    is_result,
    optional,
    parts,
    with_parts,
)
from ensue.algebra.pattern import Apply, Atom, Kleene, Leave, Not, Pattern, Pause, Repeat
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import (
    Aggregate,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)


def rewrite(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """Applies `change` to every node, the inner ones first."""
    changed = with_parts(pattern, tuple(rewrite(p, change) for p in parts(pattern)))
    if (is_list(changed) or is_loop(changed)) and changed.until is not None:
        until = rewrite(changed.until, change)
        assert is_absence(until)
        changed = replace(changed, until=until)
    return change(changed)


def atoms(pattern: Pattern) -> Iterator[Atom]:
    """Every atom in the order of the text, the negated ones and those that end loops too."""
    if is_event(pattern):
        yield pattern
        return
    for part in parts(pattern):
        yield from atoms(part)
    if (is_list(pattern) or is_loop(pattern)) and pattern.until is not None:
        yield from atoms(pattern.until)


def positives(pattern: Pattern) -> Iterator[Atom]:
    """The atoms that a match binds, in the order of the text.

    >>> from ensue.algebra.pattern import Seq
    >>> [a.variable for a in positives(Seq((Atom("A", "a"), Not(Atom("B", "b")))))]
    ['a']
    """
    if is_event(pattern):
        yield pattern
    elif not is_absence(pattern):
        for part in parts(pattern):
            yield from positives(part)


def negations(pattern: Pattern) -> Iterator[Not]:
    """Every outermost negation."""
    if is_absence(pattern):
        yield pattern
        return
    for part in parts(pattern):
        yield from negations(part)


def kleenes(pattern: Pattern) -> dict[str, Kleene]:
    """The variables that stand for several events.

    Those of a repeated group, too. The one that begins each time has as many events as there are
    times; of the others, as far as anybody can tell, there is no or one event at least.

    >>> from ensue.algebra.pattern import Maybe, Repeat, Seq
    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> found = kleenes(Repeat(Seq((a, Maybe(b))), 2, None))
    >>> found["a"] == Kleene(a, 2, None), found["b"] == Kleene(b, 0, None)
    (True, True)
    """
    if is_loop(pattern):
        always = () if pattern.least == 0 else {*_once(pattern.part)}
        inside = {
            atom.variable: Kleene(atom, int(atom.variable in always), None)
            for atom in positives(pattern)
        }
        first = opening(pattern)
        if first is not None:
            inside[first.variable] = Kleene(first, pattern.least, pattern.most)
        return inside
    found = {pattern.atom.variable: pattern} if is_list(pattern) else {}
    for part in parts(pattern):
        found |= kleenes(part)
    return found


def opening(loop: Repeat) -> Atom | None:
    """The event that each time of a repeated group begins with, if it is always the same."""
    first = loop.part
    while form(first) is Form.SEQUENCE:
        first = parts(first)[0]
    return first if is_event(first) else None


def leaves(pattern: Pattern) -> Iterator[Leave]:
    """When its loops end, Kleene variables and repeated groups."""
    if is_list(pattern) or is_loop(pattern):
        yield pattern.leave
    for part in parts(pattern):
        yield from leaves(part)


def ends_greedily(pattern: Pattern, bound: Collection[str] | None = None) -> bool:
    """Whether a match may end with a greedy loop, so that only what comes later ends it.

    `bound` are the variables of the match; None: of any match.

    >>> from ensue.algebra.pattern import Maybe, Seq
    >>> a, b = Atom("A", "a"), Kleene(Atom("B", "b"), 1, None, leave=Leave.GREEDY)
    >>> ends_greedily(Seq((a, b))), ends_greedily(Seq((b, Maybe(a)))), ends_greedily(Seq((b, a)))
    (True, True, False)
    """
    if is_absence(pattern):
        return False
    if (is_list(pattern) or is_loop(pattern)) and pattern.leave is Leave.GREEDY:
        return True

    def is_bound(part: Pattern) -> bool:
        return any(bound is None or atom.variable in bound for atom in positives(part))

    if form(pattern) is not Form.SEQUENCE:
        inner = parts(pattern)
        if form(pattern) is Form.CHOICE and any(map(is_bound, inner)):
            inner = tuple(filter(is_bound, inner))
        return any(
            (is_bound(part) or optional(part) or is_list(part) or is_loop(part))
            and ends_greedily(part, bound)
            for part in inner
        )
    for part in reversed(parts(pattern)):
        if ends_greedily(part, bound):
            return True
        if not optional(part) if bound is None else is_bound(part):
            break
    return False


def entries(pattern: Pattern) -> Iterator[Strategy]:
    """How its parts follow what is before them, where they say so themselves."""
    if is_entry(pattern):
        yield pattern.how
    if (is_list(pattern) or is_loop(pattern)) and pattern.inner is not None:
        yield pattern.inner
    for part in parts(pattern):
        yield from entries(part)


def of_subsets(pattern: Pattern, strategy: Strategy) -> tuple[str, ...]:
    """The variables of which every subset of the events may be in a match.

    Those of loops without an end that may pass over any event between one time and the next.

    >>> a = Atom("A", "a")
    >>> of_subsets(Kleene(a, 1, None), Strategy.ANY)
    ('a',)
    >>> of_subsets(Kleene(a, 1, None, inner=Strategy.PARTITION), Strategy.ANY)
    ()
    """
    if is_list(pattern) or is_loop(pattern):
        first = pattern.atom if is_list(pattern) else opening(pattern)
        if pattern.most is None and (pattern.inner or strategy) is Strategy.ANY and first:
            return (first.variable,)
    return tuple(v for part in parts(pattern) for v in of_subsets(part, strategy))


def untils(pattern: Pattern) -> Iterator[Not]:
    """What ends its loops."""
    if (is_list(pattern) or is_loop(pattern)) and pattern.until is not None:
        yield pattern.until
    for part in parts(pattern):
        yield from untils(part)


def pauses(pattern: Pattern) -> Iterator[Pause]:
    """How long it may take from one event to the next, where parts say so themselves."""
    if (is_entry(pattern) or is_list(pattern) or is_loop(pattern)) and pattern.pause is not None:
        yield pattern.pause
    for part in parts(pattern):
        yield from pauses(part)


def loops(pattern: Pattern) -> Iterator[Repeat]:
    """The repeated groups, each before those inside it."""
    if is_loop(pattern):
        yield pattern
    for part in parts(pattern):
        yield from loops(part)


def in_step(pattern: Pattern) -> Iterator[frozenset[str]]:
    """Variables that each time of a repeated group binds once, so that `[i]` is of one time.

    >>> from ensue.algebra.pattern import Maybe, Seq
    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> [sorted(names) for names in in_step(Repeat(Seq((a, b, Maybe(c))), 1, None))]
    [['a', 'b']]
    """
    for loop in loops(pattern):
        yield frozenset(_once(loop.part))


def _once(pattern: Pattern) -> Iterator[str]:
    if is_event(pattern):
        yield pattern.variable
    elif form(pattern) in (Form.SEQUENCE, Form.TOGETHER):
        for part in parts(pattern):
            yield from _once(part)


def results(pattern: Pattern) -> Iterator[Apply]:
    """The operators of users, each behind those that give its inputs."""
    for part in parts(pattern):
        yield from results(part)
    if is_result(pattern):
        yield pattern


def bound_variables(pattern: Pattern) -> Iterator[str]:
    """The variables of a match, events and results, in the order of the text."""
    if is_event(pattern):
        yield pattern.variable
    elif not is_absence(pattern):
        for part in parts(pattern):
            yield from bound_variables(part)
        if is_result(pattern):
            yield pattern.variable


def origins(pattern: Pattern) -> dict[str, str]:
    """Of each result that is made of one event, that event: the result has its fields too."""
    found: dict[str, str] = {}
    for applied in results(pattern):
        if len(applied.inputs) == 1:
            source = applied.inputs[0]
            assert is_input(source)
            if is_event(source) or source.variable in found:
                found[applied.variable] = found.get(source.variable, source.variable)
    return found


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside this one."""
    match expr:
        case Literal() | Field():
            return ()
        case Aggregate(argument=argument):
            return () if argument is None else (argument,)
        case Unary(operand=operand) | IsNull(operand=operand) | Like(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case In(operand=operand, options=options):
            return (operand, *options)
        case Between(operand=operand, low=low, high=high):
            return (operand, low, high)
        case Call(arguments=arguments):
            return arguments


def with_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same expression over other operands."""
    match expr:
        case Literal() | Field():
            return expr
        case Aggregate():
            return replace(expr, argument=new[0] if new else None)
        case Unary() | IsNull() | Like():
            return replace(expr, operand=new[0])
        case Binary():
            return replace(expr, left=new[0], right=new[1])
        case In():
            return replace(expr, operand=new[0], options=new[1:])
        case Between():
            return replace(expr, operand=new[0], low=new[1], high=new[2])
        case Call():
            return replace(expr, arguments=new)


def rewrite_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Applies `change` to every node, the inner ones first."""
    return change(with_operands(expr, tuple(rewrite_expr(e, change) for e in operands(expr))))


def nodes(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it."""
    yield expr
    for operand in operands(expr):
        yield from nodes(operand)


def references(expr: Expr) -> Iterator[Field | Aggregate]:
    """The fields outside aggregates, and the aggregates: what ties an expression to events."""
    if isinstance(expr, Field | Aggregate):
        yield expr
        return
    for operand in operands(expr):
        yield from references(operand)


def variables(expr: Expr) -> frozenset[str]:
    """The variables an expression speaks of."""
    return frozenset(r.variable for r in references(expr))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction.

    >>> [e.value for e in conjuncts(Binary("and", Literal(True), Literal(False)))]
    [True, False]
    """
    if isinstance(expr, Binary) and expr.operator == "and":
        return conjuncts(expr.left) + conjuncts(expr.right)
    return (expr,)
