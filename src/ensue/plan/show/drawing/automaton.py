"""An automaton: states from left to right, by the number of variables they hold."""

from ensue.plan.physical import Absence, Automaton, Edge, Plan, State
from ensue.plan.show.drawing.canvas import (
    DIM,
    LINE,
    Canvas,
    Point,
    dark_width,
    middle_of,
    width_of,
)
from ensue.plan.show.drawing.legend import Legend, event_label
from ensue.plan.show.explain import (
    follows,
    role_tests,
    tests_at_the_end,
    tests_on,
    word_of,
)

RADIUS = 20
LOOP = 44  # how far a loop rises above its state
BOW = 90  # how far an edge inside a column is bent
NEAR = 0.28  # how far along a crossing edge its label stands
PILL = 42  # height that a negation below a state takes


def draw_automaton(canvas: Canvas, legend: Legend, plan: Plan, automaton: Automaton) -> None:
    """States as circles, accepting ones doubled; negations are dark."""
    _Drawing(canvas, legend, plan, automaton).draw()


class _Drawing:
    def __init__(self, canvas: Canvas, legend: Legend, plan: Plan, automaton: Automaton) -> None:
        self.canvas = canvas
        self.legend = legend
        self.plan = plan
        self.automaton = automaton
        self.labels = {edge: self._label(edge) for edge in automaton.edges}
        self.opening = self._opening()
        self.below = {s.number: self._below(s) for s in automaton.states}
        self.place = self._places()

    def draw(self) -> None:
        self._start()
        for edge in self.automaton.edges:
            if edge.source != edge.target:
                self._edge(edge)
        for state in self.automaton.states:
            self._state(state)

    # ------------------------------------------------------------------------------ texts

    def _label(self, edge: Edge) -> list[str]:
        role = self.plan.role(edge.variable)
        tests = role_tests(role, first=edge.first) + tests_on(self.plan, edge)
        for meaning in follows(self.plan, edge):
            self.legend.word(" ".join(word_of(self.plan, edge)), meaning)
        named = " ".join([*word_of(self.plan, edge), event_label(role)])
        return [named, *self.legend.lines(tests)]

    def _opening(self) -> tuple[Absence, ...]:
        """Negations before all of every match: drawn in front of the start."""
        ends = [s for s in self.automaton.states if s.accepting]
        first = [a for a in ends[0].absences if not a.after] if ends else []
        return tuple(
            a
            for a in first
            if all(any(a.variable == b.variable for b in s.absences) for s in ends)
        )

    def _closing(self, state: State) -> list[tuple[Absence, str]]:
        """Negations that only the end of a match decides."""
        opening = {a.variable for a in self.opening}
        found = [(a, "") for a in state.absences if a.variable not in opening]
        return found + [(a, "decided when the window closes") for a in state.pending]

    def _below(self, state: State) -> list[str]:
        if not state.accepting:
            return []
        tests = tests_at_the_end(self.plan, state)
        return ["match", *(f"if {line}" for line in self.legend.lines(tests))]

    # ------------------------------------------------------------------------------ places

    def _places(self) -> dict[int, Point]:
        columns: dict[int, list[State]] = {}
        for state in self.automaton.states:
            columns.setdefault(len(state.bound), []).append(state)
        height = self._row_height()
        places: dict[int, Point] = {}
        x = 0.0
        for number, depth in enumerate(sorted(columns)):
            here = columns[depth]
            x += self._bow_room(here) if number else 0.0
            for row, state in enumerate(here):
                places[state.number] = (x, (row - (len(here) - 1) / 2) * height)
            x += self._gap(here)
        return places

    def _row_height(self) -> float:
        above = max(self._loop_height(s) for s in self.automaton.states)
        below = max(
            len(self.below[s.number]) * LINE + len(self._closing(s)) * PILL
            for s in self.automaton.states
        )
        lines = max(len(label) for label in self.labels.values())
        crossing = any(self._crosses(e) for e in self.automaton.edges)
        slopes = (lines * LINE + 12) / (1 - 2 * NEAR) if crossing else 0
        return max(120.0, above + below + 2 * RADIUS + 40, slopes)

    def _loops(self, state: State) -> list[str]:
        edges = [e for e in self.automaton.out_of(state.number) if e.target == e.source]
        return [line for edge in edges for line in self.labels[edge]]

    def _loop_height(self, state: State) -> float:
        lines = self._loops(state)
        return LOOP * 0.75 + len(lines) * LINE if lines else 0

    def _gap(self, column: list[State]) -> float:
        """The way to the next column: as wide as what stands on the edges."""
        wide = 120.0
        for edge in (e for s in column for e in self.automaton.out_of(s.number)):
            label = max(width_of(line, mono=True) for line in self.labels[edge])
            pills = sum(dark_width(self._pill(a)) + 6 for a in edge.absences)
            if edge.source == edge.target:
                room = label + 40
            elif self._crosses(edge):
                room = 2 * label + pills + 60
            elif self._lone(edge):
                room = max(label, pills) + 40
            else:
                room = label + pills + 80
            wide = max(wide, room + 2 * RADIUS)
        return wide

    def _bow_room(self, column: list[State]) -> float:
        """What edges that go up inside a column take on its left."""
        order = [state.number for state in column]
        rising = [
            e
            for e in self.automaton.edges
            if {e.source, e.target} <= {*order} and order.index(e.source) > order.index(e.target)
        ]
        lines = (line for edge in rising for line in self.labels[edge])
        return max((BOW / 2 + width_of(line, mono=True) for line in lines), default=0.0)

    def _column(self, state: int) -> list[State]:
        size = len(self.automaton.states[state].bound)
        return [s for s in self.automaton.states if len(s.bound) == size]

    def _crosses(self, edge: Edge) -> bool:
        """Whether other edges may cross it."""
        return min(len(self._column(edge.source)), len(self._column(edge.target))) > 1

    def _lone(self, edge: Edge) -> bool:
        """Whether it is the only one between its columns."""
        return len(self._column(edge.source)) == len(self._column(edge.target)) == 1

    def _pill(self, absence: Absence, when: str = "") -> str:
        return self.legend.negation(absence, when)

    # ------------------------------------------------------------------------------ shapes

    def _start(self) -> None:
        x, y = self.place[0]
        begin = x - RADIUS - 34
        for absence in reversed(self.opening):
            width = dark_width(self._pill(absence)) + 6
            begin -= width
        self.canvas.line((begin, y), (x - RADIUS, y), head=True)
        at = x - RADIUS - 28
        for absence in reversed(self.opening):
            width = dark_width(self._pill(absence)) + 6
            self.canvas.dark((at - width / 2, y), self._pill(absence))
            at -= width

    def _state(self, state: State) -> None:
        at = self.place[state.number]
        loops = self._loops(state)
        if loops:
            self.canvas.loop(at, RADIUS, LOOP)
            bottom = at[1] - RADIUS - LOOP * 0.75 - 8
            self._write((at[0], bottom - (len(loops) - 1) * LINE), loops, self._bold(state))
        self.canvas.circle(at, RADIUS)
        if state.accepting:
            self.canvas.circle(at, RADIUS - 4)
        self.canvas.text((at[0], at[1] + 5), str(state.number), anchor="middle")
        y = at[1] + RADIUS + LINE
        for line in self.below[state.number]:
            self.canvas.text((at[0], y), line, anchor="middle", color=DIM, size=12, halo=True)
            y += LINE
        for absence, when in self._closing(state):
            self.canvas.line((at[0], y - LINE + 6), (at[0], y + 2), dashed=True)
            self.canvas.dark((at[0], y + 18), self._pill(absence, when))
            y += PILL

    def _bold(self, state: State) -> set[int]:
        """Which lines of a loop's label name an event."""
        found, line = set(), 0
        for edge in self.automaton.out_of(state.number):
            if edge.target == edge.source:
                found.add(line)
                line += len(self.labels[edge])
        return found

    def _write(
        self, top: Point, lines: list[str], bold: set[int], *, anchor: str = "middle"
    ) -> None:
        for number, line in enumerate(lines):
            name = number in bold
            self.canvas.text(
                (top[0], top[1] + number * LINE),
                line,
                anchor=anchor,
                bold=name,
                mono=not name,
                size=13 if name else 12,
                halo=True,
            )

    def _edge(self, edge: Edge) -> None:
        source, target = self.place[edge.source], self.place[edge.target]
        flat = source[1] == target[1]
        if source[0] == target[0]:
            self._bow(edge)
            return
        start, end = _between(source, target)
        self.canvas.line(start, end, head=True)
        lines = self.labels[edge]
        lone = self._lone(edge)
        along = 0.5 if lone else 0.42
        if self._crosses(edge):
            along = 0.62 if flat else NEAR
        pills = [self._pill(a) for a in edge.absences]
        self._pills(start, end, pills, 0.5 if lone else 0.78)
        at = (start[0] + (end[0] - start[0]) * along, start[1] + (end[1] - start[1]) * along)
        room = 24 if lone and pills else 8
        top = at[1] - room - (len(lines) - 1) * LINE
        if not flat:
            top = at[1] + 5 - (len(lines) - 1) * LINE / 2
        self._write((at[0], top), lines, {0})

    def _bow(self, edge: Edge) -> None:
        """An edge inside a column: downwards on the right, upwards on the left."""
        source, target = self.place[edge.source], self.place[edge.target]
        down = source[1] < target[1]
        bend = (source[0] + (BOW if down else -BOW), (source[1] + target[1]) / 2)
        start, end = _between(source, bend)[0], _between(bend, target)[1]
        self.canvas.curve(start, bend, end)
        middle = middle_of(start, bend, end)
        lines = self.labels[edge]
        x = middle[0] + (6 if down else -6)
        top = middle[1] + 5 - (len(lines) - 1) * LINE / 2
        self._write((x, top), lines, {0}, anchor="start" if down else "end")

    def _pills(self, start: Point, end: Point, texts: list[str], along: float) -> None:
        widths = [dark_width(text) + 6 for text in texts]
        x = start[0] + (end[0] - start[0]) * along - sum(widths) / 2
        for text, width in zip(texts, widths, strict=True):
            part = (x + width / 2 - start[0]) / (end[0] - start[0])
            self.canvas.dark((x + width / 2, start[1] + (end[1] - start[1]) * part), text)
            x += width


def _between(source: Point, target: Point) -> tuple[Point, Point]:
    """Where a straight line leaves one circle and reaches the other."""
    dx, dy = target[0] - source[0], target[1] - source[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1
    dx, dy = dx / length * (RADIUS + 1), dy / length * (RADIUS + 1)
    return (source[0] + dx, source[1] + dy), (target[0] - dx, target[1] - dy)
