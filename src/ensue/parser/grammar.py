"""Loads grammars from saved parser tables and parses texts with parameter values.

Lark takes ten times as long to compute the tables of a grammar. `make grammars` writes them into the package.
"""

import hashlib
import pickle
import sys
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.resources import files
from io import BytesIO
from typing import Any

import lark
from lark import Lark, Token, Tree, UnexpectedInput
from lark.parsers.lalr_analysis import Shift

from ensue import cache_files
from ensue.errors import QueryError, Span
from ensue.ir.expression import Constant
from ensue.parser.parameters import Parameters, list_value_error
from ensue.printing.expression_printer import format_text

# Lark raises these for tables of another version.
_UNREADABLE = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, KeyError, TypeError)


def load_grammar(package: str, name: str, **options: Any) -> Lark:
    """Loads the parser of a grammar file; its saved tables are keyed by all their inputs."""
    folder = files(package)
    text = folder.joinpath(name).read_text("utf-8")
    options |= {"parser": "lalr", "lexer": "contextual", "propagate_positions": True, "maybe_placeholders": True}
    digest = _digest(text, options)
    saved = folder.joinpath(f"{name.removesuffix('.lark')}.{options.get('start', ['start'])[0]}.tables")
    head, _, content = saved.read_bytes().partition(b"\n") if saved.is_file() else (b"", b"", b"")
    if head.startswith(digest.encode()):  # after it, the version of Lark
        return Lark.load(BytesIO(zlib.decompress(content)))
    key = f"grammar-{digest}-{sys.version_info[0]}.{sys.version_info[1]}"
    tables = cache_files.read_cached(key)
    if tables is not None:
        try:
            return Lark.load(BytesIO(tables))
        except _UNREADABLE as error:
            reason = f"{type(error).__name__}: {error}"
            cache_files.warn_once("grammar", f"the cached parser tables of {name} are rebuilt ({reason})")
    parser = Lark(text, **options)
    buffer = BytesIO()
    parser.save(buffer)
    cache_files.write_cached(key, buffer.getvalue())
    return parser


def _digest(text: str, options: dict[str, Any]) -> str:
    settings = [(name, getattr(value, "always_accept", value)) for name, value in options.items()]
    inputs = (lark.__version__, text, sorted(settings))
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:32]


PARAMETER = "PARAMETER"
DATE = "BARE_DATE"


class ParameterPostLex:
    """Lets Lark accept parameters anywhere in a text; `parse_tree` inserts the values."""

    always_accept = (PARAMETER, DATE)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def parse_tree(grammar: Lark, text: str, rule: str, parameters: Parameters) -> Tree[Token]:
    """Parses a text to its syntax tree; a parameter value becomes tokens and is never parsed."""
    parser: Any = grammar.parse_interactive(text, start=rule)
    values = _ParameterValues(parameters)
    last = Token("$END", "", 0, 1, 1)
    try:
        for last in parser.lexer_thread.lex(parser.parser_state):
            for token in values.fill(_as_name(last, parser)):
                parser.feed_token(token)
        tree: Tree[Token] = parser.feed_eof(last)
    except UnexpectedInput as error:
        error.interactive_parser = parser
        raise
    return tree


def _as_name(token: Token, parser: Any) -> Token:
    """Treats a keyword as a name where only a name is allowed: `SEQ(A within, B b)`."""
    if token.type == "NAME" or not token.isidentifier() or "NAME" not in parser.choices():
        return token
    state = parser.parser_state
    if _accepts(state, token.type) or not _accepts(state, "NAME"):
        return token
    return Token.new_borrow_pos("NAME", str(token), token)


def _accepts(state: Any, kind: str) -> bool:
    """Whether the parser accepts a token of a kind next.

    Lark's `accepts` copies the whole parser for each kind of token. This simulates the reductions
    on a small stack above the parser's, so depth costs nothing.
    """
    states, parser_stack, pushed = state.parse_conf.states, state.state_stack, list[int]()
    height = len(parser_stack)
    while True:
        top = pushed[-1] if pushed else parser_stack[height - 1]
        action, target = states[top].get(kind, (None, None))
        if action is None:
            return False
        if action is Shift:
            return True
        removed = len(target.expansion)
        height -= max(0, removed - len(pushed))
        del pushed[max(0, len(pushed) - removed) :]
        top = pushed[-1] if pushed else parser_stack[height - 1]
        pushed.append(states[top][target.origin.name][1])


class _ParameterValues:
    """Replaces the parameters in a stream of tokens by their values.

    A list is allowed after IN, with or without parentheses around it.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.before = ""  # the kind of the token before
        self.lists: list[bool] = []  # for each open parenthesis, whether it follows IN
        self.listed: Token | None = None  # the list inserted last

    def fill(self, token: Token) -> Iterator[Token]:
        if self.listed is not None and token.type not in ("COMMA", "RPAR"):
            raise list_value_error(self.listed[1:], _span(self.listed))
        self.listed = None
        if token.type == DATE:
            raise QueryError(
                f"{token} is a subtraction, but you probably mean a date",
                hint=f"write DATE '{token}', or put blanks around the minus signs",
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
        constants = self.parameters.constants(token[1:], _span(token))
        if not isinstance(constants, list):
            if self.before == "_IN":  # x IN :names, of one name
                constants = [constants]
            else:
                yield from _tokens(constants, token)
                return
        follows_in = self.before == "_IN"
        in_list = bool(self.lists) and self.lists[-1] and self.before in ("LPAR", "COMMA")
        if not follows_in and not in_list:
            raise list_value_error(token[1:], _span(token))
        if follows_in:
            yield Token.new_borrow_pos("LPAR", "(", token)
        for number, value in enumerate(constants):
            if number:
                yield Token.new_borrow_pos("COMMA", ",", token)
            yield from _tokens(value, token)
        if follows_in:
            yield Token.new_borrow_pos("RPAR", ")", token)
        else:
            self.listed = token


def _span(token: Token) -> Span:
    assert token.start_pos is not None
    return Span(token.start_pos, token.start_pos + len(token))


def _tokens(value: Constant, position: Token) -> Iterator[Token]:
    """Yields the tokens that spell a constant."""
    for kind, text in _list_constant_tokens(value):
        yield Token.new_borrow_pos(kind, text, position)


def _list_constant_tokens(value: Constant) -> list[tuple[str, str]]:
    match value:
        case None:
            return [("_NULL", "NULL")]
        case bool():
            return [("_TRUE", "TRUE") if value else ("_FALSE", "FALSE")]
        case str():
            return [("STRING", format_text(value))]
        case int() | float():
            digits = repr(value)
            if digits.startswith("-"):
                return [("MINUS", "-"), ("NUMBER", digits[1:])]
            return [("NUMBER", digits)]
        case datetime():
            return [("TIMESTAMP", "TIMESTAMP"), ("STRING", format_text(value.isoformat(sep=" ")))]
        case timedelta():
            length = value // timedelta(microseconds=1)
            return [("_INTERVAL", "INTERVAL"), ("STRING", format_text(f"{length} us"))]
