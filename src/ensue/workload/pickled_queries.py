"""Queries that travel to other processes together with the functions of their operators."""

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ensue.algebra.query import Query
from ensue.algebra.walk import results

Carried = Query | bytes


def carried(query: Query) -> Carried:
    """The query in a form that any pickle takes along.

    The functions of its operators go by value: a worker need not be able to import the module
    that they were written in.
    """
    if not any(results(query.pattern)):
        return query
    from numba import cloudpickle

    with _by_value(query):
        return bytes(cloudpickle.dumps(query))


def arrived(query: Carried) -> Query:
    """The query again, where it has come to."""
    if isinstance(query, Query):
        return query
    found = pickle.loads(query)
    assert isinstance(found, Query)
    return found


@contextmanager
def _by_value(query: Query) -> Iterator[None]:
    from numba import cloudpickle

    functions = [f for a in results(query.pattern) for f in (a.operator.q, a.operator.f)]
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
