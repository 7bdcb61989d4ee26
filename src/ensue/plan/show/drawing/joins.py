"""A join tree: operators above their parts, with the tests of each node beside it."""

from ensue.plan.physical import Apply, Join, Leaf, Node, Plan
from ensue.plan.physical_rules.tree import node_name
from ensue.plan.show.drawing.canvas import DIM, LINE, Canvas, Point, dark_width, width_of
from ensue.plan.show.drawing.legend import Legend, event_label
from ensue.plan.show.explain import check_text, role_tests

LEVEL = 104  # from one level to the next
BETWEEN = 26  # from one leaf to the next
HEIGHT = 32


def draw_joins(canvas: Canvas, legend: Legend, plan: Plan, root: Node) -> None:
    """Events enter below, matches leave at the top."""
    _Joins(canvas, legend, plan).draw(root, 0.0, 0)


class _Joins:
    def __init__(self, canvas: Canvas, legend: Legend, plan: Plan) -> None:
        self.canvas = canvas
        self.legend = legend
        self.plan = plan

    def draw(self, node: Node, left: float, level: int) -> Point:
        """Draws a node from `left` on and gives the top of its box."""
        parts = _parts(node)
        inside = self._inside(node)
        width = self._width(node)
        x, y = left + width / 2, float(level * LEVEL)
        at = left + (width - inside) / 2
        below = y + HEIGHT / 2 + LINE * len(self._lines(node)) + 10
        for part in parts:
            top = self.draw(part, at, level + 1)
            self.canvas.line((x, below), top)
            at += self._width(part) + BETWEEN
        self.canvas.box((x, y), self._own(node), HEIGHT, round=16 if parts else 4)
        self.canvas.text((x, y + 5), self._text(node), anchor="middle", bold=True)
        for number, line in enumerate(self._lines(node)):
            place = (x, y + HEIGHT / 2 + LINE * (number + 0.8))
            self.canvas.text(place, line, anchor="middle", size=12, mono=True, color=DIM)
        if not isinstance(node, Leaf):
            at = x + self._own(node) / 2 + 8
            for absence in node.absences:
                name = self.legend.negation(absence)
                self.canvas.dark((at + dark_width(name) / 2, y), name)
                at += dark_width(name) + 6
        return (x, y - HEIGHT / 2)

    def _text(self, node: Node) -> str:
        if isinstance(node, Leaf):
            return event_label(self.plan.role(node.variable))
        return {"->": "→", "&": "AND"}.get(node_name(node), node_name(node))

    def _lines(self, node: Node) -> list[str]:
        if isinstance(node, Leaf):
            tests = role_tests(self.plan.role(node.variable), first=True)
        else:
            tests = [check_text(check) for check in node.checks]
        return self.legend.lines(tests)

    def _own(self, node: Node) -> float:
        return max(54.0, width_of(self._text(node)) + 26)

    def _inside(self, node: Node) -> float:
        parts = _parts(node)
        return sum(map(self._width, parts)) + BETWEEN * max(0, len(parts) - 1)

    def _width(self, node: Node) -> float:
        lines = [width_of(line, size=12, mono=True) for line in self._lines(node)]
        own = self._own(node)
        if not isinstance(node, Leaf):
            pills = sum(dark_width(self.legend.negation(a)) + 6 for a in node.absences)
            own += 2 * (pills + 8) if pills else 0
        return max([own, self._inside(node), *lines])


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Leaf():
            return ()
        case Join(left=left, right=right):
            return (left, right)
        case Apply(part=part):
            return (part,)
