"""Parses the pattern language to queries; errors point into the text."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import cache, lru_cache, partial

from lark import Lark, Token, Tree, UnexpectedInput

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.query import check_structure
from ensue.errors import QueryError, Span
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef, Literal, Unary
from ensue.ir.pattern import (
    UNTIL,
    And,
    Atom,
    Interval,
    Kleene,
    LoopExit,
    MaxGap,
    Maybe,
    Not,
    OperatorCall,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.ir.query import Query
from ensue.ir.selection import Strategy, convert_length
from ensue.ir.traits import NodeForm, build_group, get_form, is_event, is_input, is_list, is_repetition
from ensue.ir.traversal import iterate_atoms, iterate_operator_calls, iterate_references, rewrite_expr, rewrite_pattern
from ensue.ir.user_operator import UserOperator, find_operator
from ensue.parser.clauses import (
    build_choose,
    build_column,
    build_duration,
    build_limit,
    build_match_query,
    build_whole_result,
    collect_clauses,
    parse_whole_number,
    split_return,
)
from ensue.parser.expressions import Node, build_expression, get_children, get_span, unquote_name
from ensue.parser.grammar import ParameterPostLex, load_grammar, parse_tree
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.printing.pattern_printer import format_types
from ensue.schema import ANY, Types, TypeUnion, get_type_names

_LIKE = "like "  # marks the type of a variable that is resolved later
_CONSTANTS = ("number", "percent", "duration", "interval", "string", "minus")


def transform_pattern(node: Node, operators: tuple[UserOperator, ...], conditions: list[Expr]) -> Pattern:
    """Builds the pattern of a syntax tree; variables without a name are empty.

    Conditions written inside the pattern are added to `conditions`.
    """
    span = get_span(node)

    def inner(part: Node) -> Pattern:
        return transform_pattern(part, operators, conditions)

    match node.data, get_children(node):
        case "seq", parts:
            return build_group(Seq, map(inner, parts), span)
        case "entered", [how, pause, part]:
            word = Strategy[how.upper()] if how else Strategy.PARTITION
            _check_pause(pause, part)
            return Then(inner(part), word, _build_pause(pause), span)
        case "all", parts:
            return build_group(And, map(inner, parts), span)
        case "any", parts:
            return build_group(Or, map(inner, parts), span)
        case "bracketed", [inside]:
            return inner(inside)
        case "negated", [part]:
            return Not(inner(part), span)
        case "absent", [part, after, until]:
            ends = build_expression(after), build_expression(until)
            within = Interval(*ends, get_span(after).to(get_span(until)))
            return Not(inner(part), span, within)
        case "repeated", [part, quantifier, until]:
            repeated = _build_loop(inner(part), quantifier, span)
            return _add_until(repeated, until, conditions)
        case "looped", [*parts, again, quantifier, until]:
            if quantifier.data == "maybe":
                raise QueryError(
                    "THEN at the end of a group defines how one round follows another",
                    hint="repeat the group: (A a THEN)+",
                    span=get_span(again),
                )
            words, pause = get_children(again)
            how = Strategy[(words.split()[1:] or ["PARTITION"])[-1].upper()]
            repeated = _build_loop(build_group(Seq, map(inner, parts), span), quantifier, span)
            assert is_repetition(repeated)
            repeated = replace(repeated, inner=how, pause=_build_pause(pause))
            return _add_until(repeated, until, conditions)
        case "applied", [name, *arguments, variable]:
            operator = find_operator(unquote_name(name), operators, get_span(name))
            inputs = [inner(argument) for argument in arguments if argument.data not in _CONSTANTS]
            constants = [_constant(argument) for argument in arguments if argument.data in _CONSTANTS]
            result_name = unquote_name(variable) if variable else ""
            return OperatorCall(operator, tuple(inputs), tuple(constants), result_name, span=span)
        case "atom" | "one_of" as kind, [type_node, quantifier, variable, until, reach]:
            type_ = _types(type_node) if kind == "atom" else _read_types(type_node, variable)
            part = _add_until(_atom(type_, quantifier, variable, span), until, conditions)
            if reach:
                conditions.append(_within_condition(part, reach))
            return part
        case _:
            raise AssertionError(node.data)


def _build_pause(node: Node | None) -> MaxGap | None:
    return None if node is None else build_duration(node)


def _check_pause(pause: Node | None, part: Node) -> None:
    """Refuses `WITHIN 5 D d`: five days before an event d, or 5 before an event D with a name?"""
    if pause is None or pause.data != "so_long" or part.data != "atom":
        return
    (amount, unit), (type_, quantifier, variable, *_) = get_children(pause), get_children(part)
    letter = unit is not None and len(unit) == 1 and unit.isupper()
    if not letter or quantifier is not None or variable is not None:
        return
    raise QueryError(
        f"{amount} {unit} {type_} can be read in two ways: {unit} as a unit of time, or as the "
        f"type of the event {type_}",
        hint=f"write WITHIN {amount} ({unit} {type_}) for an event {unit}, and WITHIN {amount} "
        f"{unit.lower()} {type_} for a unit of time",
        span=get_span(pause).to(get_span(part)),
    )


def _add_until(part: Pattern, until: Node | None, conditions: list[Expr]) -> Pattern:
    """Adds the event that ends a loop."""
    if until is None:
        return part
    if not is_repetition(part):
        raise QueryError(
            "UNTIL ends a loop, and this is not one", hint="repeat it: B+ b[] UNTIL C c", span=get_span(until)
        )
    span = get_span(until)
    if until.data != "until_condition":
        *type_names, variable = get_children(until)
        atom = Atom(_types(*type_names), unquote_name(variable) if variable else "", span)
        return replace(part, until=Not(atom, span))
    (test,) = get_children(until)
    stop = build_expression(test)
    fields = [r for r in iterate_references(stop) if r.at is EventPosition.ONLY]
    loop_variables = {a.variable for a in iterate_atoms(part)}
    referenced = [r for r in fields if r.variable in loop_variables] or fields
    if len({r.variable for r in referenced}) != 1:
        raise QueryError(
            "UNTIL with a condition needs one event: it is not clear which one",
            hint="as in B+ b[] UNTIL b.price > 3; for another event: B+ b[] UNTIL C c, and what c must be in WHERE",
            span=span,
        )
    variable = referenced[0].variable
    conditions.append(rewrite_expr(stop, partial(_rename, variable, variable + UNTIL)))
    return replace(part, until=Not(Atom(_LIKE + variable, variable + UNTIL, span), span))


def _rename(old: str, new: str, node: Expr) -> Expr:
    """Renames `b.price`; `b[1].price` and `avg(b.price)` belong to the loop."""
    if isinstance(node, FieldRef) and node.variable == old and node.at is EventPosition.ONLY:
        return replace(node, variable=new)
    return node


def resolve_until_types(pattern: Pattern, conditions: list[Expr]) -> Pattern:
    """Gives the events that end loops the type of the variable in their condition.

    A variable that is not bound elsewhere is any event, as in `UNTIL z.price > 3`. It then keeps
    its name, also in `conditions`.
    """
    types = {a.variable: a.type for a in iterate_atoms(pattern)}

    def typed(part: Pattern) -> Pattern:
        if not is_event(part) or not str(part.type).startswith(_LIKE):
            return part
        variable = part.variable.removesuffix(UNTIL)
        if variable in types:
            return replace(part, type=types[variable])
        restore = partial(_rename, part.variable, variable)
        conditions[:] = [rewrite_expr(condition, restore) for condition in conditions]
        return replace(part, type=ANY, variable=variable)

    return rewrite_pattern(pattern, typed)


def _within_condition(part: Pattern, reach: Node) -> Expr:
    """Builds the condition of `B b WITHIN 5 minutes OF a`."""
    *_, other = get_children(reach)
    span = get_span(reach)
    duration = Literal(convert_length(build_duration(reach)), span)
    (atom,) = iterate_atoms(part) if not is_list(part) else (part.atom,)
    at = EventPosition.CURRENT if is_list(part) else EventPosition.ONLY
    end = FieldRef(atom.variable, "end", at, span=span)
    elapsed = Binary("-", end, FieldRef(unquote_name(other), "start", span=get_span(other)), span)
    return Binary("<=", elapsed, duration, span)


def _constant(node: Node) -> Literal:
    match build_expression(node):
        case Literal() as literal:
            return literal
        case Unary(operand=Literal(value=int() | float() | timedelta() as value), span=span):
            return Literal(-value, span)
        case _:
            raise QueryError("this has no negative", span=get_span(node))


def _types(*names: Token) -> Types:
    """Returns the types of the names; ANY without quotes stands for all types."""
    if any(name.upper() == "ANY" for name in names):
        return ANY
    types = tuple(dict.fromkeys(map(unquote_name, names)))
    return types[0] if len(types) == 1 else TypeUnion(types)


def _read_types(choice: Node, variable: Node) -> Types:
    """Returns the types in brackets before a variable: `(A|B) x`."""
    names: list[Token] = []
    for part in get_children(choice):
        children = get_children(part)
        if part.data != "atom" or any(piece is not None for piece in children[1:]):
            raise QueryError(
                "a variable after a bracket is one event, and the bracket lists its types",
                hint=f"as in (A|B) {unquote_name(get_children(variable)[0])}; if each part has its own "
                "variable, leave this one out",
                span=get_span(variable),
            )
        names.append(children[0])
    return _types(*names)


def _atom(type_: Types, quantifier: Node | None, variable: Node | None, span: Span) -> Pattern:
    name, brackets = get_children(variable) if variable else (None, None)
    atom = Atom(type_, unquote_name(name) if name else "", span)
    if brackets and (quantifier is None or quantifier.data == "maybe"):
        shown = format_types(type_)
        raise QueryError(
            f"{name}[] stands for several events, but {shown} has no + or *",
            hint=f"write {shown}+ {name}[] for one or more, or {shown} {name} for one",
            span=span,
        )
    return atom if quantifier is None else _build_loop(atom, quantifier, span)


def _build_loop(part: Pattern, quantifier: Node, span: Span) -> Pattern:
    if quantifier.data == "maybe":
        return part if get_form(part) is NodeForm.OPTION else Maybe(part, span)
    leave = LoopExit.FORK
    if quantifier.data in ("greedy", "reluctant"):
        leave = LoopExit[quantifier.data.upper()]
        quantifier, *_ = get_children(quantifier)
    least, most = _bounds(quantifier)
    if is_event(part):
        return Kleene(part, least, most, span, leave)
    return Repeat(part, least, most, leave, span)


def _bounds(quantifier: Node) -> tuple[int, int | None]:
    match quantifier.data, get_children(quantifier):
        case "some", _:
            return 1, None
        case "many", _:
            return 0, None
        case "exactly", [count]:
            return parse_whole_number(count), parse_whole_number(count)
        case "at_least", [least]:
            return parse_whole_number(least), None
        case "at_most", [most]:
            return 0, parse_whole_number(most)
        case _, [least, most]:
            return parse_whole_number(least), parse_whole_number(most)
        case _:
            raise AssertionError(quantifier.data)


def collect_variables(pattern: Pattern) -> set[str]:
    """Returns the variables that the text names."""
    named = {atom.variable for atom in iterate_atoms(pattern)}
    named |= {applied.variable for applied in iterate_operator_calls(pattern)}
    return named - {""}


def name_variables(pattern: Pattern, taken: set[str]) -> Pattern:
    """Names the variables of atoms like `SEQ(A, B, A)`: A, B and A2, and adds them to `taken`."""
    used: Counter[str] = Counter()

    def named(part: Pattern) -> Pattern:
        if not is_input(part) or part.variable:
            return part
        types = get_type_names(part.type) if is_event(part) else (part.operator.name,)
        base = "_or_".join(types) or "ANY"
        name = base
        while name in taken:
            used[base] += 1
            name = f"{base}{used[base] + 1}"
        taken.add(name)
        return replace(part, variable=name)

    return rewrite_pattern(pattern, named)


_DEEPEST = 200  # levels of syntax, since later passes recurse
_WIDEST = 32  # most levels that a chain of and/or adds


def parse(text: str, operators: Iterable[UserOperator] = ()) -> Query:
    """Parses a query over one stream, which may use these operators.

    >>> query = parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours")
    >>> query.strategy.value
    'skip_till_any_match'
    """
    match parse_statement(text, operators):
        case Query() as query:
            return query
        case ArchiveJoinQuery() as archive_join:
            raise QueryError(
                "JOIN ARCHIVE is not supported here yet",
                hint="leave it out: here a query covers one stream",
                span=archive_join.joins[0].span,
                text=text,
            )


def parse_statement(
    text: str, operators: Iterable[UserOperator] = (), parameters: Parameters = NO_PARAMETERS
) -> Query | ArchiveJoinQuery:
    """Parses a query, also one with JOIN ARCHIVE; `parameters` hold the values of its `:names`.

    >>> text = "Pass p JOIN ARCHIVE passes Pass q RANGE 6 hours BEFORE START ON [tag]"
    >>> parse_statement(text).joins[0].archive
    'passes'
    """
    if parameters.values:
        return _read(text, tuple(operators), parameters)
    try:
        return _read_cached(text, tuple(operators))
    except QueryError:
        if ":" not in text:
            raise
        return _read(text, tuple(operators), parameters)  # its errors explain how to pass a value


@lru_cache(maxsize=256)
def _read_cached(text: str, operators: tuple[UserOperator, ...]) -> Query | ArchiveJoinQuery:
    """Caches texts without parameters, whose meaning depends only on the known operators."""
    return _read(text, operators, NO_PARAMETERS)


def _read(text: str, operators: tuple[UserOperator, ...], parameters: Parameters) -> Query | ArchiveJoinQuery:
    try:
        tree = parse_tree(_grammar(), text, "start", parameters)
        check_depth(tree)
        return _statement(tree, text, operators)
    except UnexpectedInput as error:
        from ensue.parser.syntax_errors import explain_syntax_error

        raise explain_syntax_error(error, text, parameters) from None
    except QueryError as error:
        raise error.at(None, text) from None


@cache
def _grammar() -> Lark:
    return load_pattern_grammar("start")


def load_pattern_grammar(*rules: str) -> Lark:
    """Loads the grammar of the language, or the part that these rules need."""
    return load_grammar("ensue.parser", "patterns.lark", start=list(rules), postlex=ParameterPostLex())


def check_depth(tree: Node) -> None:
    """Raises a QueryError for a tree that is too deep for recursion."""
    pending: list[tuple[Node, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > _DEEPEST:
            raise QueryError(
                "this is nested too deeply",
                hint="split the condition at its 'and's, or list values with IN (...)",
                span=get_span(node),
            )
        is_chain = node.data in ("expression", "conjunction")
        child_depth = depth + (min(len(node.children), _WIDEST) if is_chain else 1)
        pending += [(child, child_depth) for child in node.children if isinstance(child, Tree)]


def _statement(tree: Node, text: str, operators: tuple[UserOperator, ...]) -> Query | ArchiveJoinQuery:
    *name, body = get_children(tree)
    pattern, *clause_nodes = get_children(body)
    joins = [clause for clause in clause_nodes if clause.data == "join"]
    clauses = collect_clauses(clause for clause in clause_nodes if clause.data != "join")
    limit, choose, grouping = (clauses.get(name) for name in ("limit", "choose", "grouping"))
    inline: list[list[Expr]] = [[] for _ in (pattern, *joins)]
    pattern_nodes = (pattern, *(get_children(join)[2] for join in joins))
    shapes = [
        transform_pattern(node, operators, conditions) for node, conditions in zip(pattern_nodes, inline, strict=True)
    ]
    names = set().union(*map(collect_variables, shapes))
    live, *archived = [
        resolve_until_types(name_variables(shape, names), conditions)
        for shape, conditions in zip(shapes, inline, strict=True)
    ]
    query = replace(build_match_query(live, clauses, text, inline[0]), name=unquote_name(name[0]) if name else None)
    columns, total, all_events = split_return(clauses.get("returning"))
    grouped = total is not None or grouping is not None
    exists = [column for column in columns if column.data == "exists"]
    returns = tuple(build_column(column, grouped=grouped) for column in columns if column.data != "exists")
    having = build_expression(get_children(clauses["having"])[0]) if "having" in clauses else None
    whole = build_whole_result(returns, total, grouping, clauses.get("ordering"), limit)
    match_limit = build_limit(limit) if limit and (whole is None or whole.first is None) else None
    if not joins:
        query = replace(query, returns=returns, having=having, limit=match_limit, exists=bool(exists))
        query = replace(query, choose=build_choose(choose) if choose else None)
        return check_structure(replace(query, all_events=all_events is not None, whole=whole))
    from ensue.analyzer.join_checks import build_no_summary_error, check_archive_join_structure
    from ensue.parser.clauses import build_archive_join

    if all_events is not None:
        raise QueryError(
            "ALL EVENTS cannot be combined with JOIN ARCHIVE",
            hint="leave it out: a row has the events of all sides as structs",
            span=get_span(all_events),
        )
    if choose and build_choose(choose):
        raise QueryError(
            "CHOOSE cannot be combined with JOIN ARCHIVE",
            hint="leave it out; LAST 1 keeps the latest archived match for each live one",
            span=get_span(choose),
        )
    for negation, _ in (conditions for shape in (live, *archived) for conditions in iterate_interval_negations(shape)):
        raise QueryError(
            "an absence with an explicit interval cannot be combined with JOIN ARCHIVE",
            hint="name the events between which nothing happens: SEQ(A a, !C c, B b)",
            span=negation.span,
        )
    if exists:
        raise build_no_summary_error("EXISTS", get_span(exists[0]))
    conditions = tuple(
        build_archive_join(node, shape, text, conditions)
        for node, shape, conditions in zip(joins, archived, inline[1:], strict=True)
    )
    return check_archive_join_structure(
        ArchiveJoinQuery(query, conditions, returns, having, match_limit, whole=whole, text=text)
    )
