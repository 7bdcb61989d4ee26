"""The plan of a query as text: the same plan, the same text."""

from collections.abc import Iterable, Iterator

from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Atom, Pattern
from ensue.algebra.policy import Choice, Strategy
from ensue.algebra.query import Query
from ensue.algebra.residual import Where
from ensue.algebra.text import (
    shortened,
    show_after,
    show_columns,
    show_condition,
    show_expr,
    show_name,
    show_pattern,
    show_types,
    show_window,
)
from ensue.algebra.walk import entries
from ensue.plan.choose import structure_name, why_no_stacks
from ensue.plan.evictable import in_turn
from ensue.plan.physical import (
    Absence,
    Answer,
    Apply,
    Automaton,
    Check,
    Compact,
    Edge,
    Join,
    Leaf,
    Node,
    Plan,
    Reference,
    Role,
    Stacks,
    State,
    Stop,
    Tree,
)
from ensue.plan.physical_rules.code_size import shares_code
from ensue.plan.physical_rules.tree import tree_text
from ensue.plan.query_rules.derive_window import derive_window
from ensue.plan.show.explain_decisions import decided
from ensue.plan.show.explain_modules import boxes

MOST_STATES = 64  # a longer list of states is cut

CHOICES = {
    Choice.LATEST: "LATEST: among the matches with the same last event, the one with the newest "
    "events",
    Choice.ONCE: "ONCE: as LATEST, and events up to the chosen one's last are not used again in "
    "its partition",
}

FOLLOWS = {
    Strategy.ANY: "any event may lie before it",
    Strategy.NEXT: "no usable event before it",
    Strategy.PARTITION: "the very next event of the partition",
    Strategy.STRICT: "the very next event of the stream",
}
WORDS = {
    Strategy.ANY: "THEN ANY",
    Strategy.NEXT: "THEN NEXT",
    Strategy.PARTITION: "THEN",
    Strategy.STRICT: "THEN STRICT",
}
OWN = "no event before it that could be it"  # of THEN NEXT
STOPS = {
    Where.BETWEEN: "no {} since the event before",
    Where.UP_TO: "UNTIL {}: none since the event before, nor is it one",
    Where.TAKEN: "UNTIL {}: it is none",
    Where.NEXT: "THEN !{}: the very next event is none",
}
STRATEGIES = {
    Strategy.ANY: "any event may be skipped",
    Strategy.NEXT: "only events that the match cannot use are skipped",
    Strategy.PARTITION: "no event of the partition is skipped",
    Strategy.STRICT: "no event at all is skipped",
}


def explain(plan: Plan) -> str:
    """What is decided before the first event comes, from the query to the last test.

    >>> from ensue.algebra.pattern import Seq
    >>> from ensue.algebra.query import Query
    >>> query = Query(Seq((Atom("A", "a"), Atom("B", "b"))))
    >>> print(explain(Plan(query, Reference("an example"))))
    pattern    SEQ(A a, B b)
    strategy   skip_till_any_match: any event may be skipped
    window     none
    partition  none: the whole stream is one
    <BLANKLINE>
    reference: slower exact path, because of an example
      the events are collected and judged when the stream is over
    """
    sections = [list(_query(plan)), list(_scan(plan)), list(_structure(plan))]
    sections += [list(_finished(plan)), list(decided(plan)), list(_notes(plan))]
    return shortened("\n\n".join("\n".join(lines) for lines in sections if lines))


# --------------------------------------------------------------------------------------- query


def _query(plan: Plan) -> Iterator[str]:
    query = plan.query
    if query.name is not None:
        yield f"event      {show_name(query.name)}"
    yield f"pattern    {show_pattern(query.pattern)}"
    unsaid = ", unless THEN says otherwise" if any(entries(query.pattern)) else ""
    yield f"strategy   {query.strategy.value}: {STRATEGIES[query.strategy]}{unsaid}"
    yield f"window     {_window(plan)}"
    yield f"partition  {_partition(plan)}"
    rules = [note for note in plan.notes if is_rule(note)]
    if rules:
        yield f"rules      {', '.join(rules)}"


def _window(plan: Plan) -> str:
    if plan.query.within is None:
        return "none"
    length = show_window(plan.query.within)
    if f"{derive_window.__name__}: applied" in plan.notes:
        length = f"derived from conditions: {length}"
    if isinstance(plan.structure, Reference):
        return length
    pushed = "pushed into the scan" if plan.prune else "tested on each event, not pushed"
    return f"{length}, {pushed}"


def _partition(plan: Plan) -> str:
    fields = ", ".join(show_name(e.field_name) for e in plan.query.equivalence)
    if not fields:
        return "none: the whole stream is one"
    if plan.whole_stream:
        return f"[{fields}], in one place: every event of the stream counts"
    return f"[{fields}]"


def is_rule(note: str) -> bool:
    """Whether a note tells what a rule did."""
    return note.endswith((": applied", ": off"))


# ---------------------------------------------------------------------------------------- scan


def _scan(plan: Plan) -> Iterator[str]:
    if not plan.roles:
        return
    yield "scan: one bit an event and role, for whole batches"
    width = max(len(role_name(role)) for role in plan.roles)
    for role in plan.roles:
        for number, test in enumerate(role_tests(role) or ["its type only"]):
            name = "" if number else role_name(role)
            yield f"  {name:{width}}  {test}"


def role_tests(role: Role, *, first: bool | None = None) -> list[str]:
    """What the scan tests of every event, of a first event, or of both kinds."""
    if role.inner is not None:
        found = [f"matches of its own plan, by {structure_name(role.inner.structure)}"]
        return found + [show_condition(c) for c in role.inner.query.where]
    tests = [show_condition(c) for c in role.conditions]
    if first is None:
        return tests + [f"{show_condition(c)} (first event only)" for c in role.first]
    return tests + [show_condition(c) for c in role.first if first]


def role_name(role: Role) -> str:
    """A role as the pattern writes it: `Stock+ a[]`, `!Counter y`."""
    if role.inner is not None:
        return f"!{role.variable}"
    shown = show_pattern(role.kleene or Atom(role.type, role.variable))
    return f"!{shown}" if role.negative else shown


# ----------------------------------------------------------------------------------- structure


def _structure(plan: Plan) -> Iterator[str]:
    match plan.structure:
        case Automaton():
            yield from _automaton(plan, plan.structure)
        case Stacks():
            yield from _stacks(plan, plan.structure)
        case Tree(root=root):
            yield f"join tree: {tree_text(root)}"
            yield from _node(plan, plan.structure, root, "  ")
        case Compact():
            yield from compact_lines(plan, plan.structure)
        case Reference(reason=reason):
            yield f"reference: slower exact path, because of {reason}"
            yield "  the events are collected and judged when the stream is over"
            yield from (f"  {show_condition(c)}" for c in plan.query.where)


def _automaton(plan: Plan, automaton: Automaton) -> Iterator[str]:
    yield f"runs along an automaton: {why_runs(plan)}"
    if shares_code(automaton, plan.query.strategy):
        yield (
            f"  its {len(automaton.edges)} edges share the code of those that are alike: a kernel "
            "with code for each would take long to compile"
        )
    for state in automaton.states[:MOST_STATES]:
        accepting = " (match)" if state.accepting else ""
        yield f"  state {state.number}{accepting}: {_holds(plan, state)}"
        for edge in automaton.out_of(state.number):
            target = "stays" if edge.target == edge.source else f"to state {edge.target}"
            taken = f"{show_types(plan.role(edge.variable).type)} {_named(plan, edge.variable)}"
            yield f"    {' '.join([*word_of(plan, edge), taken, target])}"
            yield from (f"      {test}" for test in (*follows(plan, edge), *tests_on(plan, edge)))
            yield from (f"      {absence_text(plan, a)} ({a.way})" for a in edge.absences)
        yield from (f"    at the end: {test}" for test in tests_at_the_end(plan, state))
        yield from (
            f"    {show_types(plan.role(v).type)} {show_name(v)} ends the runs here, "
            "pushed (PNCEP)"
            for v in state.barred
        )
        yield from (f"    at the end: {absence_text(plan, a)} ({a.way})" for a in state.absences)
        for absence in state.pending:
            yield f"    decided when the window closes: {absence_text(plan, absence)}"
    more = len(automaton.states) - MOST_STATES
    if more > 0:
        yield f"  and {more} more states"


def why_runs(plan: Plan) -> str:
    """Why the plan follows runs."""
    off = "instance stacks are off" if "stacks: off" in plan.notes else "chosen before stacks"
    return why_no_stacks(plan.query) or off


def _holds(plan: Plan, state: State) -> str:
    if not state.bound:
        return "start"
    names = [
        _named(plan, role.variable) + (" open" if role.variable in state.open else "")
        for role in plan.roles
        if role.variable in state.bound
    ]
    return ", ".join(names)


def tests_on(plan: Plan, edge: Edge) -> list[str]:
    """What an event must pass to take a run along an edge, beside the tests of the scan."""
    kleene = plan.role(edge.variable).kleene
    tests = []
    if kleene is not None and kleene.most is not None and not edge.first:
        tests.append(f"at most {kleene.most} events in {_named(plan, edge.variable)}")
    tests += [_least(plan, variable) for variable in edge.leaves]
    for leave, variables in (("greedy", edge.longer), ("reluctant", edge.sooner)):
        if variables:
            others = " or ".join(_named(plan, variable) for variable in variables)
            tests.append(f"{leave}: neither it nor one passed over can be {others}")
    if edge.pause is not None:
        tests.append(f"at most {show_window(edge.pause)} after the event before")
    tests += [_stop_text(plan, stop) for stop in edge.stops]
    return tests + [check_text(check) for check in edge.checks]


def word_of(plan: Plan, edge: Edge) -> list[str]:
    """The word for how an event follows the one before, where the pattern has such words."""
    said = edge.own or edge.how is not Strategy.NEXT
    if edge.how is None or not said or not any(entries(plan.query.pattern)):
        return []
    return [WORDS[edge.how]]


def follows(plan: Plan, edge: Edge) -> list[str]:
    """What may lie before an event, where it is not as the query's strategy says."""
    if edge.own:
        return [OWN]
    return [] if edge.how in (None, plan.query.strategy) else [FOLLOWS[edge.how]]


def _stop_text(plan: Plan, stop: Stop) -> str:
    named = f"{show_types(plan.role(stop.variable).type)} {_named(plan, stop.variable)}"
    conditions = " and ".join(map(show_condition, stop.conditions))
    return STOPS[stop.where].format(f"{named} with {conditions}" if conditions else named)


def tests_at_the_end(plan: Plan, state: State) -> list[str]:
    """What is decided only when a match ends in a state, negations apart."""
    tests = [
        _least(plan, role.variable)
        for role in plan.roles
        if state.accepting and role.variable in state.open
        if role.kleene is not None and role.kleene.least > 1
    ]
    if state.lasting:
        tests.append(f"{_listed(plan, state.lasting)} cannot go on (greedy)")
    return tests + [check_text(check) for check in state.checks]


def _least(plan: Plan, variable: str) -> str:
    kleene = plan.role(variable).kleene
    assert kleene is not None
    return f"at least {kleene.least} events in {_named(plan, variable)}"


def check_text(check: Check) -> str:
    """A condition, and for which events it is tried."""
    text = show_condition(check.condition)
    if check.each and check.moving is not None:
        return f"{text} (for each event in {show_name(check.moving)}[])"
    return text


def absence_text(plan: Plan, absence: Absence) -> str:
    """A negation in words."""
    role = plan.role(absence.variable)
    text = f"no {show_types(role.type)} {show_name(role.variable)}"
    if role.inner is not None:
        text = f"no {role.variable}"
    if absence.whole:
        return text + _between(plan, absence)
    if absence.after:
        text += f" after {_listed(plan, absence.after)}"
    if absence.before:
        text += f"{' and' if absence.after else ''} before {_listed(plan, absence.before)}"
    if not absence.after:
        text += " inside the window" if plan.query.within is not None else ""
    elif not absence.before:
        text += " inside the window"
    if absence.conditions:
        text += f" with {' and '.join(map(show_condition, absence.conditions))}"
    return text


def _between(plan: Plan, absence: Absence) -> str:
    """Where a negation in AND stands."""
    text = f" between the first and the last of {_listed(plan, absence.after)}"
    if absence.conditions:
        text += f" with {' and '.join(map(show_condition, absence.conditions))}"
    return text


def _listed(plan: Plan, variables: Iterable[str]) -> str:
    return ", ".join(_named(plan, variable) for variable in variables)


def _named(plan: Plan, variable: str) -> str:
    kleene = plan.role(variable).kleene is not None
    return show_name(variable) + ("[]" if kleene else "")


def compact_lines(plan: Plan, compact: Compact) -> Iterator[str]:
    """The states of a compact structure, and what takes partial matches from one to the next."""
    yield f"compact: {held_together(compact)}"
    for state in range(compact.states):
        accepting = " (match)" if state in compact.accepting else ""
        steps = compact.out_of(state)
        if not steps and accepting:
            continue
        yield f"  state {state}{accepting}" + (": start" if state == 0 else "")
        for step in steps:
            target = "stays" if step.target == state else f"to state {step.target}"
            done = " (match)" if step.target in compact.accepting else ""
            taken = f"{show_types(plan.role(step.variable).type)} {_named(plan, step.variable)}"
            yield f"    {taken} {target}{done}"
        for variable, ended in compact.resets:
            if ended == state:
                yield f"    {role_name(plan.role(variable))} ends what waits here"


def held_together(compact: Compact) -> str:
    """What a compact structure gives, and what that costs."""
    how = {
        Answer.MATCHES: "listed from the events in the window when one completes them",
        Answer.COUNT: "counted by numbers of ways, never listed",
        Answer.EXISTS: "known by the newest beginning that got so far, never listed",
    }
    return f"matches are {how[compact.answer]}"


def _stacks(plan: Plan, stacks: Stacks) -> Iterator[str]:
    yield "instance stacks: single events in sequence, in any combination"
    order = [show_name(variable) for variable in stacks.variables]
    yield f"  RIP: {' <- '.join(order)}, each to the newest instance before it"
    last = len(order) - 1
    for number in reversed(range(len(order))):
        role = plan.role(stacks.variables[number])
        how = "each builds matches backwards" if number == last else "kept on a stack"
        yield f"  {role_name(role)}: {how}"
        yield from (f"    {check_text(check)}" for check in stacks.checks[number])
        yield from (f"    {absence_text(plan, a)} ({a.way})" for a in stacks.absences[number])
        for absence in stacks.pushed[number] if stacks.pushed else ():
            drops = f"pushed (PNCEP): each empties the stack of {order[number]} and is dropped"
            yield f"    {absence_text(plan, absence)} ({drops})"


def _node(plan: Plan, tree: Tree, node: Node, indent: str) -> Iterator[str]:
    yield from (f"{indent}{box}" for box in boxes(tree, node))
    if isinstance(node, Leaf):
        yield f"{indent}{role_name(plan.role(node.variable))}"
        return
    yield f"{indent}{node.operator.name}"
    yield from (f"{indent}  . {test}" for test in node_tests(plan, node))
    for part in (node.left, node.right) if isinstance(node, Join) else (node.part,):
        yield from _node(plan, tree, part, indent + "  ")


def node_tests(plan: Plan, node: Join | Apply) -> list[str]:
    """What is tried at a node, in this order, beside the operator's own Q."""
    tests = [check_text(check) for check in node.checks]
    return tests + [absence_text(plan, a) for a in node.absences]


# ---------------------------------------------------------------------------- finished matches


def lapse_texts(pattern: Pattern) -> list[str]:
    """The absences that have an interval of their own, and when each is decided."""
    return [
        f"{show_pattern(negation)}: decided when time has passed {show_expr(interval.until)}"
        for negation, interval in lapses(pattern)
    ]


def _finished(plan: Plan) -> Iterator[str]:
    query = plan.query
    lines = [f"  {show_condition(c)}" for c in plan.residual]
    lines += [f"  {text}" for text in lapse_texts(query.pattern)]
    if query.after is not None:
        lines.append(f"  AFTER MATCH SKIP {show_after(query.after)}{_turn(query)}")
    if query.having is not None:
        lines.append(f"  HAVING {show_expr(query.having)}")
    if query.returns or query.exists:
        lines.append(f"  RETURN {', '.join(show_columns(query))}")
    if query.limit is not None:
        lines.append(f"  LIMIT {query.limit.count} a last event")
    if query.choose is not None:
        lines.append(f"  CHOOSE {CHOICES[query.choose.choice]}")
    if lines:
        yield "finished matches"
        yield from lines


def _turn(query: Query) -> str:
    """Until when AFTER MATCH lets a match wait."""
    assert query.after is not None
    if query.after.by_start:
        return ": held back while a partial match that began earlier is alive"
    return ": held back while one that ends earlier is undecided" if in_turn(query) else ""


def _notes(plan: Plan) -> Iterator[str]:
    yield from (f"note: {note}" for note in plan.notes if not is_rule(note))
