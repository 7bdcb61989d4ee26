"""A join tree: operators above their parts, each with its tests in its box."""

from ensue.plan.physical import Apply, Join, Leaf, Node, Plan
from ensue.plan.physical_rules.tree import node_name
from ensue.plan.show.drawing.canvas import DIM, LINE, Canvas, Point, dark_width, width_of
from ensue.plan.show.drawing.legend import Legend, event_label
from ensue.plan.show.explain import check_text, role_tests

ABOVE = 44  # between one level and the next
BETWEEN = 26  # from one leaf to the next
HEIGHT = 32  # of a box without tests


def draw_joins(canvas: Canvas, legend: Legend, plan: Plan, root: Node) -> None:
    """Events enter below, matches leave at the top."""
    _Joins(canvas, legend, plan, root).draw(root, 0.0, 0)


class _Joins:
    def __init__(self, canvas: Canvas, legend: Legend, plan: Plan, root: Node) -> None:
        self.canvas = canvas
        self.legend = legend
        self.plan = plan
        self.tops = [0.0]  # of levels, each below the highest box of the one above
        level = [root]
        while level:
            self.tops.append(self.tops[-1] + max(map(self._height, level)) + ABOVE)
            level = [part for node in level for part in _parts(node)]

    def draw(self, node: Node, left: float, level: int) -> Point:
        """Draws a node from `left` on and gives the middle of its upper edge."""
        parts, lines = _parts(node), self._lines(node)
        inside, width, height = self._inside(node), self._width(node), self._height(node)
        x, top = left + width / 2, self.tops[level]
        at = left + (width - inside) / 2
        for part in parts:
            self.canvas.line((x, top + height), self.draw(part, at, level + 1))
            at += self._width(part) + BETWEEN
        middle = (x, top + height / 2)
        self.canvas.box(middle, self._own(node), height, round=16 if parts else 4)
        self.canvas.text((x, top + 21), self._text(node), anchor="middle", bold=True)
        for number, line in enumerate(lines):
            place = (x, top + HEIGHT + LINE * (number + 0.5))
            self.canvas.text(place, line, anchor="middle", size=12, mono=True, color=DIM)
        if not isinstance(node, Leaf):
            at = x + self._own(node) / 2 + 8
            for absence in node.absences:
                name = self.legend.negation(absence)
                self.canvas.dark((at + dark_width(name) / 2, middle[1]), name)
                at += dark_width(name) + 6
        return (x, top)

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

    def _height(self, node: Node) -> float:
        lines = self._lines(node)
        return HEIGHT + LINE * len(lines) + (2 if lines else 0)

    def _own(self, node: Node) -> float:
        """The width of its box."""
        lines = [width_of(line, size=12, mono=True) + 24 for line in self._lines(node)]
        return max(54.0, width_of(self._text(node)) + 26, *lines)

    def _inside(self, node: Node) -> float:
        parts = _parts(node)
        return sum(map(self._width, parts)) + BETWEEN * max(0, len(parts) - 1)

    def _width(self, node: Node) -> float:
        own = self._own(node)
        if not isinstance(node, Leaf):
            pills = sum(dark_width(self.legend.negation(a)) + 6 for a in node.absences)
            own += 2 * (pills + 8) if pills else 0
        return max(own, self._inside(node))


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Leaf():
            return ()
        case Join(left=left, right=right):
            return (left, right)
        case Apply(part=part):
            return (part,)
