"""Describes the plan of a pattern query as a tree of plan nodes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ensue.analyzer.derivatives import GuardScope
from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.ir.expression import Expr
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, MatchChoice, Strategy
from ensue.ir.traits import NodeForm, get_form, get_parts, is_event, is_negation
from ensue.ir.traversal import iterate_strategies
from ensue.options import EVICTION_POLICIES, Limits, format_size
from ensue.planner.capabilities import HIERARCHY_REASON, can_wait, skips_in_order, why_not_evicted
from ensue.planner.compact import to_automaton
from ensue.planner.cost_model import Cardinalities
from ensue.planner.explain.plan_node import PlanNode, Shape
from ensue.planner.join_operators import PartOrder
from ensue.planner.join_tree import format_tree, get_leaf_names, get_operator_symbol
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
from ensue.planner.statistics import PlanEstimate, format_number
from ensue.printing.expression_printer import format_condition, format_expr, format_name
from ensue.printing.pattern_printer import (
    format_after_match,
    format_columns,
    format_head,
    format_pattern,
    format_separator,
    format_types,
    format_window,
)
from ensue.svg import cut_text

MAX_STATES = 64  # a longer list of states is cut
MAX_DRAWN = 32  # a larger automaton is drawn as its pattern

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


def describe_plan(plan: PhysicalPlan) -> PlanNode:
    """Describes the decisions before the first event, from the query to the last test."""
    notes = [PlanNode(lines=tuple(f"note: {note}" for note in list_notes(plan)), shape=Shape.REMARKS)]
    sections = (
        _describe_query(plan), *_describe_scan(plan), *_describe_structure(plan), *_describe_output(plan),
        *_describe_decisions(plan), *(notes if notes[0].lines else ()),
    )  # fmt: skip
    return PlanNode(children=sections, shape=Shape.PLAN)


# --------------------------------------------------------------------------------------- query


def _describe_query(plan: PhysicalPlan) -> PlanNode:
    query, pattern = plan.query, format_pattern(plan.query.pattern)
    unless = ", unless THEN says otherwise" if any(iterate_strategies(query.pattern)) else ""
    properties = [] if query.name is None else [("event", format_name(query.name))]
    properties += [
        ("pattern", pattern),
        ("strategy", f"{query.strategy.value}: {_STRATEGIES[query.strategy]}{unless}"),
        ("window", _describe_window(plan)),
        ("partition", _describe_partition(plan)),
    ]
    rules = [note for note in plan.notes if _is_rule(note)]
    properties += [("rules", ", ".join(rules))] if rules else []
    clauses = [query.strategy.value]
    clauses += [f"[{list_keys(query)}]"] if query.equivalence else []
    clauses += [] if query.within is None else [f"within {format_window(query.within)}"]
    return PlanNode(properties=tuple(properties), shape=Shape.HEADER, label=pattern, details=tuple(clauses))


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


def _describe_scan(plan: PhysicalPlan) -> Iterator[PlanNode]:
    if plan.roles:
        tests = [
            ("" if number else format_role(role), test)
            for role in plan.roles
            for number, test in enumerate(list_scan_tests(role) or ["its type only"])
        ]
        yield PlanNode("scan: one bit per event and variable, for whole batches", tuple(tests))


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


def label_event(role: Role) -> str:
    """Returns the type and the variable of an event, cut if they are long.

    >>> label_event(Role("a", "a_long_name_of_a_type_of_events"))
    'a_long_name_of_a_… a'
    """
    if role.inner is not None:
        return cut_text(role.variable, 32)
    brackets = "" if role.kleene is None else "[]"
    variable = cut_text(format_name(role.variable), 14)
    return f"{cut_text(format_types(role.type), 18)} {variable}{brackets}"


def _format_event(plan: PhysicalPlan, variable: str) -> str:
    return f"{format_types(plan.role(variable).type)} {_format_variable(plan, variable)}"


def _format_variable(plan: PhysicalPlan, variable: str) -> str:
    return format_name(variable) + ("[]" if plan.role(variable).kleene is not None else "")


def _list_variables(plan: PhysicalPlan, variables: Iterable[str], separator: str = ", ") -> str:
    return separator.join(_format_variable(plan, variable) for variable in variables)


# ----------------------------------------------------------------------------------- structure


def _describe_structure(plan: PhysicalPlan) -> Iterator[PlanNode]:
    match plan.structure:
        case Nfa() as automaton:
            yield from _describe_automaton(plan, automaton)
        case InstanceStacks() as stacks:
            yield _describe_stacks(plan, stacks)
        case JoinTree(root=root) as tree:
            described = _describe_join(plan, tree, root)
            yield PlanNode(f"join tree: {format_tree(root)}", children=(described,), shape=Shape.TREE)
        case CompactPlan() as compact:
            yield _describe_compact(plan, compact)
        case ReferencePlan(reason=reason):
            title = f"reference: slower exact path, because of {reason}"
            conditions = tuple(map(format_condition, plan.query.where))
            yield PlanNode(title, lines=("the events are collected and judged when the stream is over", *conditions))
            yield _outline(plan, title, conditions)


def _outline(plan: PhysicalPlan, title: str, conditions: tuple[str, ...]) -> PlanNode:
    """Describes the pattern itself, where a picture of the structure would say less."""
    pattern = _describe_pattern(plan.query.pattern)
    return PlanNode(title, lines=conditions, children=(pattern,), shape=Shape.OUTLINE)


def _describe_pattern(pattern: Pattern, *, dark: bool = False) -> PlanNode:
    """Describes a pattern as a tree: leaves are events, negated parts are dark."""
    dark = dark or is_negation(pattern)
    children = get_parts(pattern)
    # an event and its quantifier or negation share a box
    if get_form(pattern) in (NodeForm.LIST, NodeForm.OPTION, NodeForm.ABSENCE) and all(map(is_event, children)):
        children = ()
    text = format_head(pattern) if children else format_pattern(pattern)
    boxes = tuple(_describe_pattern(child, dark=dark) for child in children)
    return PlanNode(text, children=boxes, shape=Shape.DARK_BOX if dark else Shape.BOX)


def _describe_automaton(plan: PhysicalPlan, automaton: Nfa) -> Iterator[PlanNode]:
    off = "instance stacks are off" if "stacks: off" in plan.notes else "chosen before stacks"
    title = f"runs along an automaton: {why_no_stacks(plan.query) or off}"
    sharing = (
        f"its {len(automaton.edges)} edges share the code of those that are alike: a kernel "
        "with code for each would take long to compile"
    )
    lines = (sharing,) if should_share_code(automaton, plan.query.strategy) else ()
    states = [_describe_state(plan, automaton, state) for state in automaton.states[:MAX_STATES]]
    more = len(automaton.states) - MAX_STATES
    states += [PlanNode(f"and {more} more states")] if more > 0 else []
    drawn = len(automaton.states) <= MAX_DRAWN
    shape = Shape.GRAPH if drawn else Shape.TEXT
    yield PlanNode(title, lines=lines, children=tuple(states), shape=shape)
    if not drawn:
        title = f"runs along an automaton of {len(automaton.states)} states"
        yield _outline(plan, title, tuple(map(format_condition, plan.query.where)))


def _describe_state(plan: PhysicalPlan, automaton: Nfa, state: NfaState) -> PlanNode:
    ended = "ends the runs here, pushed (PNCEP)"
    children = [_describe_edge(plan, edge) for edge in automaton.list_outgoing(state.number)]
    children += [
        PlanNode(f"{format_types(plan.role(v).type)} {format_name(v)} {ended}", shape=Shape.NEGATION,
                 label=label_event(plan.role(v)))
        for v in state.barred
    ]  # fmt: skip
    children += [_describe_negation(plan, absence, "at the end: {}") for absence in state.absences]
    children += [_describe_negation(plan, a, "{}: decided when the window closes") for a in state.pending]
    names = (
        _format_variable(plan, role.variable) + (" open" if role.variable in state.open else "")
        for role in plan.roles
        if role.variable in state.bound
    )
    return PlanNode(
        f"state {state.number}{' (match)' * state.accepting}: {', '.join(names) if state.bound else 'start'}",
        lines=tuple(f"if {test}" for test in _list_final_tests(plan, state)),
        children=tuple(children),
        shape=Shape.FINAL_STATE if state.accepting else Shape.STATE,
        label=str(state.number),
        column=len(state.bound),
    )


def _describe_edge(plan: PhysicalPlan, edge: NfaEdge) -> PlanNode:
    role, keywords = plan.role(edge.variable), _list_keywords(plan, edge)
    where = "stays" if edge.target == edge.source else f"to state {edge.target}"
    return PlanNode(
        " ".join([*keywords, _format_event(plan, edge.variable), where]),
        lines=(*_list_contiguity(plan, edge), *_list_edge_tests(plan, edge)),
        children=tuple(_describe_negation(plan, absence) for absence in edge.absences),
        shape=Shape.EDGE,
        label=" ".join([*keywords, label_event(role)]),
        details=tuple(list_scan_tests(role, first=edge.first)),
        target=str(edge.target),
    )


def _describe_negation(plan: PhysicalPlan, absence: NegationCheck, form: str = "{}") -> PlanNode:
    role = plan.role(absence.variable)
    way = f" ({absence.way})" if absence.way else ""
    return PlanNode(
        form.format(describe_absence(plan, absence)) + way,
        shape=Shape.NEGATION,
        label=label_event(role),
        details=tuple(map(format_condition, role.conditions)),
    )


def _list_edge_tests(plan: PhysicalPlan, edge: NfaEdge) -> list[str]:
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


def _list_keywords(plan: PhysicalPlan, edge: NfaEdge) -> list[str]:
    """Lists the keyword for how an event follows the one before, if the pattern has any."""
    explicit = edge.own or edge.how is not Strategy.NEXT
    if edge.how is None or not explicit or not any(iterate_strategies(plan.query.pattern)):
        return []
    return [format_separator(edge.how)]


def _list_contiguity(plan: PhysicalPlan, edge: NfaEdge) -> list[str]:
    """Lists what may lie before an event, where it differs from the query's strategy."""
    if edge.own:
        return [_OWN]
    return [] if edge.how in (None, plan.query.strategy) else [_CONTIGUITY[edge.how]]


def _with(conditions: Iterable[Expr]) -> str:
    shown = " and ".join(map(format_condition, conditions))
    return f" with {shown}" if shown else ""


def _list_final_tests(plan: PhysicalPlan, state: NfaState) -> list[str]:
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


def _describe_compact(plan: PhysicalPlan, compact: CompactPlan) -> PlanNode:
    automaton = to_automaton(compact)
    states = [
        PlanNode(
            f"state {state.number}{' (match)' * state.accepting}{': start' * (not state.number)}",
            children=(
                *(_describe_edge(plan, edge) for edge in automaton.list_outgoing(state.number)),
                *(_describe_reset(plan, v) for v, ended in compact.resets if ended == state.number),
            ),
            shape=Shape.FINAL_STATE if state.accepting else Shape.STATE,
            label=str(state.number),
            column=len(state.bound),
        )
        for state in automaton.states
    ]
    return PlanNode(f"compact: {COMPACT_OUTPUTS[compact.answer]}", children=tuple(states), shape=Shape.GRAPH)


def _describe_reset(plan: PhysicalPlan, variable: str) -> PlanNode:
    role = plan.role(variable)
    return PlanNode(f"{format_role(role)} ends what waits here", shape=Shape.NEGATION, label=label_event(role))


def _describe_stacks(plan: PhysicalPlan, stacks: InstanceStacks) -> PlanNode:
    order = [format_name(variable) for variable in stacks.variables]
    pushed = "pushed (PNCEP): each empties the stack of {} and is dropped"
    boxes = []
    for number in reversed(range(len(order))):
        role = plan.role(stacks.variables[number])
        use = "each builds matches backwards" if number == len(order) - 1 else "kept on a stack"
        negations = [_describe_negation(plan, absence) for absence in stacks.absences[number]]
        negations += [
            _describe_negation(plan, replace(absence, way=pushed.format(order[number])))
            for absence in (stacks.pushed[number] if stacks.pushed else ())
        ]
        boxes.append(
            PlanNode(
                f"{format_role(role)}: {use}",
                lines=tuple(format_check(check) for check in stacks.checks[number]),
                children=tuple(negations),
                label=label_event(role),
                details=(use, *list_scan_tests(role, first=True)),
            )
        )
    rip = f"RIP: {' <- '.join(order)}, each to the newest instance before it"
    title = "instance stacks: single events in sequence, in any combination"
    return PlanNode(title, lines=(rip,), children=tuple(boxes), shape=Shape.CHAIN)


# ---------------------------------------------------------------------------------- join trees


def _describe_join(plan: PhysicalPlan, tree: JoinTree, node: TreeNode) -> PlanNode:
    boxes = tuple(_list_boxes(tree, node))
    if isinstance(node, LeafNode):
        role = plan.role(node.variable)
        tests = tuple(list_scan_tests(role, first=True))
        return PlanNode(
            "; ".join([*boxes, format_role(role)]), shape=Shape.BOX, label=label_event(role), details=(*boxes, *tests)
        )
    symbol = get_operator_symbol(node)
    return PlanNode(
        "; ".join([*boxes, node.operator.name]),
        lines=tuple(format_check(check) for check in node.checks),
        children=(
            *(_describe_negation(plan, replace(absence, way="")) for absence in node.absences),
            *(_describe_join(plan, tree, child) for child in node.children),
        ),
        shape=Shape.BOX,
        label={"->": "→", "&": "AND"}.get(symbol, symbol),
        details=boxes,
    )


def _list_boxes(tree: JoinTree, node: TreeNode) -> Iterator[str]:
    """Yields the hierarchy's boxes that a node is the root of, outer first."""
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


def _describe_output(plan: PhysicalPlan) -> Iterator[PlanNode]:
    query = plan.query
    lines = [format_condition(c) for c in plan.residual]
    lines += [
        f"{format_pattern(negation)}: decided when time has passed {format_expr(interval.until)}"
        for negation, interval in iterate_interval_negations(query.pattern)
    ]
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
        yield PlanNode("finished matches", lines=tuple(lines), shape=Shape.REMARKS)


def _describe_delay(query: Query) -> str:
    """Describes how long AFTER MATCH delays a match."""
    assert query.after is not None
    if query.after.by_start:
        return ": held back while a partial match that began earlier is alive"
    return ": held back while one that ends earlier is undecided" if skips_in_order(query) else ""


# ------------------------------------------------------------------------- decisions and memory


def _describe_decisions(plan: PhysicalPlan) -> Iterator[PlanNode]:
    """Yields the decisions of a plan with their estimates."""
    if not plan.decisions:
        return
    statistics = plan.statistics
    source = "assumed statistics" if statistics.assumed else f"statistics: {statistics.source}"
    decisions = [
        PlanNode(
            f"{decision.name}: {decision.chosen}" + (f", {decision.why}" if decision.why else ""),
            tuple((candidate.name, _format_estimate(candidate.estimate)) for candidate in decision.candidates),
        )
        for decision in plan.decisions
    ]
    yield PlanNode(f"decisions, by {source}", lines=(_describe_load(plan),), children=tuple(decisions))


def _format_estimate(estimate: PlanEstimate) -> str:
    return (
        f"cost {format_number(estimate.cost)} per event, {format_number(estimate.partial)} partial matches, "
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


def describe_memory(plan: PhysicalPlan | None, limits: Limits) -> PlanNode:
    """Describes what happens beyond the memory limit; the plan of a hierarchy is None."""
    room = f"{limits.memory_share:.0%} of the machine's"
    if limits.memory_size is not None:
        room = format_size(limits.memory_size)
    why = HIERARCHY_REASON if plan is None else why_not_evicted(plan)
    if why is not None or plan is None:
        return PlanNode(f"memory     {room} at most, then a stream stops: {why}")
    query = plan.query
    assert query.within is not None
    late = query.unfinished or can_wait(query.pattern)
    again = "they are matched again before an event of the key"
    return PlanNode(
        f"memory     {room}: keys beyond it go to disk, by {limits.evict or EVICTION_POLICIES[0]}",
        lines=(
            f"stored for a key [{list_keys(query)}] are its events of the last {format_window(query.within)}",
            again + (", and when one of its windows ends" if late else ""),
        ),
    )
