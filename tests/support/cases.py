"""Many cases in one test, which fails with a list of all those that do."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Case = Callable[..., AbstractContextManager[None]]


@contextmanager
def each_case() -> Iterator[Case]:
    """Every `with case(name):` inside runs, whether or not an earlier one fails.

    A case with a reason in `xfail` has to fail, as one marked with a strict xfail has.
    """
    failures: list[str] = []
    count = 0

    @contextmanager
    def case(name: object, *, xfail: str | None = None) -> Iterator[None]:
        nonlocal count
        count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is reported
            if xfail is None:
                failures.append(f"{name}\n{_brief(error)}")
        else:
            if xfail is not None:
                failures.append(f"{name}\n    passes, though it is said to fail: {xfail}")

    yield case
    assert count, "there are no cases"
    report = "\n".join(failures)
    assert not failures, f"{len(failures)} of {count} cases fail:\n{report}"


def _brief(error: BaseException) -> str:
    """The error, and the line of the test that it comes from."""
    frame = traceback.extract_tb(error.__traceback__)[1:]
    line = f"    line {frame[0].lineno}: {frame[0].line}\n" if frame else ""
    said = "\n".join(f"    {text}" for text in str(error).splitlines()[:12])
    return f"{line}    {type(error).__name__}:\n{said}"
