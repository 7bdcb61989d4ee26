"""The plan of a query as text: the same plan has the same text."""

from collections.abc import Iterable, Iterator

from ensue.analyzer.derivatives import GuardScope
from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.ir.expression import Expr
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, MatchChoice, Strategy
from ensue.ir.traversal import iterate_strategies
from ensue.options import EVICTION_POLICIES, Limits, format_size
from ensue.planner.capabilities import HIERARCHY_REASON, can_wait, skips_in_order, why_not_evicted
from ensue.planner.cost_model import Cardinalities
from ensue.planner.join_operators import PartOrder
from ensue.planner.join_tree import format_tree, get_leaf_names
from ensue.planner.nfa import should_share_code
from ensue.planner.physical_plan import (
    CompactOutput,
    CompactPlan,
    ConditionCheck,
    InstanceStacks,
    JoinNode,
    JoinTree,
    LeafNode,
    NegationCheck,
    Nfa,
    NfaEdge,
    NfaState,
    PhysicalPlan,
    ReferencePlan,
    Role,
    TreeNode,
)
from ensue.planner.planner import get_structure_name, why_no_stacks
from ensue.planner.rewrites import derive_window
from ensue.planner.statistics import format_number
from ensue.printing.expression_printer import format_condition, format_expr, format_name, truncate_wkt
from ensue.printing.pattern_printer import (
    format_after_match,
    format_columns,
    format_pattern,
    format_types,
    format_window,
)

MAX_STATES = 64  # a longer list of states is cut

_CHOICES = {
    MatchChoice.LATEST: "LATEST: among the matches with the same last event, the one with the newest events",
    MatchChoice.ONCE: "ONCE: as LATEST, and events up to the chosen one's last are not used again in its partition",
}
_CONTIGUITY = {
    Strategy.ANY: "any event may lie before it",
    Strategy.NEXT: "no usable event before it",
    Strategy.PARTITION: "the very next event of the partition",
    Strategy.STRICT: "the very next event of the stream",
}
_KEYWORDS = {
    Strategy.ANY: "THEN ANY",
    Strategy.NEXT: "THEN NEXT",
    Strategy.PARTITION: "THEN",
    Strategy.STRICT: "THEN STRICT",
}
_OWN = "no event before it that could be it"  # of THEN NEXT
_STOPS = {
    GuardScope.BETWEEN: "no {} since the event before",
    GuardScope.UP_TO: "UNTIL {}: none since the event before, nor is it one",
    GuardScope.TAKEN: "UNTIL {}: it is none",
    GuardScope.NEXT: "THEN !{}: the very next event is none",
}
_STRATEGIES = {
    Strategy.ANY: "any event may be skipped",
    Strategy.NEXT: "only events that the match cannot use are skipped",
    Strategy.PARTITION: "no event of the partition is skipped",
    Strategy.STRICT: "no event at all is skipped",
}
COMPACT_OUTPUTS = {
    CompactOutput.MATCHES: "matches are listed from the events in the window when one completes them",
    CompactOutput.COUNT: "matches are counted by numbers of ways, never listed",
    CompactOutput.EXISTS: "matches are known by the newest beginning that got so far, never listed",
}


def explain_plan(plan: PhysicalPlan) -> str:
    """Explains the decisions before the first event, from the query to the last test."""
    parts = (
        _explain_query, _explain_scan, _explain_structure, _explain_output, _explain_decisions,
    )  # fmt: skip
    sections = [list(part(plan)) for part in parts]
    sections.append([f"note: {note}" for note in list_notes(plan)])
    return truncate_wkt("\n\n".join("\n".join(lines) for lines in sections if lines))


# --------------------------------------------------------------------------------------- query


def _explain_query(plan: PhysicalPlan) -> Iterator[str]:
    query = plan.query
    if query.name is not None:
        yield f"event      {format_name(query.name)}"
    yield f"pattern    {format_pattern(query.pattern)}"
    unless = ", unless THEN says otherwise" if any(iterate_strategies(query.pattern)) else ""
    yield f"strategy   {query.strategy.value}: {_STRATEGIES[query.strategy]}{unless}"
    yield f"window     {_describe_window(plan)}"
    yield f"partition  {_describe_partition(plan)}"
    rules = [note for note in plan.notes if _is_rule(note)]
    if rules:
        yield f"rules      {', '.join(rules)}"


def _describe_window(plan: PhysicalPlan) -> str:
    if plan.query.within is None:
        return "none"
    length = format_window(plan.query.within)
    if f"{derive_window.__name__}: applied" in plan.notes:
        length = f"derived from conditions: {length}"
    if isinstance(plan.structure, ReferencePlan):
        return length
    pushed = "pushed into the scan" if plan.prune else "tested on each event, not pushed"
    return f"{length}, {pushed}"


def _describe_partition(plan: PhysicalPlan) -> str:
    fields = list_keys(plan.query)
    if not fields:
        return "none: the whole stream is one"
    if plan.whole_stream:
        return f"[{fields}], in one place: every event of the stream counts"
    return f"[{fields}]"


def list_keys(query: Query) -> str:
    """Lists the fields that partition a query."""
    return ", ".join(format_name(e.field_name) for e in query.equivalence)


def list_notes(plan: PhysicalPlan) -> list[str]:
    """Lists the notes of a plan that do not report a rule."""
    return [note for note in plan.notes if not _is_rule(note)]


def _is_rule(note: str) -> bool:
    return note.endswith((": applied", ": off"))


# ---------------------------------------------------------------------------------------- scan


def _explain_scan(plan: PhysicalPlan) -> Iterator[str]:
    if not plan.roles:
        return
    yield "scan: one bit per event and variable, for whole batches"
    width = max(len(format_role(role)) for role in plan.roles)
    for role in plan.roles:
        for number, test in enumerate(list_scan_tests(role) or ["its type only"]):
            name = "" if number else format_role(role)
            yield f"  {name:{width}}  {test}"


def list_scan_tests(role: Role, *, first: bool | None = None) -> list[str]:
    """Lists the tests of the scan for every event, for a first event, or for both."""
    if role.inner is not None:
        own_plan = f"matches of its own plan, by {get_structure_name(role.inner.structure)}"
        return [own_plan, *map(format_condition, role.inner.query.where)]
    tests = [format_condition(c) for c in role.conditions]
    if first is None:
        return tests + [f"{format_condition(c)} (first event only)" for c in role.first]
    return tests + [format_condition(c) for c in role.first if first]


def format_role(role: Role) -> str:
    """Formats a role as in the pattern: `Stock+ a[]`, `!Counter y`."""
    if role.inner is not None:
        return f"!{role.variable}"
    shown = format_pattern(role.kleene or Atom(role.type, role.variable))
    return f"!{shown}" if role.negative else shown


def _format_event(plan: PhysicalPlan, variable: str) -> str:
    return f"{format_types(plan.role(variable).type)} {_format_variable(plan, variable)}"


def _format_variable(plan: PhysicalPlan, variable: str) -> str:
    return format_name(variable) + ("[]" if plan.role(variable).kleene is not None else "")


def _list_variables(plan: PhysicalPlan, variables: Iterable[str], separator: str = ", ") -> str:
    return separator.join(_format_variable(plan, variable) for variable in variables)


# ----------------------------------------------------------------------------------- structure


def _explain_structure(plan: PhysicalPlan) -> Iterator[str]:
    match plan.structure:
        case Nfa():
            yield from _explain_automaton(plan, plan.structure)
        case InstanceStacks():
            yield from _explain_stacks(plan, plan.structure)
        case JoinTree(root=root):
            yield f"join tree: {format_tree(root)}"
            yield from _explain_node(plan, plan.structure, root, "  ")
        case CompactPlan():
            yield from _explain_compact(plan, plan.structure)
        case ReferencePlan(reason=reason):
            yield f"reference: slower exact path, because of {reason}"
            yield "  the events are collected and judged when the stream is over"
            yield from (f"  {format_condition(c)}" for c in plan.query.where)


def _explain_automaton(plan: PhysicalPlan, automaton: Nfa) -> Iterator[str]:
    off = "instance stacks are off" if "stacks: off" in plan.notes else "chosen before stacks"
    yield f"runs along an automaton: {why_no_stacks(plan.query) or off}"
    if should_share_code(automaton, plan.query.strategy):
        yield (
            f"  its {len(automaton.edges)} edges share the code of those that are alike: a kernel "
            "with code for each would take long to compile"
        )
    for state in automaton.states[:MAX_STATES]:
        accepting = " (match)" if state.accepting else ""
        yield f"  state {state.number}{accepting}: {_describe_state(plan, state)}"
        for edge in automaton.list_outgoing(state.number):
            target = "stays" if edge.target == edge.source else f"to state {edge.target}"
            event = _format_event(plan, edge.variable)
            yield f"    {' '.join([*list_keywords(plan, edge), event, target])}"
            tests = (*list_contiguity(plan, edge), *list_edge_tests(plan, edge))
            yield from (f"      {test}" for test in tests)
            yield from (f"      {describe_absence(plan, a)} ({a.way})" for a in edge.absences)
        yield from (f"    at the end: {test}" for test in list_final_tests(plan, state))
        yield from (
            f"    {format_types(plan.role(v).type)} {format_name(v)} ends the runs here, pushed (PNCEP)"
            for v in state.barred
        )
        for absence in state.absences:
            yield f"    at the end: {describe_absence(plan, absence)} ({absence.way})"
        for absence in state.pending:
            yield f"    decided when the window closes: {describe_absence(plan, absence)}"
    more = len(automaton.states) - MAX_STATES
    if more > 0:
        yield f"  and {more} more states"


def _describe_state(plan: PhysicalPlan, state: NfaState) -> str:
    names = (
        _format_variable(plan, role.variable) + (" open" if role.variable in state.open else "")
        for role in plan.roles
        if role.variable in state.bound
    )
    return ", ".join(names) if state.bound else "start"


def list_edge_tests(plan: PhysicalPlan, edge: NfaEdge) -> list[str]:
    """Lists the tests of an edge, except those of the scan."""
    kleene = plan.role(edge.variable).kleene
    tests = []
    if kleene is not None and kleene.most is not None and not edge.first:
        tests.append(f"at most {kleene.most} events in {_format_variable(plan, edge.variable)}")
    tests += [_describe_least(plan, variable) for variable in edge.leaves]
    for policy, variables in (("greedy", edge.longer), ("reluctant", edge.sooner)):
        if variables:
            others = _list_variables(plan, variables, " or ")
            tests.append(f"{policy}: neither it nor one passed over can be {others}")
    if edge.pause is not None:
        tests.append(f"at most {format_window(edge.pause)} after the event before")
    tests += [
        _STOPS[stop.where].format(_format_event(plan, stop.variable) + _with(stop.conditions)) for stop in edge.stops
    ]
    return tests + [format_check(check) for check in edge.checks]


def list_keywords(plan: PhysicalPlan, edge: NfaEdge) -> list[str]:
    """Lists the keyword for how an event follows the one before, if the pattern has any."""
    explicit = edge.own or edge.how is not Strategy.NEXT
    if edge.how is None or not explicit or not any(iterate_strategies(plan.query.pattern)):
        return []
    return [_KEYWORDS[edge.how]]


def list_contiguity(plan: PhysicalPlan, edge: NfaEdge) -> list[str]:
    """Lists what may lie before an event, where it differs from the query's strategy."""
    if edge.own:
        return [_OWN]
    return [] if edge.how in (None, plan.query.strategy) else [_CONTIGUITY[edge.how]]


def _with(conditions: Iterable[Expr]) -> str:
    shown = " and ".join(map(format_condition, conditions))
    return f" with {shown}" if shown else ""


def list_final_tests(plan: PhysicalPlan, state: NfaState) -> list[str]:
    """Lists the tests when a match ends in a state, except negations."""
    tests = [
        _describe_least(plan, role.variable)
        for role in plan.roles
        if state.accepting and role.variable in state.open
        if role.kleene is not None and role.kleene.least > 1
    ]
    if state.lasting:
        tests.append(f"{_list_variables(plan, state.lasting)} cannot go on (greedy)")
    return tests + [format_check(check) for check in state.checks]


def _describe_least(plan: PhysicalPlan, variable: str) -> str:
    kleene = plan.role(variable).kleene
    assert kleene is not None
    return f"at least {kleene.least} events in {_format_variable(plan, variable)}"


def format_check(check: ConditionCheck) -> str:
    """Formats a condition, with the events for which it is tested."""
    text = format_condition(check.condition)
    if check.each and check.moving is not None:
        return f"{text} (for each event in {format_name(check.moving)}[])"
    return text


def describe_absence(plan: PhysicalPlan, absence: NegationCheck) -> str:
    """Describes a negation."""
    role = plan.role(absence.variable)
    event = f"{format_types(role.type)} {format_name(role.variable)}"
    text = f"no {event if role.inner is None else role.variable}"
    after, before = (_list_variables(plan, names) for names in (absence.after, absence.before))
    if absence.whole:
        text += f" between the first and the last of {after}"
    else:
        sides = [f" after {after}"] if after else []
        sides += [f" before {before}"] if before else []
        text += " and".join(sides)
        if not before if after else plan.query.within is not None:
            text += " inside the window"
    return text + _with(absence.conditions)


def _explain_compact(plan: PhysicalPlan, compact: CompactPlan) -> Iterator[str]:
    yield f"compact: {COMPACT_OUTPUTS[compact.answer]}"
    for state in range(compact.states):
        accepting = " (match)" if state in compact.accepting else ""
        steps = compact.list_outgoing(state)
        if not steps and accepting:
            continue
        yield f"  state {state}{accepting}" + (": start" if state == 0 else "")
        for step in steps:
            target = "stays" if step.target == state else f"to state {step.target}"
            match = " (match)" if step.target in compact.accepting else ""
            yield f"    {_format_event(plan, step.variable)} {target}{match}"
        for variable, ended in compact.resets:
            if ended == state:
                yield f"    {format_role(plan.role(variable))} ends what waits here"


def _explain_stacks(plan: PhysicalPlan, stacks: InstanceStacks) -> Iterator[str]:
    yield "instance stacks: single events in sequence, in any combination"
    order = [format_name(variable) for variable in stacks.variables]
    yield f"  RIP: {' <- '.join(order)}, each to the newest instance before it"
    last = len(order) - 1
    for number in reversed(range(len(order))):
        use = "each builds matches backwards" if number == last else "kept on a stack"
        yield f"  {format_role(plan.role(stacks.variables[number]))}: {use}"
        yield from (f"    {format_check(check)}" for check in stacks.checks[number])
        yield from (f"    {describe_absence(plan, a)} ({a.way})" for a in stacks.absences[number])
        for absence in stacks.pushed[number] if stacks.pushed else ():
            drops = f"pushed (PNCEP): each empties the stack of {order[number]} and is dropped"
            yield f"    {describe_absence(plan, absence)} ({drops})"


# ---------------------------------------------------------------------------------- join trees


def _explain_node(plan: PhysicalPlan, tree: JoinTree, node: TreeNode, indent: str) -> Iterator[str]:
    yield from (f"{indent}{box}" for box in _explain_modules(tree, node))
    if isinstance(node, LeafNode):
        yield f"{indent}{format_role(plan.role(node.variable))}"
        return
    yield f"{indent}{node.operator.name}"
    yield from (f"{indent}  . {format_check(check)}" for check in node.checks)
    yield from (f"{indent}  . {describe_absence(plan, a)}" for a in node.absences)
    for child in node.children:
        yield from _explain_node(plan, tree, child, indent + "  ")


def _explain_modules(tree: JoinTree, node: TreeNode) -> Iterator[str]:
    """Yields the headers of the hierarchy's modules that a node is the root of, outer first."""
    names, everything = set(get_leaf_names(node)), set(get_leaf_names(tree.root))
    for module in sorted(tree.modules, key=lambda m: m.level):
        if set(module.variables) & everything == names:
            facts = [f"box {format_name(module.box)}: {format_name(module.name)}"]
            facts.append(f"level {module.level}")
            if module.within is not None:
                facts.append(f"within {format_window(module.within)}")
            precursor = _find_precursor(tree.root, node)
            if tree.parked and precursor is not None:
                facts.append(f"begun only while {format_tree(precursor)} waits")
            yield ", ".join(facts)


def _find_precursor(here: TreeNode, node: TreeNode) -> TreeNode | None:
    """Finds the left side of the nearest sequence around a node."""
    if isinstance(here, JoinNode):
        left, right = here.children
        if node is not right and (inner := _find_precursor(right, node)) is not None:
            return inner
        if here.operator.order is PartOrder.BEFORE and _contains(right, node):
            return left
    return _find_precursor(here.children[0], node) if here.children else None


def _contains(here: TreeNode, node: TreeNode) -> bool:
    return here is node or any(_contains(child, node) for child in here.children)


# -------------------------------------------------------------------------------------- output


def list_interval_negations(pattern: Pattern) -> list[str]:
    """Lists the negations with an interval, and when each is decided."""
    return [
        f"{format_pattern(negation)}: decided when time has passed {format_expr(interval.until)}"
        for negation, interval in iterate_interval_negations(pattern)
    ]


def _explain_output(plan: PhysicalPlan) -> Iterator[str]:
    query = plan.query
    lines = [format_condition(c) for c in plan.residual]
    lines += list_interval_negations(query.pattern)
    if query.after is not None:
        lines.append(f"AFTER MATCH SKIP {format_after_match(query.after)}{_describe_delay(query)}")
    if query.having is not None:
        lines.append(f"HAVING {format_expr(query.having)}")
    if query.returns or query.exists:
        lines.append(f"RETURN {', '.join(format_columns(query))}")
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit.count} a last event")
    if query.choose is not None:
        lines.append(f"CHOOSE {_CHOICES[query.choose.choice]}")
    if lines:
        yield "finished matches"
        yield from (f"  {line}" for line in lines)


def _describe_delay(query: Query) -> str:
    """Describes how long AFTER MATCH delays a match."""
    assert query.after is not None
    if query.after.by_start:
        return ": held back while a partial match that began earlier is alive"
    return ": held back while one that ends earlier is undecided" if skips_in_order(query) else ""


# ------------------------------------------------------------------------- decisions and memory


def _explain_decisions(plan: PhysicalPlan) -> Iterator[str]:
    """Yields the decisions of a plan with their estimates."""
    if not plan.decisions:
        return
    statistics = plan.statistics
    source = "assumed statistics" if statistics.assumed else f"statistics: {statistics.source}"
    yield f"decisions, by {source}"
    yield f"  {_describe_load(plan)}"
    for decision in plan.decisions:
        why = f", {decision.why}" if decision.why else ""
        yield f"  {decision.name}: {decision.chosen}{why}"
        width = max((len(c.name) for c in decision.candidates), default=0)
        for candidate in decision.candidates:
            estimate = candidate.estimate
            yield (
                f"    {candidate.name:{width}}  cost {format_number(estimate.cost)} per event, "
                f"{format_number(estimate.partial)} partial matches, "
                f"{format_number(estimate.matches)} matches per event"
            )


def _describe_load(plan: PhysicalPlan) -> str:
    load = Cardinalities.estimate(plan.query, plan.roles, plan.statistics)
    where = "in a window" if plan.query.within is not None else "at a time"
    if isinstance(plan.query.within, ByEvents):
        where = "in a window, by the query"
    if plan.query.equivalence:
        where += f" of a partition, of {format_number(load.partitions)}"
    each = (f"{format_name(r.variable)} {format_number(load.inside(r.variable))}" for r in plan.roles)
    return f"{format_number(load.window)} events {where}: {', '.join(each)}"


def explain_memory(plan: PhysicalPlan | None, limits: Limits) -> str:
    """Explains what happens beyond the memory limit; the plan of a hierarchy is None."""
    room = f"{limits.memory_share:.0%} of the machine's"
    if limits.memory_size is not None:
        room = format_size(limits.memory_size)
    why = HIERARCHY_REASON if plan is None else why_not_evicted(plan)
    if why is not None or plan is None:
        return f"memory     {room} at most, then a stream stops: {why}"
    query = plan.query
    assert query.within is not None
    late = query.unfinished or can_wait(query.pattern)
    return (
        f"memory     {room}: keys beyond it go to disk, by {limits.evict or EVICTION_POLICIES[0]}\n"
        f"  stored for a key [{list_keys(query)}] are its events of the last "
        f"{format_window(query.within)}\n"
        "  they are matched again before an event of the key" + (", and when one of its windows ends" if late else "")
    )
