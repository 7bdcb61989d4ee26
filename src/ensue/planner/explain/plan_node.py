"""The tree that explains a plan: its text, its picture and the figures of a run come from the same nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from ensue.printing.expression_printer import truncate_wkt


class Shape(Enum):
    """What a node is in a picture."""

    PLAN = auto()  # a frame with its sections, and an arrow to it from each plan that it takes events from
    HEADER = auto()  # the head of a frame: its label, and its details as a subtitle
    GRAPH = auto()  # states and the edges between them
    CHAIN = auto()  # boxes, each below the one before
    TREE = auto()  # boxes with children
    OUTLINE = auto()  # a tree in pictures only
    TABLE = auto()  # its properties, below the picture
    REMARKS = auto()  # its lines, below the picture
    TEXT = auto()  # in the text only
    STATE = auto()
    FINAL_STATE = auto()
    EDGE = auto()  # from the node around it to the one that `target` names
    NEGATION = auto()  # white on black
    BOX = auto()
    DARK_BOX = auto()


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of EXPLAIN ANALYZE: what was expected and what was measured."""

    name: str
    estimate: str
    actual: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A part of a plan."""

    title: str = ""
    properties: tuple[tuple[str, str], ...] = ()  # name and text; without a name it goes on with the one before
    lines: tuple[str, ...] = ()
    children: tuple["PlanNode", ...] = ()
    metrics: tuple[Metric, ...] = ()
    shape: Shape = Shape.TEXT
    label: str = ""  # its short name in a picture, if it is not the title
    details: tuple[str, ...] = ()  # lines of a picture that the text has elsewhere
    target: str = ""  # of an edge: the label of a state, or the title of a plan
    column: int = 0  # of a state: how far it is from the start
    kernel: Callable[[], str] | None = None  # writes the source of its kernel

    @property
    def name(self) -> str:
        """Its name in a picture."""
        return self.label or self.title

    def list_kernels(self) -> list[str]:
        """Lists the sources of the kernels of all parts."""
        own = [] if self.kernel is None else [self.kernel()]
        return own + [kernel for child in self.children for kernel in child.list_kernels()]

    def list_children(self, *shapes: Shape) -> list["PlanNode"]:
        """Lists the children of some shapes."""
        return [child for child in self.children if child.shape in shapes]


def combine_plans(plans: Mapping[str | int, PlanNode], *shared: PlanNode) -> PlanNode:
    """Combines the plans of several queries, each under the query's name; that of a single one stays as it is.

    >>> print(format_plan(combine_plans({"up": PlanNode(lines=("scan of A",)), 1: PlanNode()})))
    --- up ---
    scan of A
    <BLANKLINE>
    --- query 1 ---
    """
    if len(plans) == 1:
        return next(iter(plans.values()))
    named = ((name if isinstance(name, str) else f"query {name}", plan) for name, plan in plans.items())
    children = (replace(plan, title=name, shape=Shape.PLAN) for name, plan in named)
    return PlanNode(children=(*shared, *children), shape=Shape.PLAN, label=f"{len(plans)} queries")


def format_plan(node: PlanNode) -> str:
    """Formats a plan as text: the same plan has the same text.

    >>> scan = PlanNode("scan", (("A a", "a.x > 1"), ("B b", "its type only")))
    >>> print(format_plan(PlanNode(children=(scan, PlanNode("note")), shape=Shape.PLAN)))
    scan
      A a  a.x > 1
      B b  its type only
    <BLANKLINE>
    note
    """
    return truncate_wkt("\n".join(_list_lines(node, "")))


def _list_lines(node: PlanNode, indent: str) -> Iterator[str]:
    is_plan = node.shape is Shape.PLAN
    if node.title:
        yield f"{indent}--- {node.title} ---" if is_plan else f"{indent}{node.title}"
        indent += "" if is_plan else "  "
    mark = ". " if node.shape is Shape.BOX else ""  # tells the tests of a box from the boxes below it
    for line in (*align_columns(node.properties), *node.lines, *_format_metrics(node.metrics)):
        yield f"{indent}{mark}{line}"
    follows = bool(node.properties or node.lines or node.metrics)
    for child in node.children:
        if child.shape is Shape.OUTLINE:
            continue
        if is_plan and follows and child.shape is not Shape.EDGE:
            yield ""
        yield from _list_lines(child, indent + mark if child.shape is Shape.NEGATION else indent)
        follows = True


def align_columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Aligns names and their texts.

    >>> align_columns([("pattern", "A a"), ("", "B b")])
    ['pattern  A a', '         B b']
    """
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:{width}}  {text}" for name, text in rows]


def _format_metrics(metrics: Sequence[Metric]) -> list[str]:
    columns = [[m.name for m in metrics], [m.estimate for m in metrics], [m.actual for m in metrics]]
    names, estimates, actuals = (max(map(len, column), default=0) for column in columns)
    return [
        f"{m.name:{names}}  {m.estimate:>{estimates}}  {m.actual:>{actuals}}  {m.details}".rstrip() for m in metrics
    ]
