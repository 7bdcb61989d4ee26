"""Reading a text by a grammar, with the values of parameters in place of their names."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput
from lark.parsers.lalr_analysis import Shift

from ensue.algebra.predicate import Constant
from ensue.errors import QueryError
from ensue.languages.parameters import Parameters, several_values
from ensue.span import Span

PARAMETER = "PARAMETER"
DATE = "BARE_DATE"


class AnywhereInText:
    """Lets Lark find parameters wherever they stand in a text; `read` puts values in."""

    always_accept = (PARAMETER, DATE)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def read(grammar: Lark, text: str, rule: str, parameters: Parameters) -> Tree[Token]:
    """The syntax tree of a text. A value becomes tokens of its own: it is never read as text."""
    reading: Any = grammar.parse_interactive(text, start=rule)
    places = _Places(parameters)
    last = Token("$END", "", 0, 1, 1)
    try:
        for last in reading.lexer_thread.lex(reading.parser_state):
            for token in places.filled(_as_name(last, reading)):
                reading.feed_token(token)
        tree: Tree[Token] = reading.feed_eof(last)
    except UnexpectedInput as error:
        error.interactive_parser = reading
        raise
    return tree


def _as_name(token: Token, reading: Any) -> Token:
    """A keyword that has no place here, but a name has, is a name: `SEQ(A within, B b)`."""
    if token.type == "NAME" or not token.isidentifier() or "NAME" not in reading.choices():
        return token
    state = reading.parser_state
    if _takes(state, token.type) or not _takes(state, "NAME"):
        return token
    return Token.new_borrow_pos("NAME", str(token), token)


def _takes(state: Any, kind: str) -> bool:
    """Whether a token of a kind may come next.

    Lark's own `accepts` copies the whole parser for each kind that there is. What is below the
    states that a reduction takes away is not touched, so depth costs nothing.
    """
    states, below, pushed = state.parse_conf.states, state.state_stack, list[int]()
    height = len(below)
    while True:
        action, what = states[pushed[-1] if pushed else below[height - 1]].get(kind, (None, None))
        if action is None:
            return False
        if action is Shift:
            return True
        gone = len(what.expansion)
        height -= max(0, gone - len(pushed))
        del pushed[max(0, len(pushed) - gone) :]
        pushed.append(states[pushed[-1] if pushed else below[height - 1]][what.origin.name][1])


class _Places:
    """The tokens of a text, one by one, with values for its parameters.

    A list stands behind IN, with or without parentheses around it.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.before = ""  # the kind of the token before
        self.lists: list[bool] = []  # of each parenthesis that is open: is it one behind IN?
        self.listed: Token | None = None  # a list that was put in just now

    def filled(self, token: Token) -> Iterator[Token]:
        if self.listed is not None and token.type not in ("COMMA", "RPAR"):
            raise several_values(self.listed[1:], _span(self.listed))
        self.listed = None
        if token.type == DATE:
            raise QueryError(
                f"{token} is a subtraction, but you probably mean a date",
                hint=f"write DATE '{token}', or with blanks what is to be subtracted",
                span=_span(token),
            )
        if token.type == PARAMETER:
            yield from self._values(token)
        else:
            yield token
        if token.type == "LPAR":
            self.lists.append(self.before == "_IN")
        elif token.type == "RPAR":
            del self.lists[-1:]
        self.before = token.type

    def _values(self, token: Token) -> Iterator[Token]:
        found = self.parameters.constants(token[1:], _span(token))
        if not isinstance(found, list):
            if self.before == "_IN":  # x IN :names, of one name
                found = [found]
            else:
                yield from _tokens(found, token)
                return
        behind_in = self.before == "_IN"
        inside = bool(self.lists) and self.lists[-1] and self.before in ("LPAR", "COMMA")
        if not behind_in and not inside:
            raise several_values(token[1:], _span(token))
        if behind_in:
            yield Token.new_borrow_pos("LPAR", "(", token)
        for number, value in enumerate(found):
            if number:
                yield Token.new_borrow_pos("COMMA", ",", token)
            yield from _tokens(value, token)
        if behind_in:
            yield Token.new_borrow_pos("RPAR", ")", token)
        else:
            self.listed = token


def _span(token: Token) -> Span:
    assert token.start_pos is not None
    return Span(token.start_pos, token.start_pos + len(token))


def _tokens(value: Constant, place: Token) -> Iterator[Token]:
    """A constant as the tokens that it is written by."""
    for kind, text in _written(value):
        yield Token.new_borrow_pos(kind, text, place)


def _written(value: Constant) -> list[tuple[str, str]]:
    match value:
        case None:
            return [("_NULL", "NULL")]
        case bool():
            return [("_TRUE", "TRUE") if value else ("_FALSE", "FALSE")]
        case str():
            return [("STRING", _quoted(value))]
        case int() | float():
            digits = repr(value)
            if digits.startswith("-"):
                return [("MINUS", "-"), ("NUMBER", digits[1:])]
            return [("NUMBER", digits)]
        case datetime():
            return [("TIMESTAMP", "TIMESTAMP"), ("STRING", _quoted(value.isoformat(sep=" ")))]
        case timedelta():
            length = value // timedelta(microseconds=1)
            return [("_INTERVAL", "INTERVAL"), ("STRING", _quoted(f"{length} us"))]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
