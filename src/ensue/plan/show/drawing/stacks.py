"""Instance stacks: one beside the other, with the pointers along which matches are built."""

from ensue.plan.physical import Absence, Plan, Stacks
from ensue.plan.show.drawing.canvas import DIM, LINE, Canvas, dark_width, width_of
from ensue.plan.show.drawing.legend import Legend, event_label
from ensue.plan.show.explain import check_text, role_tests

CELL = 26  # height of an instance
CELLS = 3  # instances drawn in a stack
WIDE = 96  # a stack


def draw_stacks(canvas: Canvas, legend: Legend, plan: Plan, stacks: Stacks) -> None:
    """A column of instances for each variable; the last one's events start the construction."""
    gaps = _gaps(legend, plan, stacks)
    x = 0.0
    middles = []
    for number in range(len(stacks.variables)):
        x += gaps[number] if number else 0
        middles.append(x)
    bottom = 0.0
    for number, middle in enumerate(middles):
        bottom = max(bottom, _stack(canvas, legend, plan, stacks, number, middle))
    for number, middle in enumerate(middles[1:], 1):
        start = (middle - WIDE / 2, -CELL * (CELLS - 0.5))
        end = (middles[number - 1] + WIDE / 2, -CELL * (CELLS - 1.5))
        canvas.line(start, end, head=True)
        negated = _standing(stacks, number)
        if not negated:
            middle_x = (start[0] + end[0]) / 2
            canvas.text((middle_x, start[1] - 6), "RIP", anchor="middle", color=DIM, size=12)
        _pills(canvas, legend, negated, (start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    for number, absence in enumerate(_standing(stacks, 0)):
        name = legend.negation(absence)
        width = dark_width(name) + 6
        y = -CELL * (CELLS - 1) + number * 40
        canvas.line((-WIDE / 2 - 24, y), (-WIDE / 2, y), dashed=True)
        canvas.dark((-WIDE / 2 - 24 - width / 2, y), name)
    canvas.line((middles[-1], bottom + 8), (middles[0], bottom + 8), color=DIM, head=True)
    canvas.text(
        ((middles[0] + middles[-1]) / 2, bottom + 26),
        "matches are built backwards",
        anchor="middle",
        color=DIM,
        size=12,
    )


def _standing(stacks: Stacks, number: int) -> list[Absence]:
    """The negations right in front of a variable."""
    variable = stacks.variables[number]
    groups = (*stacks.absences, *stacks.pushed)
    return [a for group in groups for a in group if a.before == (variable,)]


def _tests(legend: Legend, plan: Plan, stacks: Stacks, number: int) -> tuple[list[str], list[str]]:
    role = plan.role(stacks.variables[number])
    scan = legend.lines(role_tests(role, first=True))
    between = legend.lines([check_text(check) for check in stacks.checks[number]])
    return scan, between


def _gaps(legend: Legend, plan: Plan, stacks: Stacks) -> list[float]:
    """The way from the stack before to each stack."""
    widths = []
    for number, variable in enumerate(stacks.variables):
        scan, between = _tests(legend, plan, stacks, number)
        role = plan.role(variable)
        lines = [width_of(line, size=12, mono=True) for line in (*scan, *between)]
        widths.append(max([WIDE, width_of(event_label(role)), *lines]))
    gaps = [0.0]
    for number in range(1, len(widths)):
        pills = sum(dark_width(legend.negation(a)) + 6 for a in _standing(stacks, number))
        text = (widths[number - 1] + widths[number]) / 2 + 30
        gaps.append(max(text, WIDE + max(90.0, pills + 50)))
    return gaps


def _pills(canvas: Canvas, legend: Legend, negated: list[Absence], x: float, y: float) -> None:
    names = [legend.negation(absence) for absence in negated]
    widths = [dark_width(name) + 6 for name in names]
    x -= sum(widths) / 2
    for name, width in zip(names, widths, strict=True):
        canvas.dark((x + width / 2, y), name)
        x += width


def _stack(
    canvas: Canvas, legend: Legend, plan: Plan, stacks: Stacks, number: int, x: float
) -> float:
    """Draws a stack upon the line y = 0 and its tests below; gives where they end."""
    role = plan.role(stacks.variables[number])
    last = number == len(stacks.variables) - 1
    for cell in range(CELLS):
        if last and cell < CELLS - 1:
            continue
        canvas.box((x, -CELL * (cell + 0.5)), WIDE, CELL, round=2)
        if not last:
            text = ("⋮", "", "newest")[cell]
            canvas.text((x, -CELL * (cell + 0.5) + 4), text, anchor="middle", size=11, color=DIM)
    if last:
        y = -CELL * (CELLS - 0.5) + 4
        canvas.text((x, y), "each event", anchor="middle", size=11, color=DIM)
    canvas.text((x, -CELL * CELLS - 10), event_label(role), anchor="middle", bold=True)
    scan, between = _tests(legend, plan, stacks, number)
    y = float(LINE)
    for line in (*scan, *between):
        canvas.text((x, y), line, anchor="middle", size=12, mono=True)
        y += LINE
    return y
