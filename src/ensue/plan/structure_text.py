"""The text that saved states know a plan's structure by.

Of most structures a state fits all that a query may get, so that their name is enough; what an
entry of a join tree holds depends on the whole tree.

Version 1 is what `repr` gave, with all that the planner thought of the tree: costs, the text of
generated functions, how negations are judged. Version 2 leaves out what has no bearing on the
state.
"""

from collections.abc import Iterator

from ensue.algebra.canonical_text import (
    expr_text,
    kind_text,
    node_text,
    optional,
    plain,
    tuple_text,
    window_text,
)
from ensue.algebra.predicate import Expr
from ensue.plan.physical import (
    Absence,
    Answer,
    Apply,
    Automaton,
    Check,
    Compact,
    Join,
    Leaf,
    Node,
    Reference,
    Stacks,
    Structure,
    Tree,
)
from ensue.plan.physical_rules.operators import (
    CONDITION,
    CONJUNCTION,
    SEQUENCE,
    Argument,
    Attribute,
    Function,
    Operator,
    Order,
)
from ensue.plan.physical_rules.ordering import as_written
from ensue.plan.towers.modules import Module


def structure_text(structure: Structure, where: tuple[Expr, ...]) -> str:
    """A structure, for a query with these conditions: they may be tried in another order."""
    match structure:
        case Automaton():
            return "runs"
        case Stacks():
            return "stacks"
        case Compact(answer=answer, limit=limit):
            return f"compact {_answer(answer)} {plain(limit)}"
        case Reference():
            return "reference"
        case Tree(modules=modules):
            ordered = as_written(structure, where)
            assert isinstance(ordered, Tree)
            return f"tree {_node(ordered.root)} {tuple_text(_module, modules)}"


def _answer(answer: Answer) -> str:
    match answer:
        case Answer.MATCHES:
            return "matches"
        case Answer.COUNT:
            return "count"
        case Answer.EXISTS:
            return "exists"


def _node(node: Node) -> str:
    match node:
        case Leaf(variable=variable):
            return plain(variable)
        case Join(left=left, right=right):
            return f"({_node(left)} {_by(node)} {_node(right)})"
        case Apply(part=part):
            return f"({_by(node)} {_node(part)})"


def _by(node: Join | Apply) -> str:
    operator = node.operator
    return node_text(
        plain(operator.name),
        order=_order(operator.order),
        attributes=tuple_text(_attribute, operator.attributes),
        checks=tuple_text(_check, node.checks),
        absences=tuple_text(_absence, node.absences),
        variable=plain(node.variable),
    )


def _check(check: Check) -> str:
    return node_text(
        "check",
        condition=expr_text(check.condition),
        moving=plain(check.moving),
        each=plain(check.each),
    )


def _absence(absence: Absence) -> str:
    return node_text(
        "absence",
        variable=plain(absence.variable),
        after=tuple_text(plain, absence.after),
        before=tuple_text(plain, absence.before),
        conditions=tuple_text(expr_text, absence.conditions),
        whole=plain(absence.whole),
        own=tuple_text(plain, absence.own),
        newest=plain(absence.newest),
    )


def _module(module: Module) -> str:
    return node_text(
        "Module",
        name=plain(module.name),
        box=plain(module.box),
        variables=tuple_text(plain, module.variables),
        within="None" if module.within is None else window_text(module.within),
        level=plain(module.level),
        precursor=plain(module.precursor),
    )


def _order(order: Order) -> str:
    match order:
        case Order.BEFORE:
            return "<Order.BEFORE: 'before'>"
        case Order.APART:
            return "<Order.APART: 'apart'>"
        case Order.ONE:
            return "<Order.ONE: 'one'>"


def _attribute(attribute: Attribute) -> str:
    return node_text("Attribute", name=plain(attribute.name), kind=kind_text(attribute.kind))


# ---- version 1


# Where the functions of users' operators were found, in the text of generated functions.
_GIVEN = "from ensue.source.operator_functions import given"
_GIVEN_BEFORE = "from ensue.compile.operator_functions import given"


def structure_texts_before(structure: Structure, where: tuple[Expr, ...]) -> Iterator[str]:
    """The texts of version 1 that mean a structure."""
    match structure:
        case Automaton():
            yield "Automaton"
        case Stacks():
            yield "Stacks"
        case Compact():
            yield "Compact"
        case Reference():
            yield "Reference"
        case Tree(modules=modules):
            ordered = as_written(structure, where)
            assert isinstance(ordered, Tree)
            text = node_text("Tree", root=_node_before(ordered.root))
            text += "".join(map(_module, modules))
            yield text
            if _GIVEN in text:
                yield text.replace(_GIVEN, _GIVEN_BEFORE)


def _node_before(node: Node) -> str:
    match node:
        case Leaf(variable=variable):
            return node_text("Leaf", variable=plain(variable))
        case Join():
            return node_text(
                "Join",
                operator=_operator_before(node.operator),
                left=_node_before(node.left),
                right=_node_before(node.right),
                checks=tuple_text(_check_before, node.checks),
                absences=tuple_text(_absence_before, node.absences),
                variable=plain(node.variable),
            )
        case Apply():
            return node_text(
                "Apply",
                operator=_operator_before(node.operator),
                part=_node_before(node.part),
                checks=tuple_text(_check_before, node.checks),
                absences=tuple_text(_absence_before, node.absences),
                variable=plain(node.variable),
            )


def _check_before(check: Check) -> str:
    return node_text(
        "Check",
        condition=expr_text(check.condition),
        moving=plain(check.moving),
        each=plain(check.each),
    )


def _absence_before(absence: Absence) -> str:
    return node_text(
        "Absence",
        variable=plain(absence.variable),
        after=tuple_text(plain, absence.after),
        before=tuple_text(plain, absence.before),
        conditions=tuple_text(expr_text, absence.conditions),
        whole=plain(absence.whole),
        own=tuple_text(plain, absence.own),
        newest=plain(absence.newest),
        way=plain(absence.way),
    )


def _operator_before(operator: Operator) -> str:
    """With costs: those of the built-in operators as they were, whatever they are now."""
    q_cost, passes = operator.q_cost / CONDITION * 2.0, operator.passes
    if operator == SEQUENCE:
        q_cost, passes = 2.0, 0.5
    elif operator == CONJUNCTION:
        q_cost, passes = 0.0, 1.0
    return node_text(
        "Operator",
        name=plain(operator.name),
        order=_order(operator.order),
        fits=optional(_function_before, operator.fits),
        builds=optional(_function_before, operator.builds),
        attributes=tuple_text(_attribute, operator.attributes),
        keeps=tuple_text(plain, operator.keeps),
        remembers=plain(operator.remembers),
        q_cost=plain(q_cost),
        f_cost=plain(12.0),
        z_cost=plain(0.0),
        passes=plain(passes),
    )


def _function_before(function: Function) -> str:
    return node_text(
        "Function",
        name=plain(function.name),
        text=plain(function.text),
        arguments=tuple_text(_argument_before, function.arguments),
    )


def _argument_before(argument: Argument) -> str:
    return node_text("Argument", side=plain(argument.side), name=plain(argument.name))
