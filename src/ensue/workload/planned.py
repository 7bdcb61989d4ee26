"""Plans what is asked of a stream: each kind of query becomes its kind of work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.tower import Tower
from ensue.errors import QueryError, did_you_mean
from ensue.plan.evictable import OF_TOWERS
from ensue.plan.planning import DEFAULT, Planning
from ensue.results.notified import notified_schema
from ensue.workload.asked import Asked
from ensue.workload.correlations.expected import STREAM, Coming
from ensue.workload.correlations.keeping import KeepingStage
from ensue.workload.correlations.prepare import Wanted, prepare_correlation, require_columns
from ensue.workload.correlations.prepared import (
    NO_PAST,
    Pasts,
    PreparedCorrelation,
)
from ensue.workload.correlations.sides import patterns_of
from ensue.workload.correlations.work import CorrelationWork
from ensue.workload.queries.work import QueryWork
from ensue.workload.query_names import Name, speaking_of
from ensue.workload.row_patterns.clause import Clause
from ensue.workload.row_patterns.clause import prepared as prepared_clause
from ensue.workload.row_patterns.work import RowPatternWork
from ensue.workload.source import Source
from ensue.workload.spill.evictable import (
    not_evictable,
    not_sheddable,
    require_sheddable,
    why_not_evictable,
)
from ensue.workload.stage import ARRIVAL, Archives, Output, Stage
from ensue.workload.subscriptions.subscribed import Subscribed
from ensue.workload.timed_out import Bundle, bundle
from ensue.workload.towers.joined import joined_towers
from ensue.workload.towers.prepare import prepare_layers, prepare_tower
from ensue.workload.towers.prepared import PreparedTower
from ensue.workload.towers.work import Level, TowerWork
from ensue.workload.whole_results import finished_apart, refuse_endless

if TYPE_CHECKING:
    from ensue.workload.subscriptions.work import SubscriptionWork

OF_CLAUSES = "MATCH_RECOGNIZE keeps rows, which stay in memory"


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a call wants of all its queries."""

    emit_timeouts: bool = False
    levels: tuple[str, ...] | str | None = None
    trace: bool = False
    streaming: bool = False
    planning: Planning = DEFAULT
    access: Wanted = Wanted()  # noqa: RUF009  it is frozen
    coming: Coming = STREAM  # what is known of the events
    ids: bool = True  # whether what clauses give begins with a column match_id
    flat: bool = False  # whether events are plain columns


@dataclass(frozen=True, slots=True)
class _Tower:
    """A tower made ready, and what each query of the call has of it: layers by output names."""

    prepared: PreparedTower
    levels: Mapping[Asked, Sequence[tuple[str, Name]]]


def works_of(
    asked: Sequence[Asked], source: Source, wishes: Wishes, pasts: Pasts = NO_PAST
) -> "tuple[QueryWork | TowerWork | CorrelationWork | SubscriptionWork | RowPatternWork, ...]":
    """The works of some queries. Their outputs are numbered in the order of the call."""
    if len(asked) == 1 and isinstance(asked[0].query, Subscribed):
        return (_subscriptions(asked[0], asked[0].query, source, wishes),)
    asked = [_traced(one) if wishes.trace else one for one in asked]
    if wishes.streaming:
        refuse_endless(asked)
    asked, finishing = finished_apart(asked, emit_timeouts=wishes.emit_timeouts)
    require_columns(pasts, source.shape)
    bundles = dict(_bundles(asked, source, wishes))
    correlated = dict(_correlated(asked, source, wishes, pasts))
    clauses = dict(_clauses(asked, source, wishes, pasts))
    if wishes.planning.limits.evict is not None:
        _require_evictable(asked, bundles, correlated)
    if wishes.planning.limits.shed_ms is not None:
        _require_sheddable(asked, bundles, correlated)
    towers = list(_towers(asked, source, wishes))
    of = {one: tower for tower in towers for one in tower.levels}
    numbers = count()
    outputs: dict[Asked, list[Output]] = {}
    for one in asked:
        if one in bundles:
            name = "" if one.name is None else one.name
            given = bundles[one]
            outputs[one] = [
                Output(next(numbers), name, given.result, one.number, given.main.query)
            ]
        elif one in correlated:
            name = "" if one.name is None else one.name
            made = correlated[one]
            result = made.joining.result
            outputs[one] = [Output(next(numbers), name, result, one.number, made.meaning)]
        elif one in clauses:
            name = "" if one.name is None else one.name
            outputs[one] = [Output(next(numbers), name, clauses[one].schema, one.number, None)]
        else:
            tower = of[one].prepared
            meaning = {p.layer.name: p.layer.meaning for p in tower.layers}
            outputs[one] = [
                Output(next(numbers), name, tower.delivered[layer], one.number, meaning[layer])
                for layer, name in of[one].levels[one]
            ]
    for one in asked:  # the query itself is behind the levels below it
        if one.number in finishing:
            outputs[one][-1] = replace(outputs[one][-1], finishing=finishing[one.number])
    if wishes.flat:
        outputs = {one: [output.flattened() for output in outputs[one]] for one in outputs}
    for output in (output for of_one in outputs.values() for output in of_one):
        _ = output.finished  # what cannot be ordered is told before anything runs
    found: list[QueryWork | TowerWork | CorrelationWork | RowPatternWork] = []
    if bundles:
        alone = len(asked) == 1 and asked[0].name is None
        own = tuple(outputs[one][0] for one in bundles)
        found.append(QueryWork(tuple(bundles.values()), own, alone))
    if correlated:
        own = tuple(outputs[one][0] for one in correlated)
        found.append(CorrelationWork(tuple(correlated.values()), own, pasts, source))
    if clauses:
        own = tuple(outputs[one][0] for one in clauses)
        found.append(RowPatternWork(tuple(clauses.values()), own, source, wishes.streaming))
    for tower_of in towers:
        levels = [
            Level(layer, output)
            for one, layers in tower_of.levels.items()
            for (layer, _), output in zip(layers, outputs[one], strict=True)
        ]
        found.append(TowerWork(tower_of.prepared, tuple(levels)))
    return tuple(found)


def _traced(one: Asked) -> Asked:
    """A query whose matches tell their members: one that stands on no definitions."""
    return replace(one, query=Tower((), one.query)) if isinstance(one.query, Query) else one


def _subscriptions(
    asked: Asked, subscribed: Subscribed, source: Source, wishes: Wishes
) -> "SubscriptionWork":
    """A set of subscriptions is all that a call asks for."""
    from ensue.workload.subscriptions.work import SubscriptionWork

    name = "" if asked.name is None else asked.name
    output = Output(0, name, notified_schema(source.shape), asked.number, None)
    output = output.flattened() if wishes.flat else output
    limits = wishes.planning.limits
    return SubscriptionWork(subscribed, source, output, limits, wishes.streaming)


def stages_with_archive(
    stages: tuple[Stage, ...], source: Source, pasts: Pasts
) -> tuple[Stage, ...]:
    """The stages of a stream's only chain, which keeps its events for the own archive."""
    if len(stages) > 1 or stages[0].arrival != (ARRIVAL,):
        raise QueryError(
            "archive= cannot be combined with queries that have definitions yet",
            hint="ask for them in a call of their own, without archive=",
        )
    (stage,) = stages
    if isinstance(stage, Archives):
        return stages
    assert pasts.own is not None
    only = replace(pasts.travelling, archives={pasts.own: pasts.archives[pasts.own]})
    return (KeepingStage(stage, only, source),)


def _correlated(
    asked: Sequence[Asked], source: Source, wishes: Wishes, pasts: Pasts
) -> Iterator[tuple[Asked, PreparedCorrelation]]:
    """Queries over the stream and its past made ready."""
    for one in asked:
        if isinstance(one.query, Correlation):
            with speaking_of(one.name):
                if wishes.emit_timeouts:
                    raise QueryError(
                        "emit_timeouts=True cannot be combined with JOIN ARCHIVE: a partial "
                        "match has no "
                        "range to look for its past in",
                        hint="ask for the timeouts of the live pattern in a query of its own",
                    )
                yield one, prepare_correlation(
                    one.query, source.shape, pasts, wishes.planning, wishes.access,
                    streaming=wishes.streaming, coming=wishes.coming,
                )  # fmt: skip


def _bundles(
    asked: Sequence[Asked], source: Source, wishes: Wishes
) -> Iterator[tuple[Asked, Bundle]]:
    """Queries without definitions made ready, or an error that says which cannot be."""
    for one in asked:
        if isinstance(one.query, Query):
            with speaking_of(one.name):
                yield one, bundle(
                    one.query, source.shape, wishes.planning,
                    emit_timeouts=wishes.emit_timeouts, streaming=wishes.streaming,
                )  # fmt: skip


def _clauses(
    asked: Sequence[Asked], source: Source, wishes: Wishes, pasts: Pasts
) -> Iterator[tuple[Asked, Clause]]:
    """Clauses of SQL made ready, or an error that says which cannot be."""
    for one in asked:
        if isinstance(one.query, Recognition):
            with speaking_of(one.name):
                if source.by_type is not None:
                    raise QueryError(
                        "MATCH_RECOGNIZE reads one table, and these are several",
                        hint="pass one table, with a column for the type of events",
                    )
                _require_of_clause(asked, source, wishes, pasts)
                limits = wishes.planning.limits
                clause = prepared_clause(
                    one.query, source.arrow, limits, ids=wishes.ids, session=source.zone
                )
                yield one, clause


def _require_of_clause(
    asked: Sequence[Asked], source: Source, wishes: Wishes, pasts: Pasts
) -> None:
    """An error if a call wants something of a clause that it does not have.

    What is for other queries of the call does not concern it.
    """
    planning = wishes.planning
    refused = {
        "emit_timeouts=": wishes.emit_timeouts,
        "evict=": planning.limits.evict is not None,
        "shed=": planning.limits.shed_ms is not None,
    }
    if all(isinstance(one.query, Recognition) for one in asked):
        refused |= {
            "levels=": wishes.levels is not None,
            "trace=": wishes.trace,
            "statistics=": planning.statistics != DEFAULT.statistics,
            "structure=": planning.structure is not None,
            "adaptive=": planning.adaptive,
            "location=": source.location is not None or source.space != "plane",
            "archives=": bool(pasts.archives),
            "access=": wishes.access != Wanted(),
        }
    for argument, asked_for in refused.items():
        if asked_for:
            raise QueryError(
                f"{argument} cannot be combined with MATCH_RECOGNIZE", hint=f"leave {argument} out"
            )


def _require_evictable(
    asked: Sequence[Asked],
    bundles: Mapping[Asked, Bundle],
    correlated: Mapping[Asked, PreparedCorrelation],
) -> None:
    """An error that says which query cannot be evicted, and why."""
    for one in asked:
        with speaking_of(one.name):
            if one in bundles:
                why = why_not_evictable(bundles[one].queries)
            elif one in correlated:
                live = patterns_of([correlated[one].live])
                why = why_not_evictable(live) if live else OF_CLAUSES
            else:
                why = OF_TOWERS
            if why is not None:
                raise not_evictable(why)


def _require_sheddable(
    asked: Sequence[Asked],
    bundles: Mapping[Asked, Bundle],
    correlated: Mapping[Asked, PreparedCorrelation],
) -> None:
    """An error that says which query cannot give up keys, and why."""
    for one in asked:
        with speaking_of(one.name):
            if one in correlated:
                raise not_sheddable("what is dropped would be missing from the past of matches")
            if one not in bundles:
                raise not_sheddable("events that are made of events would be made of fewer")
            require_sheddable(bundles[one].queries)


def _towers(asked: Sequence[Asked], source: Source, wishes: Wishes) -> Iterator[_Tower]:
    """Queries on top of definitions made ready; those that share layers stand on one tower."""
    towers = {
        str(one.number): one.query if one.name is None else with_levels(one.query, wishes.levels)
        for one in asked
        if isinstance(one.query, Tower)
    }
    _require_levels(towers.values(), wishes.levels)
    by_label = {str(one.number): one for one in asked}
    given = source.shape, wishes.planning
    for label, alone in towers.items():
        if by_label[label].name is not None:
            with speaking_of(by_label[label].name):  # what is wrong with one is its own matter
                prepare_layers(alone, *given, trace=wishes.trace, streaming=wishes.streaming)
    for tower, labels in joined_towers(towers, *given, trace=wishes.trace):
        with speaking_of(by_label[labels[0]].name if len(labels) == 1 else None):
            levels = wishes.levels if by_label[labels[0]].name is None else None
            prepared = prepare_tower(
                tower, *given, levels=levels, trace=wishes.trace,
                streaming=wishes.streaming, emit_timeouts=wishes.emit_timeouts,
            )  # fmt: skip
        yield _Tower(
            prepared,
            {
                by_label[label]: tuple(_levels(by_label[label], towers[label], prepared, wishes))
                for label in labels
            },
        )


def with_levels(tower: Tower, levels: tuple[str, ...] | str | None) -> Tower:
    """A tower among others that delivers, of the levels that are asked for, those that it has."""
    own = [definition.name for definition in tower.definitions]
    asked = {levels} if isinstance(levels, str) else set(levels or ())
    extra = [n for n in own if (levels == "all" or n in asked) and n not in tower.emit]
    return replace(tower, emit=(*tower.emit, *extra)) if extra else tower


def _require_levels(towers: Iterable[Tower], levels: tuple[str, ...] | str | None) -> None:
    """A level that no query has is an error, which one query alone says itself."""
    known = {name for tower in towers for name in (*tower.names, tower.query.name)}
    for name in (levels,) if isinstance(levels, str) else levels or ():
        if name != "all" and name not in known:
            raise QueryError(
                f"levels={name!r}: no such event is defined",
                hint=did_you_mean(name, sorted(n for n in known if n)),
            )


def _levels(
    one: Asked, tower: Tower, prepared: PreparedTower, wishes: Wishes
) -> Iterator[tuple[str, Name]]:
    """What one query has of a tower: the levels that are asked for, then itself.

    The levels of one of several queries go by its name, too.
    """
    wanted = {wishes.levels} if isinstance(wishes.levels, str) else set(wishes.levels or ())
    wanted |= set(tower.emit)
    for name in prepared.delivered:
        if tower.defined(name) is not None and (wishes.levels == "all" or name in wanted):
            yield name, name if one.name is None else f"{one.name}.{name}"
    tops = {top.label: top.layer for top in prepared.tower.tops}
    own = tower.query.name or ""
    yield tops.get(str(one.number), own), own if one.name is None else one.name
