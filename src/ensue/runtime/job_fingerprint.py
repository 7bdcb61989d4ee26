"""The text that identifies a job in a checkpoint, and from which a stream can be finished.

Every stage of a pipeline has a text. It contains the queries, not their plans or limits.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ensue.errors import QueryError, StateError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.user_operator import UserOperator, find_operator
from ensue.options import OutputOptions
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.runtime.query_kinds import find_kind, get_kind
from ensue.runtime.query_spec import NO_ARCHIVES, ArchiveSet, QuerySpec, RunOptions, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema

if TYPE_CHECKING:
    from ensue.archives.archive import Archive

FORMAT = 3
_BEGUN: dict[tuple[str, str], UserOperator] = {}  # of streams that this process started
_SETS: dict[str, SubscriptionsSpec] = {}  # subscriptions in memory of these streams
_TABLES: "dict[str, Archive]" = {}  # archives in memory of these streams, by digest


def format_pipeline(
    specs: Sequence[QuerySpec],
    source: SourceSchema,
    options: RunOptions,
    key_groups: int,
    archive_set: ArchiveSet = NO_ARCHIVES,
) -> str:
    """The text of a pipeline of these queries."""
    planning = options.planning
    return json.dumps(
        {
            "format": FORMAT,
            "queries": [_describe_spec(spec) for spec in specs],
            **source.to_dict(),
            "key_groups": key_groups,
            "emit_timeouts": options.output.emit_timeouts,
            "levels": options.output.levels,
            "trace": options.output.trace,
            "planning": None if planning == DEFAULT_OPTIONS else planning.to_dict(),
            "operators": {o.name: o.fingerprint for spec in specs for o in spec.operators},
            **({} if options.ids else {"ids": False}),
            **({"flat": True} if options.output.flat else {}),
            **_describe_archives(specs, archive_set),
        }
    )


def _describe_archives(specs: Sequence[QuerySpec], archive_set: ArchiveSet) -> dict[str, Any]:
    """The archives that queries read."""
    names = {j.archive for spec in specs if isinstance(spec.query, ArchiveJoinQuery)
             for j in spec.query.joins}  # fmt: skip
    names |= set() if archive_set.own is None else {archive_set.own}
    if not names:
        return {}
    return {
        "archives": {name: archive_set.archives[name].describe() for name in sorted(names)},
        "archive": archive_set.own,
        "cut": archive_set.cut,
        "access": archive_set.access,
        "latency": archive_set.latency,
    }


def format_stage(chain: str, number: int) -> str:
    """The text of a stage of a pipeline."""
    return json.dumps({**json.loads(chain), "stage": number})


def _describe_spec(spec: QuerySpec) -> dict[str, Any]:
    kind = find_kind(spec.query)
    described: dict[str, Any] = resolve_name(kind.describe)(spec.query)
    return {"name": spec.name, "number": spec.number, "kind": kind.name, **described}


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
    specs: dict[int, QuerySpec] = {}
    for stage in stages:
        known = restore_operators(stage["operators"], operators)
        for described in stage["queries"]:
            query = resolve_name(get_kind(described["kind"]).parse)(described, known)
            specs[described["number"]] = QuerySpec(query, described["name"], described["number"])
    first = stages[0]
    return {
        "specs": tuple(specs[number] for number in sorted(specs)),
        "source": SourceSchema.from_dict(first),
        "options": RunOptions(
            streaming=True,
            planning=PlannerOptions.from_dict(first["planning"]),
            output=OutputOptions(
                levels=first["levels"],
                trace=first["trace"],
                flat=first.get("flat", False),
                emit_timeouts=first["emit_timeouts"],
            ),
            ids=first.get("ids", True),
        ),
        "key_groups": max(stage["key_groups"] for stage in stages),
        "archive_set": _reopen_archives(stages),
    }


def _reopen_archives(stages: Sequence[Mapping[str, Any]]) -> ArchiveSet:
    """Reopens the archives of all stages."""
    described = {n: d for stage in stages for n, d in stage.get("archives", {}).items()}
    from ensue.archives.factory import reopen_archive

    archives = {name: reopen_archive(values, _TABLES) for name, values in described.items()}
    first = stages[0]
    return ArchiveSet(
        archives, first.get("archive"), first.get("cut"), access=first.get("access"), latency=first.get("latency")
    )


def find_started_set(identity: str) -> SubscriptionsSpec:
    """The subscriptions in memory of a stream that this process started."""
    if identity not in _SETS:
        raise StateError(
            "the stream's subscriptions were in the memory of the process that began it\n"
            "  hint: run this in that process; ensue.Subscriptions(folder=...) keeps a set for "
            "others, too"
        )
    return _SETS[identity]


def register_job(specs: Iterable[QuerySpec], archive_set: ArchiveSet = NO_ARCHIVES) -> None:
    """Registers the operators and archives of a stream, which finishing it needs."""
    for archive in archive_set.archives.values():
        described = archive.describe()
        if described["kind"] == "table":
            _TABLES[str(described["version"])] = archive
    for spec in specs:
        if isinstance(spec.query, SubscriptionsSpec):
            _SETS[spec.query.log.identity] = spec.query
        for operator in spec.operators:
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
                f"  hint: pass it, as in ensue.remaining(..., definitions=ensue.operator({name!r}, ...))"
            ) from None
        if found.fingerprint != fingerprint:
            raise StateError(
                f"the operator {name} is not what it was when the stream began\n"
                "  hint: give it the functions and attributes it had, or begin a new checkpoint"
            )
    return operators
