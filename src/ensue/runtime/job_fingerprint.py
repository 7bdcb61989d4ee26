"""The text that identifies a job in a checkpoint, and from which a stream can be finished.

Every stage of a pipeline has a text. It contains the queries, not their plans or limits.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from ensue.archives.archive import Archive
from ensue.errors import QueryError, StateError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.user_operator import UserOperator, find_operator
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.runtime.options import NO_ARCHIVES, AccessOptions, ArchiveSet, RunOptions
from ensue.runtime.query_kinds import find_kind, get_kind
from ensue.runtime.query_spec import QuerySpec, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema

FORMAT = 3
_BEGUN: dict[tuple[str, str], UserOperator] = {}  # of streams that this process started
_SETS: dict[str, SubscriptionsSpec] = {}  # subscriptions in memory of these streams
_TABLES: dict[str, Archive] = {}  # archives in memory of these streams, by digest


def format_pipeline(
    asked: Sequence[QuerySpec],
    source: SourceSchema,
    options: RunOptions,
    key_groups: int,
    pasts: ArchiveSet = NO_ARCHIVES,
) -> str:
    """The text of a pipeline of these queries."""
    planning = options.planning
    return json.dumps(
        {
            "format": FORMAT,
            "asked": [_described(one) for one in asked],
            **source.described(),
            "key_groups": key_groups,
            "emit_timeouts": options.emit_timeouts,
            "levels": options.levels,
            "trace": options.trace,
            "planning": None if planning == DEFAULT_OPTIONS else planning.described(),
            "operators": {o.name: o.fingerprint for one in asked for o in one.operators},
            **({} if options.ids else {"ids": False}),
            **({"flat": True} if options.flat else {}),
            **_past(asked, options, pasts),
        }
    )


def _past(asked: Sequence[QuerySpec], options: RunOptions, pasts: ArchiveSet) -> dict[str, Any]:
    """The archives that queries read."""
    names = {j.archive for one in asked if isinstance(one.query, ArchiveJoinQuery)
             for j in one.query.joins}  # fmt: skip
    names |= set() if pasts.own is None else {pasts.own}
    if not names:
        return {}
    return {
        "archives": {name: pasts.archives[name].described() for name in sorted(names)},
        "archive": pasts.own,
        "cut": pasts.cut,
        "access": options.access.access,
        "latency": options.access.latency,
    }


def format_stage(chain: str, number: int) -> str:
    """The text of a stage of a pipeline."""
    return json.dumps({**json.loads(chain), "stage": number})


def _described(one: QuerySpec) -> dict[str, Any]:
    kind = find_kind(one.query)
    described: dict[str, Any] = resolve_name(kind.describe)(one.query)
    return {"name": one.name, "number": one.number, "kind": kind.name, **described}


def parse_stage(text: str) -> dict[str, Any]:
    """Parses the text of a stage. Raises a StateError for another format."""
    written: dict[str, Any] = json.loads(text)
    if written.get("format") != FORMAT:
        raise StateError(
            f"the checkpoint describes its queries in format {written.get('format')}, and this "
            f"release reads format {FORMAT}\n"
            "  hint: use the release that wrote it, or start with a new checkpoint"
        )
    return written


def parse_stages(texts: Iterable[str], operators: Iterable[UserOperator] = ()) -> dict[str, Any]:
    """The arguments of a workload, from the texts of its stages and its user operators."""
    stages = [parse_stage(text) for text in texts]
    operators = tuple(operators)
    asked: dict[int, QuerySpec] = {}
    for stage in stages:
        known = restore_operators(stage["operators"], operators)
        for one in stage["asked"]:
            query = resolve_name(get_kind(one["kind"]).parse)(one, known)
            asked[one["number"]] = QuerySpec(query, one["name"], one["number"])
    first, levels = stages[0], stages[0]["levels"]
    return {
        "asked": tuple(asked[number] for number in sorted(asked)),
        "source": SourceSchema.again(first),
        "options": RunOptions(
            emit_timeouts=first["emit_timeouts"],
            levels=tuple(levels) if isinstance(levels, list) else levels,
            trace=first["trace"],
            streaming=True,
            planning=PlannerOptions.of(first["planning"]),
            access=AccessOptions(first.get("access"), first.get("latency")),
            ids=first.get("ids", True),
            flat=first.get("flat", False),
        ),
        "key_groups": max(stage["key_groups"] for stage in stages),
        "pasts": _pasts(stages),
    }


def _pasts(stages: Sequence[Mapping[str, Any]]) -> ArchiveSet:
    """Reopens the archives of all stages."""
    described = {n: d for stage in stages for n, d in stage.get("archives", {}).items()}
    from ensue.archives.factory import reopen_archive

    archives = {name: reopen_archive(one, _TABLES) for name, one in described.items()}
    first = stages[0]
    return ArchiveSet(archives, first.get("archive"), first.get("cut"))


def find_started_set(identity: str) -> SubscriptionsSpec:
    """The subscriptions in memory of a stream that this process started."""
    if identity not in _SETS:
        raise StateError(
            "the stream's subscriptions were in the memory of the process that began it\n"
            "  hint: run this in that process; ensue.Subscriptions(folder=...) keeps a set for "
            "others, too"
        )
    return _SETS[identity]


def register_job(asked: Iterable[QuerySpec], pasts: ArchiveSet = NO_ARCHIVES) -> None:
    """Registers the operators and archives of a stream, which finishing it needs."""
    for archive in pasts.archives.values():
        described = archive.described()
        if described["kind"] == "table":
            _TABLES[str(described["version"])] = archive
    for one in asked:
        if isinstance(one.query, SubscriptionsSpec):
            _SETS[one.query.log.identity] = one.query
        for operator in one.operators:
            _BEGUN[operator.name, operator.fingerprint] = operator


def restore_operators(used: Mapping[str, str], operators: Iterable[UserOperator]) -> tuple[UserOperator, ...]:
    """The operators of a checkpoint's query, after checking that they have not changed."""
    operators = tuple(operators)
    for name, fingerprint in used.items():
        if (name, fingerprint) in _BEGUN:
            operators = (*operators, _BEGUN[name, fingerprint])
            continue
        try:
            found = find_operator(name, operators, None)
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
