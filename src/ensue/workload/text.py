"""A workload as text: what a checkpoint is known by, and what the end of a stream is read from.

Every stage of a chain has a text of its own. It says of which queries the chain is, not how they
are planned; how much they may hold is no part of it. Texts of earlier releases, one kind for a
query, one for several and one for a tower, are read as well.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator, known_operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.tower import Definition, Tower
from ensue.archives.contract import Archive
from ensue.errors import QueryError, StateError
from ensue.languages.patterns import parse, statement
from ensue.languages.printing import show
from ensue.languages.row_patterns.language import claims
from ensue.languages.row_patterns.text import show_clause
from ensue.plan.planning import DEFAULT, Planning
from ensue.workload.asked import Asked
from ensue.workload.correlations.prepare import Wanted
from ensue.workload.correlations.prepared import NO_PAST, Pasts
from ensue.workload.planned import Wishes
from ensue.workload.source import Source
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.subscribed import Subscribed

FORMAT = 2
_BEGUN: dict[tuple[str, str], Operator] = {}  # of streams that this process has begun
_SETS: dict[str, Subscribed] = {}  # of subscriptions in memory that these ask for
_TABLES: dict[str, Archive] = {}  # tables in memory that these look things up in, by digest


def text_of(
    asked: Sequence[Asked], source: Source, wishes: Wishes, lanes: int, pasts: Pasts = NO_PAST
) -> str:
    """The text of a chain of these queries."""
    planning = wishes.planning
    return json.dumps(
        {
            "format": FORMAT,
            "asked": [_described(one) for one in asked],
            **source.described(),
            "lanes": lanes,
            "emit_timeouts": wishes.emit_timeouts,
            "levels": wishes.levels,
            "trace": wishes.trace,
            "planning": None if planning == DEFAULT else planning.described(),
            "operators": {o.name: o.fingerprint for one in asked for o in one.operators},
            **({} if wishes.ids else {"ids": False}),
            **({"flat": True} if wishes.flat else {}),
            **_past(asked, wishes, pasts),
        }
    )


def _past(asked: Sequence[Asked], wishes: Wishes, pasts: Pasts) -> dict[str, Any]:
    """The archives of queries that have a past; other texts do not speak of any."""
    names = {j.archive for one in asked if isinstance(one.query, Correlation)
             for j in one.query.joins}  # fmt: skip
    names |= set() if pasts.own is None else {pasts.own}
    if not names:
        return {}
    return {
        "archives": {name: pasts.archives[name].described() for name in sorted(names)},
        "archive": pasts.own,
        "cut": pasts.cut,
        "access": wishes.access.access,
        "latency": wishes.access.latency,
    }


def stage_text(chain: str, number: int) -> str:
    """The text of one of a chain's stages."""
    return json.dumps({**json.loads(chain), "stage": number})


def _described(one: Asked) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.name, "number": one.number}
    match one.query:
        case Correlation(of_clauses=True):
            return found | {"joined": show(one.query)}
        case Query() | Correlation():
            return found | {"query": show(one.query)}
        case Tower(definitions=definitions, query=top, emit=emit):
            below = {d.name: show(d.query) for d in definitions}
            return found | {"query": show(top), "definitions": below, "emit": list(emit)}
        case Subscribed(log=log):
            return found | {"subscriptions": log.identity}
        case Recognition():
            return found | {"query": show_clause(one.query)}


def upgraded(text: str) -> dict[str, Any]:
    """The text of a stage as this release writes it, as plain values."""
    written: dict[str, Any] = json.loads(text)
    if "format" in written:
        if written["format"] != FORMAT:
            raise StateError(
                f"the checkpoint describes its queries in format {written['format']}, and this "
                f"release reads up to {FORMAT}\n"
                "  hint: use the release that wrote it, or start with a new checkpoint"
            )
        return written
    common: dict[str, Any] = {
        "emit_timeouts": False, "levels": None, "trace": False, "planning": None,
        "operators": {}, "stage": 0,
    }  # fmt: skip
    names = {"query", "queries", "names", "numbers", "definitions", "emit", "streaming"}
    rest = {name: value for name, value in written.items() if name not in names}
    return {"format": FORMAT, "asked": _asked_before(written), **common, **rest}


def _asked_before(written: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "queries" in written:
        entries = zip(written["names"], written["numbers"], written["queries"], strict=True)
        return [{"name": name, "number": number, "query": q} for name, number, q in entries]
    one = {"name": None, "number": 0, "query": written["query"]}
    if "definitions" in written:
        one |= {"definitions": written["definitions"], "emit": written["emit"]}
    return [one]


# ------------------------------------------------------------------------------ reading


def read(texts: Iterable[str], operators: Iterable[Operator] = ()) -> dict[str, Any]:
    """What a workload is made of, from the texts of its stages.

    Operators of users are known by name and must be the same ones.
    """
    stages = [upgraded(text) for text in texts]
    operators = tuple(operators)
    asked: dict[int, Asked] = {}
    for stage in stages:
        for one in stage["asked"]:
            query = _again(one, stage["operators"], operators)
            asked[one["number"]] = Asked(query, one["name"], one["number"])
    first, levels = stages[0], stages[0]["levels"]
    return {
        "asked": tuple(asked[number] for number in sorted(asked)),
        "source": Source.again(first),
        "wishes": Wishes(
            emit_timeouts=first["emit_timeouts"],
            levels=tuple(levels) if isinstance(levels, list) else levels,
            trace=first["trace"],
            streaming=True,
            planning=Planning.of(first["planning"]),
            access=Wanted(first.get("access"), first.get("latency")),
            ids=first.get("ids", True),
            flat=first.get("flat", False),
        ),
        "lanes": max(stage["lanes"] for stage in stages),
        "pasts": _pasts(stages),
    }


def _pasts(stages: Sequence[Mapping[str, Any]]) -> Pasts:
    """The archives of all stages, as they were."""
    described = {n: d for stage in stages for n, d in stage.get("archives", {}).items()}
    from ensue.archives.opening import again

    archives = {name: again(one, _TABLES) for name, one in described.items()}
    first = stages[0]
    return Pasts(archives, first.get("archive"), first.get("cut"))


def _again(
    one: Mapping[str, Any], used: Mapping[str, str], operators: Sequence[Operator]
) -> Query | Tower | Correlation | Subscribed | Recognition:
    def query(text: str) -> Query:
        return parse(text, operators_again(used, operators))

    if "subscriptions" in one:
        return _subscribed(one["subscriptions"])
    if "joined" in one:
        from ensue.languages.sql.joins import read_joined  # needs sqlglot, as the next one

        return read_joined(one["joined"])
    if claims(one["query"]):
        from ensue.languages.row_patterns.clause import read_bare

        return read_bare(one["query"])
    if "definitions" not in one:
        return statement(one["query"], operators_again(used, operators))
    definitions = tuple(Definition(n, query(d)) for n, d in one["definitions"].items())
    return Tower(definitions, query(one["query"]), tuple(one["emit"]))


def _subscribed(identity: str) -> Subscribed:
    """The set that a checkpoint knows so."""
    kind, _, rest = identity.partition(" ")
    if kind == "folder":
        log = Log(rest)
        return Subscribed(log, log.latest())
    if identity not in _SETS:
        raise StateError(
            "the stream's subscriptions were in the memory of the process that began it\n"
            "  hint: run this in that process; ensue.Subscriptions(folder=...) keeps a set for "
            "others, too"
        )
    return _SETS[identity]


def remember(asked: Iterable[Asked], pasts: Pasts = NO_PAST) -> None:
    """Keeps the operators of a stream and its archives in memory, so that its end finds them."""
    for archive in pasts.archives.values():
        described = archive.described()
        if described["kind"] == "table":
            _TABLES[str(described["version"])] = archive
    for one in asked:
        if isinstance(one.query, Subscribed):
            _SETS[one.query.log.identity] = one.query
        for operator in one.operators:
            _BEGUN[operator.name, operator.fingerprint] = operator


def operators_again(
    used: Mapping[str, str], operators: Iterable[Operator]
) -> tuple[Operator, ...]:
    """The operators of a checkpoint's query, as they were when it began."""
    operators = tuple(operators)
    for name, fingerprint in used.items():
        if (name, fingerprint) in _BEGUN:
            operators = (*operators, _BEGUN[name, fingerprint])
            continue
        try:
            found = known_operator(name, operators, None)
        except QueryError:
            raise StateError(
                f"the stream's query uses the operator {name}, which is not known here\n"
                f"  hint: run its ensue.operator({name!r}, ...) first"
            ) from None
        if found.fingerprint != fingerprint:
            raise StateError(
                f"the operator {name} is not what it was when the stream began\n"
                "  hint: give it the functions and attributes it had, or begin a new checkpoint"
            )
    return operators
