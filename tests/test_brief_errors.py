"""Errors about queries, arguments and data end at the user's own line."""

import asyncio
import os
import subprocess
import sys
import traceback

import pyarrow as pa
import pytest

import ensue
from ensue.brief_tracebacks import shorten_task_tracebacks, shorten_tracebacks
from ensue.errors import EnsueError, LimitError, QueryError

EVENTS = pa.table({"t": [1, 2], "kind": ["A", "B"]})


def files_of(error: BaseException) -> set[str]:
    return {frame.filename for frame in traceback.extract_tb(error.__traceback__)}


def test_an_error_in_a_query_has_no_frames_of_ours():
    with pytest.raises(ensue.QueryError) as raised:
        ensue.match(EVENTS, "SEQ(A a, B b) WHERE a.x > 3", time="t", type="kind")
    assert files_of(raised.value) == {__file__}


def test_so_has_one_of_a_builder_and_of_a_set_of_subscriptions():
    with pytest.raises(ensue.QueryError) as raised:
        ensue.pattern("A a").where("a.x >")
    assert files_of(raised.value) == {__file__}
    with pytest.raises(ensue.EventError) as said:
        ensue.Subscriptions(time="t", space="moon")
    assert files_of(said.value) == {__file__}


def test_an_argument_that_there_is_not_has_none_either():
    with pytest.raises(TypeError, match="tme") as raised:
        ensue.match(EVENTS, "A a", tme="t")
    assert files_of(raised.value) == {__file__}


def test_live_and_async_calls_do_the_same():
    live = ensue.live("A a", schema=EVENTS.schema, time="t", type="kind")
    with pytest.raises(ensue.EventError) as raised:
        live.feed({"t": "soon"})
    assert files_of(raised.value) == {__file__}

    async def read() -> None:
        async for _ in live.over([{"t": "soon"}]):
            pass

    with pytest.raises(ensue.EventError) as said:
        asyncio.run(read())
    assert not [name for name in files_of(said.value) if "/ensue/" in name]

    @shorten_tracebacks
    async def ask() -> None:
        raise QueryError("no")

    with pytest.raises(ensue.QueryError) as told:
        asyncio.run(ask())
    assert not [name for name in files_of(told.value) if "/ensue/" in name]


def test_memory_that_the_system_refuses_is_a_limit():
    @shorten_tracebacks
    def call():
        raise MemoryError("Unable to allocate 8 EiB")

    with pytest.raises(LimitError, match="more memory than the system gives") as error:
        call()
    assert "ulimit -v" in str(error.value)


def test_bugs_keep_their_frames():
    @shorten_tracebacks
    def broken() -> None:
        int("x")

    with pytest.raises(ValueError, match="invalid literal") as raised:
        broken()
    assert any(name.endswith("brief_tracebacks.py") for name in files_of(raised.value))


def test_a_wrong_type_inside_is_a_bug_and_no_wrong_argument():
    @shorten_tracebacks
    def broken() -> None:
        len(3)  # type: ignore[arg-type]

    with pytest.raises(TypeError) as raised:
        broken()
    assert any(name.endswith("brief_tracebacks.py") for name in files_of(raised.value))


def test_the_frames_of_a_users_function_stay():
    def mine(first, second):
        raise KeyError("mine")

    near = ensue.operator("near", q=mine)
    with pytest.raises(ensue.OperatorError) as raised:
        ensue.match(EVENTS, "near(A a, B b) r", time="t", type="kind", definitions=[near])
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError)
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["mine"]


def test_what_the_user_was_handling_is_still_told():
    def mine() -> None:
        try:
            {}["x"]
        except KeyError:
            ensue.parse(3)  # type: ignore[arg-type]

    with pytest.raises(ensue.QueryError) as raised:
        mine()
    assert isinstance(raised.value.__context__, KeyError)
    assert not raised.value.__suppress_context__


def test_all_frames_are_shown_on_demand(monkeypatch):
    monkeypatch.setenv("ENSUE_TRACEBACK", "full")
    with pytest.raises(ensue.QueryError) as raised:
        ensue.parse("SEQ(A a,")
    assert any(name.endswith("api.py") for name in files_of(raised.value))


def test_what_a_script_prints_is_its_own_line_and_the_message(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import ensue\nensue.parse('SEQ(A a,')\n")
    environment = {k: v for k, v in os.environ.items() if k != "ENSUE_TRACEBACK"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert done.stderr.count('File "') == 1
    assert "ensue.parse('SEQ(A a,')" in done.stderr


def test_a_task_of_spark_keeps_one_frame():
    @shorten_task_tracebacks
    def rows():
        yield 1
        _deeper()

    given = rows()
    assert next(given) == 1
    with pytest.raises(EnsueError) as raised:
        next(given)
    ours = [name for name in files_of(raised.value) if name != __file__]
    assert [name.rpartition("/")[2] for name in ours] == ["brief_tracebacks.py"]


def _deeper() -> None:
    raise QueryError("no")


def test_signatures_and_docstrings_stay():
    import inspect

    assert "time" in inspect.signature(ensue.match).parameters
    assert "Finds every match" in (ensue.match.__doc__ or "")


def test_warnings_point_at_the_users_line():
    with pytest.warns(UserWarning, match="no event is of type 'C'") as said:
        ensue.match(EVENTS, "SEQ(A a, C c)", time="t", type="kind")
    assert {warning.filename for warning in said} == {__file__}
