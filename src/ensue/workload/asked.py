"""What is asked of a stream: queries, each with its name and its place in the call."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.tower import Tower
from ensue.algebra.walk import results
from ensue.workload.query_names import Name
from ensue.workload.subscriptions.subscribed import Subscribed


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a call, with the definitions that it is made of."""

    query: Query | Tower | Correlation | Subscribed | Recognition
    name: Name | None = None  # None: it is the only one
    number: int = 0  # its place in the call

    @property
    def queries(self) -> tuple[Query, ...]:
        """All that is matched: it, behind its definitions or before what it is joined with."""
        match self.query:
            case Tower(definitions=definitions, query=top):
                return (*(definition.query for definition in definitions), top)
            case Correlation(live=live, joins=joins):
                sides = (live, *(join.query for join in joins))
                return tuple(side for side in sides if isinstance(side, Query))
            case Query():
                return (self.query,)
            case Subscribed() | Recognition():
                return ()

    @property
    def operators(self) -> Iterator[Operator]:
        """Those of users, in its patterns."""
        for query in self.queries:
            for applied in results(query.pattern):
                yield applied.operator


@contextmanager
def by_value(asked: Iterable[Asked]) -> Iterator[None]:
    """While it lasts, cloudpickle takes the functions of users' operators along.

    Else a worker would have to be able to import the modules that they were written in.
    """
    from numba import cloudpickle

    functions = [f for one in asked for o in one.operators for f in (o.q, o.f)]
    names = {f.__module__ for f in functions if f is not None}
    modules = [
        sys.modules[name]
        for name in sorted(names - {"__main__"})
        if name in sys.modules and name not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
