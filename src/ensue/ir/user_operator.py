"""User-defined operators S = (Q, F, Z), and the analysis of their functions.

Q decides whether events combine, F computes the start, the end and the attributes of the result,
and Z declares the attributes.
"""

import dis
import hashlib
import inspect
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from ensue.errors import OperatorError, QueryError, Span, did_you_mean
from ensue.ir.pattern import GROUPS
from ensue.schema import ValueKind

Function = Callable[..., Any]


def unwrap_function(function: Function | None) -> Function | None:
    """Returns the Python function of one that Numba has compiled."""
    return getattr(function, "py_func", function)


def collect_names(function: Function) -> frozenset[str]:
    """Returns the names that a function uses, including those in functions that it calls.

    >>> sorted(collect_names(lambda a, b: a.price < b.price))
    ['price']
    """
    return frozenset(name for called in _iterate_called(function) for name in _iterate_names(called.__code__))


def find_parameter_attributes(function: Function) -> tuple[tuple[str, ...], ...]:
    """Returns, by parameter, the attributes that a function reads directly from it.

    >>> find_parameter_attributes(lambda a, b: a.price < b.price and a.size > 1)
    (('price', 'size'), ('price',))
    """
    plain = unwrap_function(function)
    if not isinstance(plain, FunctionType):
        return ()
    code = plain.__code__
    attributes: dict[str, dict[str, None]] = {n: {} for n in code.co_varnames[: code.co_argcount]}
    loaded: object = None
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_ATTR" and loaded in attributes:
            attributes[str(loaded)][str(step.argval)] = None
        loaded = None
        if step.opname.startswith("LOAD_FAST"):
            loaded = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return tuple(tuple(names) for names in attributes.values())


class _Known(float):
    """A number with an identity that cannot be compared, so that no result depends on it."""

    def _refuse(self, _: object) -> bool:
        raise TypeError("its value is not known")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = float.__hash__

    def __bool__(self) -> bool:
        raise TypeError("its value is not known")


class _Probe:
    """An event that has every field, each a distinct number."""

    def __init__(self) -> None:
        self.fields: dict[str, _Known] = {}

    def __getattr__(self, name: str) -> _Known:
        return self.fields.setdefault(name, _Known(1.5))


def preserves_times(function: Function, events: int) -> tuple[bool, bool]:
    """Whether a function provably returns the first event's start, and the last event's end.

    >>> preserves_times(lambda a, b: (a.start, b.end, b.x - a.x), 2)
    (True, True)
    >>> preserves_times(lambda a, b: (b.end, b.end), 2)
    (False, True)
    """
    plain = unwrap_function(function)
    if not isinstance(plain, FunctionType):
        return False, False
    steps = list(dis.get_instructions(plain))
    if any(step.opcode in dis.hasjrel or step.opcode in dis.hasjabs for step in steps):
        return False, False
    probes = [_Probe() for _ in range(events)]
    others = [_Known(2.5)] * (plain.__code__.co_argcount - events)
    try:
        result = plain(*probes, *others)
        return result[0] is probes[0].start, result[1] is probes[-1].end
    except Exception:  # noqa: BLE001  user code may raise anything; then nothing is proven
        return False, False


def compute_code_fingerprint(*parts: object) -> str:
    """Hashes functions by their code, their constants and the functions that they call.

    >>> compute_code_fingerprint(lambda a: a.x > 1) == compute_code_fingerprint(lambda a: a.x > 2)
    False
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        for text in _describe(part, set()):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _iterate_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iterate_names(constant)


def get_captured_values(function: FunctionType) -> dict[str, Any]:
    """Returns the globals and closure variables that a function uses."""
    used = {n: function.__globals__[n] for n in _iterate_names(function.__code__)
            if n in function.__globals__}  # fmt: skip
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            used[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return dict(sorted(used.items()))


def _iterate_called(function: Function, seen: set[int] | None = None) -> Iterator[FunctionType]:
    """Yields a function and all functions that it refers to."""
    seen = set() if seen is None else seen
    plain = unwrap_function(function)
    if not isinstance(plain, FunctionType) or id(plain) in seen:
        return
    seen.add(id(plain))
    yield plain
    for value in get_captured_values(plain).values():
        yield from _iterate_called(value, seen)


def _describe(part: object, seen: set[int]) -> Iterator[str]:
    plain = unwrap_function(part) if callable(part) else part
    match plain:
        case FunctionType():
            if id(plain) in seen:
                return
            seen.add(id(plain))
            yield from _describe_code(plain.__code__)
            yield repr(plain.__defaults__)
            for name, value in get_captured_values(plain).items():
                yield name
                yield from _describe(value, seen)
        case ModuleType() | BuiltinFunctionType() | type():
            yield plain.__name__
        case _:
            yield repr(plain) if type(plain).__repr__ is not object.__repr__ else str(type(plain))


def _describe_code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    yield repr(code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _describe_code(constant)
        else:
            yield repr(constant)


ATTRIBUTE_KINDS = {
    kind.value: kind
    for kind in (
        ValueKind.FLOAT, ValueKind.INTEGER, ValueKind.BOOLEAN, ValueKind.TIMESTAMP,
        ValueKind.DURATION, ValueKind.STRING,
    )
}  # fmt: skip
TIME_ATTRIBUTES = ("start", "end")  # attributes of every event and result


class OperatorInputs(Enum):
    """The inputs of an operator."""

    PAIR = "pair"  # Q(a, b), F(a, b)
    EACH = "each"  # Q(a), F(a)
    REPEAT = "repeat"  # Q(last, a), F(a); `last` is the previous event of the partition

    @property
    def inputs(self) -> int:
        return 2 if self is OperatorInputs.PAIR else 1


@dataclass(frozen=True, slots=True)
class UserOperator:
    """A user-defined operator S = (Q, F, Z), created by `operator`.

    `cost` is the cost of one call of Q relative to a comparison such as `a.x < b.x`; `passes` is
    its assumed selectivity until it is measured.

    >>> import ensue
    >>> near = ensue.operator("near", q=lambda a, b, most: b.start - a.end <= most)
    >>> near.name, near.parameters
    ('near', ('most',))
    """

    name: str
    over: OperatorInputs
    q: Function | None  # None: everything combines
    f: Function | None  # None: from the first start to the last end
    z: tuple[tuple[str, ValueKind], ...]
    parameters: tuple[str, ...]  # of Q, after the events
    required: int  # how many of them have no default
    constants_for_f: bool = False  # whether F takes them too
    # whether a result provably starts with its first event, and ends with its last one
    keeps: tuple[bool, bool] = (False, False)
    in_order: bool = True  # for a pair: the first ends before the second starts
    cost: float = 1.0
    passes: float = 0.5
    reads: frozenset[str] = field(default=frozenset(), repr=False)  # names in Q and F
    takes: tuple[frozenset[str], ...] = ()  # by input, fields that it must have
    fingerprint: str = ""  # changes with the code and the constants of Q and F

    def __repr__(self) -> str:
        return f"Operator({self.name!r}, {self.fingerprint!r})"


def operator(
    name: str,
    *,
    q: Function | None = None,
    f: Function | None = None,
    z: Mapping[str, str] | None = None,
    over: str = "pair",
    order: str = "sequence",
    cost: float = 1.0,
    passes: float = 0.5,
    reads: Iterable[str] = (),
) -> UserOperator:
    """Creates an operator from its functions, or raises an OperatorError.

    >>> dedup = operator("dedup", q=lambda last, e, period: e.start - last.start >= period, over="repeat")
    >>> dedup.parameters
    ('period',)
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.upper() in (*GROUPS, "NOT"):
        raise OperatorError(f"{name!r} cannot be the name of an operator: patterns use it as name(A a, B b)")
    if over not in [o.value for o in OperatorInputs]:
        raise OperatorError(f"operator {name}: over={over!r} must be 'pair', 'each' or 'repeat'")
    if order not in ("sequence", "any"):
        raise OperatorError(f"operator {name}: order={order!r} must be 'sequence' or 'any'")
    kind = OperatorInputs(over)
    q, f = unwrap_function(q), unwrap_function(f)
    if q is None and kind is OperatorInputs.REPEAT:
        raise OperatorError(f"operator {name}: a repeat needs q(last, e), which decides when it fires again")
    parameters, required = _get_parameters(name, "q", q, 1 if kind is OperatorInputs.EACH else 2)
    own, own_required = _get_parameters(name, "f", f, kind.inputs)
    if q is None:
        parameters, required = own, own_required
    elif own and own != parameters:
        raise OperatorError(
            f"operator {name}: q takes {_format_names(parameters)} after the events and f takes "
            f"{_format_names(own)}\n  hint: f takes the same parameters as q, or none"
        )
    if not cost > 0 or not 0 < passes <= 1:
        raise OperatorError(f"operator {name}: cost must be positive, and passes above 0 and at most 1")
    ordered = order == "sequence" or kind is not OperatorInputs.PAIR
    keeps = (True, True) if f is None else (False, False)
    if f is not None and ordered:
        keeps = preserves_times(f, kind.inputs)
    functions = [function for function in (q, f) if function is not None]
    attributes = _read_attributes(name, z or {}, f)
    field_names = (reads,) if isinstance(reads, str) else tuple(reads)
    code = compute_code_fingerprint(name, over, order, [(n, k.value) for n, k in attributes], *functions)
    return UserOperator(
        name, kind, q, f, attributes, parameters, required, bool(own), keeps,
        order == "sequence", cost, passes,
        frozenset(field_names).union(*map(collect_names, functions)), _find_reads(kind, q, f), code,
    )  # fmt: skip


def _find_reads(over: OperatorInputs, q: Function | None, f: Function | None) -> tuple[frozenset[str], ...]:
    """Returns, by input, the attributes that the functions read directly."""
    of_q = find_parameter_attributes(q) if q is not None else ()
    of_f = find_parameter_attributes(f) if f is not None else ()
    if over is OperatorInputs.REPEAT:
        of_q = of_q[1:]  # the first argument is the previous event
    return tuple(
        frozenset(name for function in (of_q, of_f) for name in next(iter(function[k:]), ()))
        for k in range(over.inputs)
    )


def _get_parameters(name: str, which: str, function: Function | None, events: int) -> tuple[tuple[str, ...], int]:
    """Returns the parameters after the events, and how many of them have no default."""
    if function is None:
        return (), 0
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise OperatorError(f"operator {name}: {which} is not a function: {error}") from None
    plain = all(
        p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in parameters
    )
    if len(parameters) < events or not plain:
        wanted = "one event" if events == 1 else "two events"
        raise OperatorError(
            f"operator {name}: {which}({', '.join(map(str, parameters))}) must take {wanted}, "
            "then its parameters by position"
        )
    rest = parameters[events:]
    required = sum(p.default is inspect.Parameter.empty for p in rest)
    return tuple(p.name for p in rest), required


def _format_names(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})"


def _read_attributes(name: str, z: Mapping[str, str], f: Function | None) -> tuple[tuple[str, ValueKind], ...]:
    attributes = []
    for attribute, kind in z.items():
        if attribute in TIME_ATTRIBUTES:
            raise OperatorError(f"operator {name}: every result has '{attribute}', leave it out of z")
        if kind not in ATTRIBUTE_KINDS:
            raise OperatorError(
                f"operator {name}: z[{attribute!r}] is {kind!r}\n  hint: {did_you_mean(str(kind), ATTRIBUTE_KINDS)}"
            )
        attributes.append((attribute, ATTRIBUTE_KINDS[kind]))
    if attributes and f is None:
        raise OperatorError(
            f"operator {name}: z names attributes, and there is no f to give them\n"
            "  hint: f=lambda a, b: (a.start, b.end, b.price - a.price)"
        )
    return tuple(attributes)


def find_operator(name: str, operators: Iterable[UserOperator], span: Span | None) -> UserOperator:
    """Returns the operator of a name among those that a call was given."""
    known = {operator.name: operator for operator in operators}
    if name in known:
        return known[name]
    near = did_you_mean(name, [*known, *(g for g in GROUPS if g != name)])
    if near is not None and not near.startswith("did"):
        *most, last = GROUPS
        near = f"{', '.join(most)} and {last} are known" + "".join(f", {n}" for n in known)
        near += "; definitions=ensue.operator(...) adds others"
    raise QueryError(f"unknown operator '{name}'", hint=near, span=span)
