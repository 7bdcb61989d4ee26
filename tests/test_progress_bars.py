"""`progress=True`: a bar where somebody looks, and nothing elsewhere."""

import io
import sys
import types

import pyarrow as pa
import pytest

import ensue
from ensue import progress_bars
from ensue.progress_bars import NotebookDisplay, TerminalDisplay, progress_bar

EVENTS = pa.table({"t": list(range(20)), "kind": ["A", "B"] * 10})
HERE = {"time": "t", "type": "kind"}


class Seen:
    """A board that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple] = []
        self.closed = False

    def show(self, *said) -> None:
        self.said.append(said)

    def close(self) -> None:
        self.closed = True


def test_true_is_silent_where_nobody_looks(capsys):
    found = ensue.match(EVENTS, "SEQ(A a, B b) WITHIN 1", **HERE, progress=True)
    assert found.num_rows == 10
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_on_a_terminal_it_shows_events_done(monkeypatch):
    board = Seen()
    monkeypatch.setattr(progress_bars, "_DELAY", 0.0)
    monkeypatch.setattr(progress_bars, "TerminalDisplay", lambda: board)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    ensue.match(EVENTS, "SEQ(A a, B b) WITHIN 1", **HERE, progress=True)
    assert board.said[-1] == ("matching 20 of 20 events", 20, 20)
    assert board.closed


def test_a_board_is_closed_when_the_work_fails(monkeypatch):
    board = Seen()
    monkeypatch.setattr(progress_bars, "TerminalDisplay", lambda: board)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with pytest.raises(ensue.LimitError):
        ensue.match(EVENTS, "SEQ(A a, B b)", **HERE, progress=True, options=ensue.Limits(max_matches=1))
    assert board.closed


def test_a_terminal_draws_a_bar_and_takes_it_away(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    board = TerminalDisplay(file)
    board.show("matching 5 of 10 events", 5, 10)
    board.close()
    assert "matching 5 of 10 events" in file.getvalue()


def test_a_notebook_gets_html_that_changes(monkeypatch):
    shown = []

    class Handle:
        def update(self, bundle, raw):  # noqa: ARG002
            shown.append(bundle)

    def display(bundle, raw, display_id):
        shown.append(bundle)
        return Handle()

    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    board = NotebookDisplay()
    board.show("a <b> of", 5, 10)
    board.close()
    first, last = shown
    assert '<progress value="5" max="10">' in first["text/html"]
    assert "a &lt;b&gt; of" in first["text/html"]
    assert '<progress value="10" max="10">' in last["text/html"]
    assert last["text/plain"] == "a <b> of"


def test_a_function_is_called_as_ever():
    told = []
    ensue.match(EVENTS, "A a", **HERE, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (20, 20)


def test_false_and_none_ask_for_nothing():
    for nothing in (None, False):
        with progress_bar(nothing, "matching") as report:
            assert report is None


def test_anything_else_is_refused():
    with pytest.raises(ensue.EventError, match="True for a bar, or a function"):
        ensue.match(EVENTS, "A a", **HERE, progress="yes")


def test_spark_says_where_its_progress_is_seen():
    class DataFrame:
        isStreaming = False  # noqa: N815

    DataFrame.__module__ = "pyspark.sql.dataframe"
    with pytest.raises(ensue.EventError, match="showConsoleProgress"):
        ensue.match(DataFrame(), "A a", **HERE, progress=True)


def test_a_stream_that_goes_on_is_shown_by_wait():
    pytest.importorskip("pyspark")
    with pytest.raises(ensue.EventError, match=r"running\.wait\(progress=True\)"):
        ensue.start(None, "out/", checkpoint="state/", progress=True)


def test_waiting_tells_what_a_stream_has_done(monkeypatch):
    pytest.importorskip("pyspark")
    from dataclasses import replace

    from ensue.backends.spark import start
    from ensue.backends.spark.stream_progress import EMPTY_PROGRESS

    done = [replace(EMPTY_PROGRESS, batch=n, events=1_000, matches=2, late=n, seconds=0.5, input_rows=9)
            for n in (0, 1)]  # fmt: skip

    class Query:
        ends = iter([False, True])

        def awaitTermination(self, seconds):  # noqa: ARG002, N802
            return next(self.ends)

    class Display:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            told.append("closed")

        def show(self, text):
            told.append(text)

    seen, told = iter([[], done]), []
    monkeypatch.setattr(start, "get_progress", lambda query: next(seen))
    monkeypatch.setattr(start, "find_display", Display)
    assert start.RunningStream(Query(), None, "state/", None, None).wait(progress=True)
    assert told == [
        "waiting for the first micro-batch",
        "micro-batches 2, events 2,000, matches 4, late 1; last micro-batch took 0.5 s",
        "closed",
    ]
