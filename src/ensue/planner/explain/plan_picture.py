"""The plan of a query as a picture: automaton, instance stacks, join tree, or pattern."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ensue.ir.pattern import Pattern
from ensue.ir.traits import NodeForm, get_form, get_parts, is_event, is_negation
from ensue.planner.compact import to_automaton
from ensue.planner.explain.plan_text import (
    COMPACT_OUTPUTS,
    describe_absence,
    format_check,
    list_contiguity,
    list_edge_tests,
    list_final_tests,
    list_interval_negations,
    list_keys,
    list_keywords,
    list_notes,
    list_scan_tests,
)
from ensue.planner.join_tree import get_operator_symbol
from ensue.planner.physical_plan import (
    CompactPlan,
    InstanceStacks,
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
from ensue.printing.expression_printer import format_condition, format_expr, format_name
from ensue.printing.pattern_printer import format_after_match, format_head, format_pattern, format_types, format_window
from ensue.svg import (
    DARK,
    DIM,
    LINE,
    Canvas,
    Point,
    TreeBox,
    cut_text,
    draw_tree,
    measure_pill,
    measure_text,
    wrap_text,
)

MAX_STATES = 32  # a larger automaton is drawn as its pattern
MAX_NAME = 32  # characters of a box
LEGEND_WIDTH = 96  # characters of a line of the legend
_MAX_INLINE = 26  # characters that fit beside an arrow
_MAX_LINES = 2  # lines that do


def draw_plan(plan: PhysicalPlan) -> str:
    """Draws a plan as SVG."""
    return draw_on_canvas(plan).to_svg(format_pattern(plan.query.pattern))


def draw_on_canvas(plan: PhysicalPlan) -> Canvas:
    """Draws a plan on a canvas, which may become part of another picture."""
    canvas, legend, query = Canvas(), Legend(plan), plan.query
    match plan.structure:
        case Nfa(states=states) if len(states) > MAX_STATES:
            _draw_pattern(canvas, legend, f"runs along an automaton of {len(states)} states")
        case ReferencePlan(reason=reason):
            _draw_pattern(canvas, legend, f"slower exact path, because of {reason}")
        case Nfa():
            _AutomatonDrawing(canvas, legend, plan.structure).draw()
        case CompactPlan():
            _AutomatonDrawing(canvas, legend, to_automaton(plan.structure)).draw()
            legend.remarks.append(COMPACT_OUTPUTS[plan.structure.answer])
        case InstanceStacks():
            _draw_stacks(canvas, legend, plan.structure)
        case JoinTree(root=root):
            draw_tree(canvas, _build_join_box(legend, root))
    legend.remarks += [f"on finished matches: {format_condition(c)}" for c in plan.residual]
    legend.remarks += list_interval_negations(query.pattern)
    if query.after is not None:
        legend.remarks.append(f"after a match skip {format_after_match(query.after)}")
    if query.choose is not None:
        legend.remarks.append(f"choose {query.choose.choice.value.lower()}")
    if query.having is not None:
        legend.remarks.append(f"having {format_expr(query.having)}")
    legend.remarks += list_notes(plan)
    legend.draw(canvas)
    clauses = [query.strategy.value]
    if query.equivalence:
        clauses.append(f"[{list_keys(query)}]")
    if query.within is not None:
        clauses.append(f"within {format_window(query.within)}")
    pattern = wrap_text(format_pattern(query.pattern), LEGEND_WIDTH)
    canvas.title(pattern, "  ·  ".join(clauses))
    return canvas


# ----------------------------------------------------------------------------------- legend


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


@dataclass
class Legend:
    """Collects texts that are too long for their place: a number there, the text below."""

    plan: PhysicalPlan
    tests: list[str] = field(default_factory=list)
    keywords: dict[str, str] = field(default_factory=dict)
    negations: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def shorten(self, tests: list[str]) -> list[str]:
        """Returns few and short tests as they are, else their numbers."""
        if len(tests) <= _MAX_LINES and all(len(test) <= _MAX_INLINE for test in tests):
            return tests
        self.tests += [test for test in dict.fromkeys(tests) if test not in self.tests]
        marks = [f"[{number}]" for number in sorted(self.tests.index(t) + 1 for t in tests)]
        size = _MAX_INLINE // 5
        return [" ".join(marks[k : k + size]) for k in range(0, len(marks), size)]

    def label_negation(self, absence: NegationCheck, when: str = "") -> str:
        """Adds a negation to the legend, and returns the label of its pill."""
        role = self.plan.role(absence.variable)
        whole = replace(absence, conditions=(*role.conditions, *absence.conditions))
        text = describe_absence(self.plan, whole) + (f": {when}" if when else "")
        if text not in self.negations:
            self.negations.append(text)
        return label_event(role)

    def label_negations(self, absences: Sequence[NegationCheck]) -> list[str]:
        return [self.label_negation(absence) for absence in absences]

    def draw(self, canvas: Canvas) -> None:
        """Writes the legend below everything else."""
        x, y = canvas.left, canvas.bottom + 2 * LINE
        indent = max((measure_text(f"[{len(self.tests)}] ", mono=True), 24))

        def write(text: str, *, mono: bool) -> None:
            nonlocal y
            for line in wrap_text(text, LEGEND_WIDTH):
                if mono:
                    canvas.text((x + indent, y), line, mono=True)
                else:
                    canvas.text((x, y), line, color=DIM)
                y += LINE

        for number, test in enumerate(self.tests, 1):
            canvas.text((x, y), f"[{number}]", mono=True, color=DIM)
            write(test, mono=True)
        for keyword, meaning in sorted(self.keywords.items()):
            write(f"{keyword}: {meaning}", mono=False)
        for negation in self.negations:
            canvas.box((x + 8, y - 4), 12, 12, fill=DARK, stroke=DARK, round=6)
            write(negation, mono=True)
        for remark in self.remarks:
            write(remark, mono=False)


# ------------------------------------------------------------------- patterns and join trees


def _draw_pattern(canvas: Canvas, legend: Legend, remark: str) -> None:
    """Draws the pattern as a tree: leaves are events, negated parts are dark."""
    query = legend.plan.query
    draw_tree(canvas, _build_pattern_box(query.pattern, dark=False))
    legend.tests += [format_condition(c) for c in query.where]
    legend.remarks.append(remark)


def _build_pattern_box(pattern: Pattern, *, dark: bool) -> TreeBox:
    dark = dark or is_negation(pattern)
    children = get_parts(pattern)
    # an event and its quantifier or negation share a box
    if get_form(pattern) in (NodeForm.LIST, NodeForm.OPTION, NodeForm.ABSENCE) and all(map(is_event, children)):
        children = ()
    text = format_head(pattern) if children else format_pattern(pattern)
    boxes = tuple(_build_pattern_box(child, dark=dark) for child in children)
    return TreeBox(cut_text(text, MAX_NAME), boxes, dark)


def _build_join_box(legend: Legend, node: TreeNode) -> TreeBox:
    """Builds the box of a node: events enter at the bottom, matches leave at the top."""
    if isinstance(node, LeafNode):
        role = legend.plan.role(node.variable)
        lines = legend.shorten(list_scan_tests(role, first=True))
        return TreeBox(label_event(role), lines=tuple(lines))
    lines = legend.shorten([format_check(check) for check in node.checks])
    pills = tuple(legend.label_negations(node.absences))
    name = {"->": "→", "&": "AND"}.get(get_operator_symbol(node), get_operator_symbol(node))
    children = tuple(_build_join_box(legend, child) for child in node.children)
    return TreeBox(name, children, lines=tuple(lines), pills=pills)


# ----------------------------------------------------------------------------------- stacks

_CELL = 26  # height of an instance
_CELLS = 3  # instances drawn in a stack
_STACK = 96  # width of a stack


def _draw_stacks(canvas: Canvas, legend: Legend, stacks: InstanceStacks) -> None:
    """Draws the stacks beside each other, with the pointers along which matches are built."""
    plan = legend.plan
    roles = [plan.role(variable) for variable in stacks.variables]
    tests = [
        legend.shorten(list_scan_tests(role, first=True)) + legend.shorten([format_check(check) for check in checks])
        for role, checks in zip(roles, stacks.checks, strict=True)
    ]
    absences = [a for group in (*stacks.absences, *stacks.pushed) for a in group]
    pills = [legend.label_negations([a for a in absences if a.before == (variable,)]) for variable in stacks.variables]
    middles = _place_stacks(roles, tests, pills)
    bottom = LINE * (1.0 + max(map(len, tests)))
    for number, x in enumerate(middles):
        last = number == len(middles) - 1
        _draw_stack(canvas, x, label_event(roles[number]), tests[number], last=last)
    for number in range(1, len(middles)):
        start = (middles[number] - _STACK / 2, -_CELL * (_CELLS - 0.5))
        end = (middles[number - 1] + _STACK / 2, -_CELL * (_CELLS - 1.5))
        canvas.line(start, end, head=True)
        x = (start[0] + end[0]) / 2
        canvas.pills((x, (start[1] + end[1]) / 2), pills[number])
        if not pills[number]:
            canvas.text((x, start[1] - 6), "RIP", anchor="middle", color=DIM, size=12)
    for number, pill in enumerate(pills[0]):
        x, y = -_STACK / 2 - 24, -_CELL * (_CELLS - 1) + number * 40.0
        canvas.line((x, y), (-_STACK / 2, y), dashed=True)
        canvas.pill((x - measure_pill(pill) / 2 - 3, y), pill)
    canvas.line((middles[-1], bottom + 8), (middles[0], bottom + 8), color=DIM, head=True)
    at = ((middles[0] + middles[-1]) / 2, bottom + 26)
    canvas.text(at, "matches are built backwards", anchor="middle", color=DIM, size=12)


def _place_stacks(roles: list[Role], tests: list[list[str]], pills: list[list[str]]) -> list[float]:
    widths = [
        max(_STACK, measure_text(label_event(role)), *(measure_text(line, size=12, mono=True) for line in lines))
        for role, lines in zip(roles, tests, strict=True)
    ]
    middles = [0.0]
    for number in range(1, len(widths)):
        negations = sum(measure_pill(pill) + 6 for pill in pills[number])
        text = (widths[number - 1] + widths[number]) / 2 + 30
        middles.append(middles[-1] + max(text, _STACK + max(90.0, negations + 50)))
    return middles


def _draw_stack(canvas: Canvas, x: float, label: str, tests: list[str], *, last: bool) -> None:
    """Draws a stack upon the line y = 0, and its tests below; the last one has no instances."""
    cells = ((2, "each event"),) if last else ((0, "⋮"), (1, ""), (2, "newest"))
    for cell, text in cells:
        y = -_CELL * (cell + 0.5)
        canvas.box((x, y), _STACK, _CELL, round=2)
        canvas.text((x, y + 4), text, anchor="middle", size=11, color=DIM)
    canvas.text((x, -_CELL * _CELLS - 10), label, anchor="middle", bold=True)
    for number, line in enumerate(tests, 1):
        canvas.text((x, number * LINE), line, anchor="middle", size=12, mono=True)


# -------------------------------------------------------------------------------- automatons

_RADIUS = 20
_LOOP = 44  # how far a loop rises above its state
_BOW = 90  # how far an edge inside a column is bent
_NEAR = 0.28  # how far along a crossing edge its label stands
_PILL = 42  # height of a negation below a state


class _AutomatonDrawing:
    """Draws states from left to right by the number of variables they hold."""

    def __init__(self, canvas: Canvas, legend: Legend, automaton: Nfa) -> None:
        self.canvas = canvas
        self.legend = legend
        self.plan = legend.plan
        self.automaton = automaton
        self.columns: dict[int, list[NfaState]] = {}
        for state in automaton.states:
            self.columns.setdefault(len(state.bound), []).append(state)
        self.labels = {edge: self._label_edge(edge) for edge in automaton.edges}
        self.opening = self._find_opening()
        self.below = {s.number: self._list_below(s) for s in automaton.states}
        self.places = self._place_states()

    def draw(self) -> None:
        x, y = self.places[0]
        pills = self.legend.label_negations(self.opening)
        width = sum(measure_pill(pill) + 6 for pill in pills)
        self.canvas.line((x - _RADIUS - 34 - width, y), (x - _RADIUS, y), head=True)
        self.canvas.pills((x - _RADIUS - 28 - width / 2, y), pills)
        for edge in self.automaton.edges:
            if edge.source != edge.target:
                self._draw_edge(edge)
        for state in self.automaton.states:
            self._draw_state(state)

    # ------------------------------------------------------------------------------ texts

    def _label_edge(self, edge: NfaEdge) -> list[str]:
        role, keywords = self.plan.role(edge.variable), list_keywords(self.plan, edge)
        tests = list_scan_tests(role, first=edge.first) + list_edge_tests(self.plan, edge)
        for meaning in list_contiguity(self.plan, edge):
            self.legend.keywords.setdefault(" ".join(keywords), meaning)
        return [" ".join([*keywords, label_event(role)]), *self.legend.shorten(tests)]

    def _find_opening(self) -> list[NegationCheck]:
        """Finds negations before every match, which are drawn in front of the start."""
        ends = [s for s in self.automaton.states if s.accepting]
        barred = [{a.variable for a in state.absences} for state in ends]
        first = ends[0].absences if ends else ()
        return [a for a in first if not a.after and all(a.variable in names for names in barred)]

    def _list_closing(self, state: NfaState) -> list[tuple[NegationCheck, str]]:
        """Lists negations that only the end of a match decides."""
        opening = {a.variable for a in self.opening}
        closing = [(a, "") for a in state.absences if a.variable not in opening]
        return closing + [(a, "decided when the window closes") for a in state.pending]

    def _list_below(self, state: NfaState) -> list[str]:
        if not state.accepting:
            return []
        tests = self.legend.shorten(list_final_tests(self.plan, state))
        return ["match", *(f"if {line}" for line in tests)]

    def _label_loops(self, state: NfaState) -> list[tuple[str, bool]]:
        """Returns the lines above a state, and whether each names an event."""
        edges = [e for e in self.automaton.list_outgoing(state.number) if e.target == e.source]
        return [(line, not n) for edge in edges for n, line in enumerate(self.labels[edge])]

    # ----------------------------------------------------------------------------- layout

    def _place_states(self) -> dict[int, Point]:
        places: dict[int, Point] = {}
        height, x = self._measure_row(), 0.0
        for depth in sorted(self.columns):
            column = self.columns[depth]
            x += self._measure_bows(column) if places else 0.0
            for row, state in enumerate(column):
                places[state.number] = (x, (row - (len(column) - 1) / 2) * height)
            x += self._measure_gap(column)
        return places

    def _measure_row(self) -> float:
        states, edges = self.automaton.states, self.automaton.edges
        loops = max(len(self._label_loops(state)) for state in states)
        above = _LOOP * 0.75 + loops * LINE if loops else 0
        below = max(len(self.below[s.number]) * LINE + len(self._list_closing(s)) * _PILL for s in states)
        lines = max(map(len, self.labels.values()))
        slopes = (lines * LINE + 12) / (1 - 2 * _NEAR) if any(map(self._crosses, edges)) else 0
        return max(120.0, above + below + 2 * _RADIUS + 40, slopes)

    def _measure_gap(self, column: list[NfaState]) -> float:
        """Returns the way to the next column: as wide as the labels of the edges."""
        widest = 80.0
        for edge in (e for s in column for e in self.automaton.list_outgoing(s.number)):
            label = max(measure_text(line, mono=True) for line in self.labels[edge])
            names = self.legend.label_negations(edge.absences)
            pills = sum(measure_pill(name) + 6 for name in names)
            if edge.source == edge.target:
                room = label + 40
            elif self._crosses(edge):
                room = 2 * label + pills + 60
            elif self._is_lone(edge):
                room = max(label, pills) + 40
            else:
                room = label + pills + 80
            widest = max(widest, room)
        return widest + 2 * _RADIUS

    def _measure_bows(self, column: list[NfaState]) -> float:
        """Returns the room that edges up inside a column take on its left."""
        order = [state.number for state in column]
        lines = (
            line
            for edge in self.automaton.edges
            if edge.source in order and edge.target in order
            if order.index(edge.source) > order.index(edge.target)
            for line in self.labels[edge]
        )
        return max((_BOW / 2 + measure_text(line, mono=True) for line in lines), default=0.0)

    def _count_states(self, edge: NfaEdge) -> list[int]:
        """Returns the sizes of the columns of an edge."""
        states = (self.automaton.states[number] for number in (edge.source, edge.target))
        return [len(self.columns[len(state.bound)]) for state in states]

    def _crosses(self, edge: NfaEdge) -> bool:
        return min(self._count_states(edge)) > 1

    def _is_lone(self, edge: NfaEdge) -> bool:
        """Returns whether an edge is the only one between its columns."""
        return self._count_states(edge) == [1, 1]

    # ----------------------------------------------------------------------------- shapes

    def _draw_state(self, state: NfaState) -> None:
        x, y = self.places[state.number]
        loops = self._label_loops(state)
        if loops:
            self.canvas.loop((x, y), _RADIUS, _LOOP)
            self._write((x, y - _RADIUS - _LOOP * 0.75 - 8 - (len(loops) - 1) * LINE), loops)
        self.canvas.circle((x, y), _RADIUS)
        if state.accepting:
            self.canvas.circle((x, y), _RADIUS - 4)
        self.canvas.text((x, y + 5), str(state.number), anchor="middle")
        y += _RADIUS + LINE
        for line in self.below[state.number]:
            self.canvas.text((x, y), line, anchor="middle", color=DIM, size=12, halo=True)
            y += LINE
        for absence, when in self._list_closing(state):
            self.canvas.line((x, y - LINE + 6), (x, y + 2), dashed=True)
            self.canvas.pill((x, y + 18), self.legend.label_negation(absence, when))
            y += _PILL

    def _write(self, top: Point, lines: list[tuple[str, bool]], *, anchor: str = "middle") -> None:
        for number, (line, bold) in enumerate(lines):
            at, size = (top[0], top[1] + number * LINE), 13 if bold else 12
            self.canvas.text(at, line, anchor=anchor, size=size, bold=bold, mono=not bold, halo=True)

    def _draw_edge(self, edge: NfaEdge) -> None:
        source, target = self.places[edge.source], self.places[edge.target]
        lines = [(line, not number) for number, line in enumerate(self.labels[edge])]
        rise = (len(lines) - 1) * LINE
        if source[0] == target[0]:  # inside a column: downwards on the right, else on the left
            side = 1 if source[1] < target[1] else -1
            bend = (source[0] + side * _BOW, (source[1] + target[1]) / 2)
            start, end = _clip(source, bend)[0], _clip(bend, target)[1]
            x, y = self.canvas.curve(start, bend, end)
            anchor = "start" if side > 0 else "end"
            self._write((x + side * 6, y + 5 - rise / 2), lines, anchor=anchor)
            return
        start, end = _clip(source, target)
        self.canvas.line(start, end, head=True)
        flat, lone = source[1] == target[1], self._is_lone(edge)
        pills = self.legend.label_negations(edge.absences)
        slope = (end[1] - start[1]) / (end[0] - start[0])
        self.canvas.pills(_interpolate(start, end, 0.5 if lone else 0.78), pills, slope)
        along = 0.5 if lone else 0.42
        if self._crosses(edge):
            along = 0.62 if flat else _NEAR
        x, y = _interpolate(start, end, along)
        if flat:
            self._write((x, y - (24 if lone and pills else 8) - rise), lines)
        else:
            self._write((x, y + 5 - rise / 2), lines)


def _interpolate(start: Point, end: Point, share: float) -> Point:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _clip(source: Point, target: Point) -> tuple[Point, Point]:
    """Returns where a straight line leaves one circle and reaches the other."""
    dx, dy = target[0] - source[0], target[1] - source[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1
    dx, dy = dx / length * (_RADIUS + 1), dy / length * (_RADIUS + 1)
    return (source[0] + dx, source[1] + dy), (target[0] - dx, target[1] - dy)
