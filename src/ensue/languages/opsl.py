"""OPSL: text to a subscription, or a QueryError that points into the text."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from lark import Lark, Token, UnexpectedInput

from ensue.algebra.check.subscription import check_subscription, used_variables
from ensue.algebra.subscription import Select, Subscription
from ensue.errors import QueryError, did_you_mean
from ensue.languages.expressions import Node, pieces, span_of
from ensue.languages.kept_grammars import grammar
from ensue.languages.language import NO_REGIONS
from ensue.languages.opsl_shapes import Shapes
from ensue.languages.opsl_syntax import explain
from ensue.languages.opsl_trees import Names, expression_of
from ensue.languages.opsl_values import distance_of, length_of, variable_of

LONGEST = 65_536  # bytes of a text

_OPTIONS = ("select", "concurrent", "same_place", "equal", "within")


def parse(text: str, regions: Mapping[str, str] = NO_REGIONS) -> Subscription:
    """Reads a subscription. `regions` are known in it by their names, each in one spelling.

    >>> found = parse("=|(A; 25 minutes)(B), A = (ARITH:id = 17), B = (ARITH:id = 18)")
    >>> found.root.when, found.select
    (<When.BETWEEN: '=|'>, <Select.LATEST: 'latest'>)
    """
    length = len(text.encode("utf-8", "surrogatepass"))
    if length > LONGEST:
        raise QueryError(
            f"this text has {length:,} bytes; the limit is {LONGEST:,}",
            hint='pass large regions in the call: regions={"Depot": ...}',
        )
    try:
        return _subscription(_shapes.tree(text, _grammar().parse), text, regions)
    except UnexpectedInput as error:
        raise explain(error, text) from None
    except QueryError as error:
        raise error.at(None, text) from None


_shapes = Shapes()


@cache
def _grammar() -> Lark:
    return grammar("ensue.languages", "opsl.lark")


def _subscription(tree: Node, text: str, regions: Mapping[str, str]) -> Subscription:
    root, *definitions, options = pieces(tree)
    variables, abbreviations = _defined(definitions, regions)
    names = Names({name: pieces(node)[1] for name, node in abbreviations.items()}, regions)
    subscription = Subscription(
        expression_of(root, names),
        {name: expression_of(pieces(node)[1], names) for name, node in variables.items()},
        text=text,
        **_options(options),
    )
    check_subscription(subscription)
    _require_used(subscription, variables, abbreviations, names)
    return subscription


# ------------------------------------------------------------------------------- definitions


def _defined(
    definitions: Iterable[Node], regions: Mapping[str, str]
) -> tuple[dict[str, Node], dict[str, Node]]:
    """The definitions of variables and of names."""
    variables: dict[str, Node] = {}
    abbreviations: dict[str, Node] = {}
    for node in definitions:
        token = pieces(node)[0]
        if node.data == "variable":
            (name, span), known = variable_of(token), variables
            shown = f"${name};"
        else:
            name, span, known = str(token), span_of(token), abbreviations
            shown = f"'{name}'"
        if name in known:
            raise QueryError(
                f"{shown} is defined twice", hint="rename one of the two, or delete it", span=span
            )
        if known is abbreviations and name in regions:
            raise QueryError(
                f"{shown} is defined here and also passed in the call",
                hint="rename it here, or leave it out of regions=",
                span=span,
            )
        known[name] = node
    return variables, abbreviations


def _require_used(
    subscription: Subscription,
    variables: Mapping[str, Node],
    abbreviations: Mapping[str, Node],
    names: Names,
) -> None:
    """Nothing is defined in vain: it is a slip, and it would wait for events that nobody asks."""
    used = used_variables(subscription) if variables else frozenset[str]()
    for name, node in variables.items():
        if name not in used:
            raise _unused(f"${name};", node)
    for name, node in abbreviations.items():
        if name not in names.used:
            raise _unused(f"'{name}'", node)


def _unused(shown: str, node: Node) -> QueryError:
    return QueryError(
        f"{shown} is defined and never used", hint="delete its definition", span=span_of(node)
    )


# ----------------------------------------------------------------------------------- options


def _options(node: Node | None) -> dict[str, Any]:
    """What stands behind WITH, as arguments of a subscription."""
    found: dict[str, Any] = {}
    for option in pieces(node) if node else ():
        token, value = pieces(option)
        name = token.lower()
        if name not in _OPTIONS:
            raise QueryError(
                f"unknown option '{token}'",
                hint=did_you_mean(name, _OPTIONS),
                span=span_of(token),
            )
        if name in found:
            raise QueryError(
                f"the option '{name}' is given twice", hint="keep one", span=span_of(option)
            )
        found[name] = _select(value) if name == "select" else _amount(name, value)
    return found


def _select(value: Node | Token) -> Select:
    known = [select.value for select in Select]
    word = value.lower() if isinstance(value, Token) else ""
    if word not in known:
        raise QueryError(
            "select takes latest, once or all",
            hint=did_you_mean(word, known) if word else f"known here: {', '.join(known)}",
            span=span_of(value),
        )
    return Select(word)


def _amount(name: str, value: Node | Token) -> Any:
    if isinstance(value, Token):
        example = "5 minutes" if name in ("concurrent", "within") else "2.5"
        raise QueryError(
            f"{name} takes a {'length of time' if example[0] == '5' else 'number'}",
            hint=f"write {name} = {example}",
            span=span_of(value),
        )
    if name in ("concurrent", "within"):
        return length_of(value)
    amount, unit = pieces(value)
    if unit is not None:
        raise QueryError(
            f"{name} is a number in the units of places, without a unit",
            hint=f"write {name} = {amount}",
            span=span_of(unit),
        )
    return distance_of(amount, name, positive=name == "same_place")
